"""The results page on identity in closed form, from the records of `studies.closed_form`,
`studies.limits` and `studies.breaking`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.report import read

from pages.against_paper import markdown_table as table
from pisa_capc.evidence.figures.style import COLOURS, PAGE_INCHES, canvas

PICTURE = "closed-form-breaking.png"
SCENES = {
    "wifi": "Wi-Fi",
    "lora": "LoRa",
    "wifi-own-place": "Wi-Fi, channels of each device",
    "lora-own-place": "LoRa, channels of each device",
}
DROP = 0.05  # of Macro-F1, before which the goodness of fit should have noticed
NOTICED = 0.5  # of the frames


def record() -> dict[str, Any]:
    found: dict[str, Any] = read("studies/closed-form.json")
    return found


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read("studies/breaking.json")["steps"]
    return found


def limits() -> dict[str, Any]:
    found: dict[str, Any] = read("studies/limits.json")
    return found


def section() -> str:
    """The page behind its title."""
    clean, few = steps()[0], record()["scenes"]["wifi"]
    draws, few_draws = few["strangers"]["draws"], few["few"]["draws"]
    shortest, noisiest = record()["lora_by_length"][0]["samples"], record()["lora_by_length"][-1]["more_noise_db"]
    return f"""A frame's flaws are measured by least squares, and a device is a Gaussian among them
