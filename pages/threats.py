"""What attackers reach: the table of the security page and its picture, from the record of `make study-threats`."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

from benchmarks.report import read

from pages.against_paper import markdown_table as table
from pisa_capc.evidence.figures.style import COLOURS, PAGE_INCHES, canvas

RECORD, PICTURE = "studies/threats.json", "threats.png"
PARTS = ("preamble", "whole frame")
QUALITIES = {
    "1": "like the enrolled radios",
    "0.3": "three times better",
    "0.1": "ten times better",
    "0.03": "thirty times better",
}
ERRORS = ("0", "0.1", "0.3", "1")


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def row(attack: str, found: dict[str, Any], case: str) -> list[str]:
    """Single frames accepted by the preamble and by the whole frame, ten frames as one, and reports within 40
    frames."""
    pair = [found[part][case] for part in PARTS]
    each = [percent(own[key]) for key in ("accepted", "accepted_10", "reported") for own in pair]
    return [attack, *each]


def measured() -> str:
    """The tables of attacks and outcomes, and what they say."""
    found = read(RECORD)
    replay, imitation, enrolment, drift = (found[name] for name in ("replay", "imitation", "enrolment", "drift"))
    better = replay["rejection_db"]
    rows = [
        row("the device itself", replay, "the device itself"),
        row("an unknown device with its address", replay, list(replay[PARTS[0]])[1]),
    ]
    for quality, said in QUALITIES.items():
        name = f"replay, front end {said} (image −{better[quality]:.0f} dB)"
        rows.append(row(name, replay, f"beside it, {quality}"))
    rows += [row(f"imitation of {k} of 3 flaws, exact", imitation, f"{k}, 0") for k in (1, 2, 3)]
    rows += [row(f"imitation of all flaws, error {error}", imitation, f"3, {error}") for error in ERRORS[1:]]
    heads = [
        "attack",
        *(f"{what}, {part}" for what in ("a frame", "ten frames", "reported") for part in ("preamble", "whole")),
    ]
    number, pairs = found["worlds"] * found["pairs"], found["imitation"]["antennas, frames, error"]
    intro = f"""Simulated, with the flaws and channels of the Wi-Fi scene and the closed form; {number} attackers,
      each on
      the air where nothing was learnt, each with {found["frames"]} frames under the address of a device. *A frame*,
      *ten
      frames*: accepted as the device, at a limit that rejects {found["rejected"]:.0%} of a device's own single frames.
      *Reported*: the test of the address finds out within 40 frames (α = {found["alpha"]:g}). Each by the preamble of
      320 samples, which the software uses, and by 1,600 samples of a frame whose payload is known. An error of 1 is
      what the radios differ by."""
    one, four = (pairs[f"{antennas}, 1, 0.3"] for antennas in (1, 4))
    frames = [pairs[f"4, {count}, 0.3"] for count in (1, 3, 10, 30)]
    more = f"""**More antennas and frames** help as far as the copy is wrong: of imitations of all flaws with an
      error of
      0.3, one antenna accepts {percent(one)} of single frames and four {percent(four)}; four antennas accept
      {", ".join(map(percent, frames))} of 1, 3, 10 and 30 frames decided as one. An exact copy is always accepted."""
    far = f"""**A replay** is what a better front end makes it. From across a room, where the recording passes another
      channel, a front end like the enrolled radios is accepted in
      {percent(replay["preamble"]["across the room, 1"]["accepted"])}
      of frames and one ten times better in {percent(replay["preamble"]["across the room, 0.1"]["accepted"])}. The
      goodness of
      fit does not find it: it suspects {percent(replay["preamble"]["across the room, 0.1"]["suspected"])} of these
      frames and
      {percent(replay["preamble"]["the device itself"]["suspected"])} of the device's own. A fingerprint does not stop a
      replay by good equipment; fresh data under a key does."""
    text = [wrapped(intro), table(heads, rows), *map(wrapped, (more, far)), *_enrolment(enrolment), *_drift(drift)]
    took = f"{found['seconds'] / 60:.0f} minutes on a shared core"
    command = f"Command: `make study-threats`; record `results/{RECORD}`, {took}."
    picture = f"![Replay by the quality of its front end, imitation by its error, a device that ages]({PICTURE})"
    return "\n\n".join([*text[:2], picture, *text[2:], command])


def _enrolment(found: dict[str, Any]) -> list[str]:
    kinds = dict.fromkeys(name.rpartition(", ")[0] for name in found)  # an enrolled device's, an unknown one's
    rows = []
    for share in ("0", "0.02", "0.1", "0.2", "0.3", "0.5"):
        own = [found[f"{kind}, {share}"] for kind in kinds]
        cells = [[percent(one["refused"]), percent(one["found"]) if float(share) else "–", _far(one)] for one in own]
        rows.append([f"{float(share):.0%}", *cells[0], *cells[1]])
    heads = [
        "foreign",
        *(f"{what}{kind}" for kind in ("", ", unknown device") for what in ("refused", "found", "moved")),
    ]
    text = """**Poisoned enrolment.** A share of the 50 frames that a device is to be enrolled from is an enrolled
      device's
      or an unknown one's. Enrolments refused; foreign frames found, which are left out where the enrolment is not
      refused; and how far that leaves the fingerprint from the right one, in its error bars."""
    return [wrapped(text), table(heads, rows)]


def _far(one: dict[str, Any]) -> str:
    return "–" if one["moved_unrefused"] is None else f"{one['moved_unrefused']:.1f}"


def _drift(found: dict[str, Any]) -> list[str]:
    months, attacks = found["months"], found["attacks"]
    last = {faster: {name: own[-1] for name, own in rows.items()} for faster, rows in months.items()}
    rows = [
        [
            f"{faster} ×",
            *(
                percent(last[faster][f"{kind}, {key}"])
                for kind in ("fixed", "updated")
                for key in ("accepted", "reported")
            ),
        ]
        for faster in months
    ]
    plain, patient = attacks["its own frames"], attacks["step by step"]
    text = """**Ageing.** After twelve months of temperature and ageing at our assumed speed, three and ten times that
      (`studies/threats/drift.py`): single frames of the device itself that are accepted, and devices that are reported
      though they are themselves, with the fingerprint of the enrolment and with one that `pisa enrol --update` followed
      every month. At ten times the speed every update is refused, and the device has to be enrolled again."""
    heads = ["speed", "accepted, fixed", "reported, fixed", "accepted, updated", "reported, updated"]
    also = f"""**Attackers of updates.** A year of updates with the frames of an unknown device:
      {percent(plain["refused"])}
      are refused, and it is accepted in {percent(plain["attacker accepted"])} of frames afterwards. A patient
      attacker who
      imitates the device exactly and moves a twelfth of the way to its own hardware every month, unopposed:
      {percent(patient["refused"])} are refused, it is accepted in {percent(patient["attacker accepted"])} of frames
      afterwards and reported in {percent(patient["attacker reported"])} of cases; but the device itself is accepted
      in only
      {percent(patient["device accepted"])}. Updates from frames that are not checked can lock a device out."""
    return [wrapped(text), table(heads, rows), wrapped(also)]


def wrapped(paragraph: str) -> str:
    return fill(" ".join(paragraph.split()), 120, break_long_words=False, break_on_hyphens=False)


def picture(folder: Path) -> None:
    """Acceptance over the quality of a replay, over the error of an imitation, and over a year."""
    found = read(RECORD)
    with canvas(folder / PICTURE, PAGE_INCHES, 2.7) as figure:
        replay, imitation, drift = figure.subplots(1, 3, sharey=True)
        better = found["replay"]["rejection_db"]
        for number, part in enumerate(PARTS):
            own = found["replay"][part]
            accepted = [own[f"beside it, {quality}"]["accepted"] for quality in better]
            replay.plot(list(better.values()), accepted, "os"[number] + "-", color=COLOURS[number], label=part)
            own = found["imitation"][part]
            errors = ["0.03", "0.1", "0.3", "1"]
            accepted = [own[f"3, {error}"]["accepted"] for error in errors]
            imitation.semilogx(
                list(map(float, errors)), accepted, "os"[number] + "-", color=COLOURS[number], label=part
            )
        for number, (faster, rows) in enumerate(found["drift"]["months"].items()):
            for kind, line in (("fixed", "--"), ("updated", "-")):
                drift.plot(rows[f"{kind}, accepted"], line, color=COLOURS[number], label=f"{faster} ×, {kind}")
        replay.set(
            xlabel="image rejection of the replay [dB]", ylabel="frames accepted", ylim=(-0.03, 1.03), title="replay"
        )
        ticks = [0.03, 0.1, 0.3, 1.0]
        imitation.set(xlabel="error, of what radios differ by", title="all flaws imitated")
        imitation.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        imitation.set_xticks([], minor=True)
        drift.set(xlabel="months", title="a device that ages")
        replay.legend(fontsize=7)
        drift.legend(fontsize=5.5, loc="lower right", bbox_to_anchor=(1.0, 0.06))
