"""The sections of the results pages on the guard and on poisoned captures, from the records of their studies."""

from __future__ import annotations

from statistics import fmean
from textwrap import fill
from typing import Any

from benchmarks.report import read

from pages.against_paper import markdown_table as table

GUARD = ("studies/guard-trained.json", "studies/guard.json")
RECORD = "studies/poison.json"
WAVEFORMS = {"wifi": "Wi-Fi", "lora": "LoRa"}
SHOWN = {
    "direct": "direct",
    "ucapc": "U-CAPC",
    "safe": "guard",
    "without-prior": "no prior",
    "bd-cspn": "BD-CSPN",
    "careful, unwatched": "careful, no check",
    "careful": "careful",
    "stream, ucapc": "stream: U-CAPC",
    "stream, careful": "stream: careful",
}


def guard() -> str:
    """Careful and the guard on the same models."""
    rows, found = [], list[tuple[dict[str, Any], int]]()
    for record in map(read, GUARD):
        epochs = record["settings"]["epochs"]
        for waveform, own in record["tables"].items():
            found.append((own, own["models"]))
            kind = f"{WAVEFORMS[waveform]}, {epochs} epoch{'s' * (epochs > 1)}, {own['models']} models"
            for name, title in (("safe", "guard"), ("careful", "careful")):
                of = own[name]
                values = (f"{of['gain']:+.3f}", f"{of['worst'][0]:+.3f}", f"{100 * of['lost']:.0f} %")
                rows.append([kind, f"{own['direct']:.2f}", title, *values])
    models = sum(n for _, n in found)

    def mean(name: str, of: str) -> float:
        return sum(n * float(own[name][of]) for own, n in found) / models

    training, learning = (sum(own["seconds"][part] for own, _ in found) for part in ("training", "guard"))
    gain, loss = ({name: mean(name, of) for name in ("safe", "careful")} for of in ("gain", "lost"))
    text = f"""Over all {models} models the guard gains {gain["safe"]:+.3f} and careful {gain["careful"]:+.3f}. The
      guard loses more than 0.02 in {loss["safe"]:.1%} of the captures, careful in {loss["careful"]:.1%}. Learning the
      guard took {learning:,.0f} s of training, the models themselves {training:,.0f} s. The rule was fixed before the
      first run: the calibration with the higher mean is usual if at most one capture in ten loses more than 0.02; of
      two whose means differ by less than 0.005, the one that trains less. That makes careful the usual one."""
    return f"""## Careful or the guard

The guard (`safe`) and careful on the same models: ten simulated radios with coarse hardware, each of three environments
in turn as the target, all kinds of deployment above. Change in Macro-F1 from direct inference, the worst mean of an
encoder in a kind of deployment, and the share of captures that lost more than 0.02:

{table(["models", "direct", "calibration", "mean", "worst", "lost"], rows)}

{wrapped(text)}

Command: `make study-guard`; records `results/{GUARD[1]}`, `results/{GUARD[0]}`.
"""


def poison() -> str:
    """Every calibration where a part of a capture is an attacker's."""
    tables = read(RECORD)["tables"]
    cells = [own["cells"] for own in tables.values()]
    worst = {
        name: min(scores[name] - scores["direct"] for own in cells for scores in own.values())
        for name in cells[0]["clean"]
        if name not in ("direct", "suspect")
    }
    alarms = [counts for own in tables.values() for counts in own["false alarms"].values()]
    false, clean = (sum(counts[i] for counts in alarms) for i in (0, 1))
    seen = {cell: fmean(own[cell]["suspect"] for own in cells) for cell in cells[0]}
    walks = ", ".join(f"{seen[cell]:.0%}" for cell in seen if cell.startswith("walk"))
    least = min(value for cell, value in seen.items() if cell.startswith(("far point", "noise")))
    without, with_check = (_change(cells, "far point, 0.1", name) for name in ("careful, unwatched", "careful"))
    check = f"""- **The check** finds {least:.0%} of the captures with a far point or noise, whatever their share, and
      {walks} of those with a walk in 10 to 90 % of the frames. Of {clean} clean captures of all kinds of deployment,
      unbalanced ones included, it takes {false} for poisoned. Careful leaves suspect captures to the classifier: a far
      point in a tenth of the frames changes it by {with_check:+.3f}, without the check by {without:+.3f}."""
    half, most = (
        {name: _change(cells, f"one device, {share}", name) for name in ("ucapc", "careful", "stream, careful")}
        for share in (0.5, 0.9)
    )
    played = f"""- **Frames of one device, played back,** look like a device that sends often, and the check does not
      find them. At half of the capture the published balance changes Macro-F1 by {half["ucapc"]:+.3f}, careful by
      {half["careful"]:+.3f}; at nine tenths careful changes it by {most["careful"]:+.3f}, on streams by
      {most["stream, careful"]:+.3f}."""
    listed = ", ".join(f"{name} {change:+.3f}" for name, change in sorted(worst.items(), key=lambda one: one[1]))
    farthest = f"- **Worst change from direct inference** of any poison and share on either waveform: {listed}."
    parts = "\n\n".join(_table(waveform, own) for waveform, own in tables.items())
    points = "\n".join(map(wrapped, (check, played, farthest)))
    return f"""## Poisoned captures

An attacker replaces a share of the frames of every capture: by frames of one device, by a walk between the embeddings
of two, by one point far from all devices, or by noise. Macro-F1 of the genuine frames alone, and the share of captures
that the [check](../calibration.md#poisoned-captures) takes for poisoned:

{parts}

{points}

Models of `studies.guard`, three epochs. Command: `make study-poison`; record `results/{RECORD}`.
"""


def wrapped(text: str) -> str:
    return fill(" ".join(text.split()), 120, subsequent_indent="  " * text.startswith("-"), break_on_hyphens=False)


def far(name: str) -> float:
    """What a far point in a tenth of a capture changes by this calibration, in the mean of the waveforms."""
    return _change([own["cells"] for own in read(RECORD)["tables"].values()], "far point, 0.1", name)


def _change(cells: list[dict[str, Any]], cell: str, name: str) -> float:
    return fmean(own[cell][name] - own[cell]["direct"] for own in cells)


def _table(waveform: str, own: dict[str, Any]) -> str:
    rows = [
        [cell, *(f"{scores[name]:.3f}" for name in SHOWN), f"{100 * scores['suspect']:.0f} %"]
        for cell, scores in own["cells"].items()
    ]
    return (
        f"**{WAVEFORMS[waveform]}**, {own['models']} models\n\n{table(['capture', *SHOWN.values(), 'suspect'], rows)}"
    )