([how](../measure.md#the-algebra)): `pisa train --method closed-form`. There are no
epochs and no training seed. Each row has three split seeds, which differ by {_spread():.4f} at most. The simulator
shares its physics with the method, so no scene could be kinder to it; [what breaks it](#what-breaks-it) is below.

## In simulated scenes

{_directions()}

Macro-F1 of the target, full-size sets.

{_limits()}

The limit is that of an [informed receiver](place.md), which knows the hardware of all devices. Here both decide on the
same {limits()["frames"]} frames of each recording, so the figures differ from those above, where long recordings weigh
more. Intervals: 95 %, recordings drawn again. *Behind*: limit less closed form, from two source environments, in the
same draws. {_reachable()} For LoRa the closed form is above the limit, which is no strict bound: the informed receiver
lets every tap of a channel be as strong as any other and searches an offset in each frame; the closed form does
neither.

{_strangers()}

Three of ten devices are unknown, {draws} draws, learnt in E2 and E3 and tested in E1. A frame is rejected if the
likelihood ratio of an unknown device to the known ones exceeds its 95 % quantile for known devices, which the model
itself gives ([how](../openset.md#the-scores)). Three frames: per device, of one capture, {few_draws} draws, mean and
minimum.

{_choice()}

## More of the preamble

{_lengths()}

LoRa, {shortest} samples and more of the eight upchirps, with the scene's noise and with {noisiest:g} dB more. Bars:
standard deviation of a frame's image and leakage. A small set, E2 and E3 → E1.

## Whole frames

{_whole()}

Ten simulated radios in a place never seen. Frames have random payloads and are rebuilt from their bits where the
checksum is right ([how](../measure.md#whole-frames), [study](../../studies/whole.py)). Samples: from the frame's first;
image and leakage are measured behind the preamble. *Covered*: 95 % intervals of both that contain the value of the
transmitter. {_too_narrow()}

Two recordings of real radios, by preambles and by whole frames:

{_real_whole()}

The preamble is the same in each frame, so what a filter in the transmitter adds to it reads as image in each frame.
Data differ, and most of that image is gone. It may still tell radios apart, but it is no image. Frames of one sender
differ in length, and so do their bars.

## What breaks it

![Macro-F1 and suspected frames, as harms grow](../{PICTURE})

{_broken()}

Ten simulated radios in two places and a third, channels drawn again for each frame, 15 to 30 dB
([study](../../studies/breaking.py)). Effects in the transmitter are in the source too; effects in the receiver or the
channel are in the target alone. *Suspected*: frames for which the
[goodness of fit](../measure.md#the-algebra) has a chance below 1 %; of clean frames
{clean["suspected"]:.1%} are, and {_clean()} of those of the four scenes. PISA is a CNN of {_epochs()} epochs, one seed,
on {_frames()} source frames, with and without an equaliser in front. The channel is drawn again for each frame, so
without an equaliser PISA is near chance until a transmitter's own filter is strong. The record is older than the last
change to the goodness of fit, which concerns long frames and oscillators, and is to be made again.

**The goodness of fit detects these before they cost {DROP} of Macro-F1**: {_noticed()}. **It detects these too late**:
{_missed() or "none"}. Low signal is not misfit: error bars grow, and devices become hard to separate. LDA on the same
flaws degrades as early. PISA on equalised frames starts lower and loses more to what a receiver does. It gains where a
transmitter has an effect of its own, which the closed form does not use: with an image that differs over the band by
0.05 or more it is ahead.

Channel state of real cards is on [a page of its own](real.md).

Commands: `make study-closed_form`, `make study-limits`, `make study-whole` and `make study-breaking`. Records:
`results/studies/closed-form.json`, `limits.json`, `whole.json`, `whole-recordings.json` and `breaking.json` beside it.
"""


def _spread() -> float:
    """Largest difference of two split seeds."""
    return max(max(own) - min(own) for one in record()["scenes"].values() for own in one["macro_f1"].values())


def _directions() -> str:
    known = record()["scenes"]
    directions = list(known["wifi"]["macro_f1"])[:3]
    rows = []
    for scene, title in SCENES.items():
        own = known[scene]["macro_f1"]
        single = [float(np.mean(values)) for name, values in own.items() if name not in directions]
        rows.append(
            [
                title,
                *(f"{np.mean(own[name]):.3f}" for name in directions),
                f"{min(single):.3f}–{max(single):.3f}",
            ]
        )
    return table(["scene", *directions, "one source environment"], rows)


def _limits() -> str:
    """Limit and closed form of each target on the same frames."""
    rows = []
    for scene, title in SCENES.items():
        for target, own in limits()["scenes"][scene].items():
            two, *single = own["closed_form"].values()
            low, high = (pick(one["macro_f1"] for one in single) for pick in (min, max))
            rows.append(
                [
                    title,
                    target,
                    f"{own['limit']:.3f} ({_span(own['interval'])})",
                    f"{two['macro_f1']:.3f}",
                    f"{low:.3f}–{high:.3f}",
                    f"{_signed(two['behind'], 4)} ({_span(two['behind_interval'], 4)})",
                ]
            )
    heads = ["scene", "target", "limit", "closed form, from two", "from one", "behind"]
    return table(heads, rows)


def _span(ends: list[float], digits: int = 3) -> str:
    return " to ".join(_signed(end, digits) for end in ends)


def _signed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def _reachable() -> str:
    """What one source environment gives in E2 of Wi-Fi, beside what anybody can have there."""
    of_all, found = record()["scenes"], limits()["scenes"]
    scenes = ("wifi", "wifi-own-place")
    reached = [np.mean(own) for scene in scenes for name, own in of_all[scene]["macro_f1"].items() if "→E2" in name]
    most = [found[scene]["E2"]["limit"] for scene in scenes]
    behind = max(one["behind"] for scene in scenes for one in found[scene]["E2"]["closed_form"].values())
    return f"""The {min(reached):.3f} to {max(reached):.3f} of Wi-Fi in E2 are near what is possible: the limit there is
{min(most):.3f} and {max(most):.3f}, and the closed form is behind it by {behind:.4f} at most, from whatever
environments it was learnt."""


def _strangers() -> str:
    rows = []
    for scene, title in SCENES.items():
        own, few = record()["scenes"][scene]["strangers"], record()["scenes"][scene]["few"]
        rows.append(
            [
                title,
                f"{own['auroc']:.3f}",
                f"{own['accepted']:.1%}",
                f"{own['rejected']:.1%}",
                f"{own['accepted_10']:.1%}",
                f"{own['rejected_10']:.1%}",
                f"{few['macro_f1']:.3f}, {few['least']:.3f}",
            ]
        )
    heads = ["scene", "unknown devices: AUROC", "accepted", "rejected", "accepted, ten frames", "rejected, ten frames"]
    return table([*heads, "from three frames"], rows)


def _choice() -> str:
    """Why the ratio and not the distance, by the source alone."""
    own = [record()["scenes"][scene]["strangers"]["source"] for scene in SCENES]
    ratio, distance = (
        f"{min(row[name] for row in own):.3f} to {max(row[name] for row in own):.3f}"
        for name in ("auroc", "auroc_distance")
    )
    return f"""The ratio was chosen over the distance to the nearest device in the two source environments, one of them
learnt and the other tested: AUROC {ratio} against {distance} over the four scenes."""


def _lengths() -> str:
    rows = [
        [
            f"{own['samples']:,}",
            f"{own['more_noise_db']:g} dB",
            f"{own['image_bar']:.4f}",
            f"{own['leakage_bar']:.4f}",
            f"{own['macro_f1']:.3f}",
            f"{own['strangers']['auroc']:.3f}",
        ]
        for own in record()["lora_by_length"]
    ]
    return table(
        ["samples", "more noise", "bar of the image", "bar of the leakage", "Macro-F1", "unknown devices: AUROC"], rows
    )


def _broken() -> str:
    rows = [
        [
            own["what"],
            f"{own['value']:g} {own['unit']}".strip() if own["unit"] or own["value"] else "–",
            f"{own['closed_form']:.3f}",
            f"{own['lda']:.3f}",
            f"{own['pisa-equalised']:.3f}",
            f"{own['pisa']:.3f}",
            f"{own['rejected']:.1%}",
            f"{own['suspected']:.1%}",
        ]
        for own in steps()
    ]
    names = ["what", "how much", "closed form", "LDA", "PISA, equalised", "PISA"]
    return table([*names, "known devices rejected", "suspected"], rows)


SHOWN = {"wifi": (640, 1280, 5120, 19200), "lora": (16384, 32768)}  # samples


def _whole() -> str:
    rows = []
    for own in read("studies/whole.json")["rows"]:
        if own["preamble"] or own["samples"] in SHOWN[own["waveform"]]:
            rows.append(
                [
                    SCENES[own["waveform"]],
                    f"{own['snr_db']:g} dB",
                    "preamble" if own["preamble"] else f"{own['samples']:,}",
                    f"{own['image_bar']:.4f}",
                    f"{own['covered']:.0%}",
                    f"{own['macro_f1']:.3f}",
                    f"{own['auroc']:.3f}",
                ]
            )
    heads = ["waveform", "SNR", "samples", "bar of the image", "covered", "Macro-F1", "unknown devices: AUROC"]
    return table(heads, rows)


def _too_narrow() -> str:
    """From how small a bar on what the model leaves out shows."""
    rows = [own for own in read("studies/whole.json")["rows"] if not own["preamble"]]
    good = [own for own in rows if own["snr_db"] <= 10]
    bad = [own for own in rows if own["snr_db"] > 10]
    return f"""Up to 10 dB {min(own["covered"] for own in good):.0%} to {max(own["covered"] for own in good):.0%} are
covered; at 20 dB {min(own["covered"] for own in bad):.0%} to {max(own["covered"] for own in bad):.0%}: the longer the
frame, the more what the model leaves out counts beside the noise. This record is older than
[bars that follow what each frame shows](../measure.md#whole-frames), and is to be made again."""


def _real_whole() -> str:
    rows = []
    for own in read("studies/whole-recordings.json")["rows"]:
        image, leakage = (
            f"{_signed(own[flaw][0], 3)} {'−' if own[flaw][1] < 0 else '+'} {abs(own[flaw][1]):.3f}j"
            for flaw in ("image", "leakage")
        )
        scatter = f"{own['image_scatter']:.4f}, {own['image_bar']:.4f}"
        name = own["recording"].split("-")[0]
        rows.append([name, own["sender"], own["measured"], f"{own['frames']}", image, scatter, leakage])
    heads = ["recording", "sender", "measured on", "frames", "image", "scatter of frames, their usual bar", "leakage"]
    return table(heads, rows)


def _clean() -> str:
    clean = read("studies/breaking.json")["clean"].values()
    return f"{min(clean):.1%} to {max(clean):.1%}"


def _epochs() -> int:
    return int(read("studies/breaking.json")["epochs"])


def _frames() -> str:
    from studies.breaking import DEVICES, FRAMES, PLACES

    return f"{DEVICES * FRAMES * (PLACES - 1):,}"


def _harms() -> dict[str, list[dict[str, Any]]]:
    """The steps of each kind of harm, as they are listed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for own in steps()[1:]:
        found.setdefault(own["what"], []).append(own)
    return found


def in_time(harm: list[dict[str, Any]]) -> bool:
    """Whether, where it costs `DROP` first, half of the frames are suspected; so where it never does."""
    clean = steps()[0]["closed_form"]
    costly = [own for own in harm if own["closed_form"] < clean - DROP]
    return not costly or costly[0]["suspected"] > NOTICED


def _noticed() -> str:
    return ", ".join(what for what, harm in _harms().items() if what != "SNR" and in_time(harm))


def _missed() -> str:
    clean = steps()[0]["closed_form"]
    told = []
    for what, harm in _harms().items():
        if what != "SNR" and not in_time(harm):
            first = next(own for own in harm if own["closed_form"] < clean - DROP)
            told.append(
                f"{what} ({first['value']:g} {first['unit']}: Macro-F1 {first['closed_form']:.3f}, "
                f"{first['suspected']:.0%} suspected)"
            )
    return "; ".join(told)


def picture(folder: Path) -> None:
    """Macro-F1 over suspected frames, a line per kind of harm."""
    clean = steps()[0]
    with canvas(folder / PICTURE, PAGE_INCHES, 3.2) as figure:
        axes = figure.subplots()
        for number, (what, harm) in enumerate(_harms().items()):
            rows = [clean, *harm] if what != "SNR" else harm
            axes.plot(
                [own["suspected"] for own in rows],
                [own["closed_form"] for own in rows],
                marker="osD^vP*XH8"[number],
                color=COLOURS[number] if number < len(COLOURS) else "#5A5A5A",
                markersize=4,
                linewidth=0.9,
                label=what,
            )
        axes.set(xlabel="part of the frames that are suspected", ylabel="Macro-F1", xlim=(-0.02, 1.02), ylim=(0, 1.02))
        axes.axhline(clean["closed_form"] - DROP, color="#999999", linewidth=0.6, linestyle=":")
        figure.legend(loc="outside right upper")
