"""The section on Plutos and sensors of the page on real radios, from the record of `studies.radios`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from benchmarks.report import RESULTS, read

from pages.against_paper import markdown_table as table
from pisa_capc.evidence.figures.style import COLOURS, PAGE_INCHES, canvas

RECORD, PICTURE = "studies/radios.json", "real-radios.png"
PLUTO_ROWS = {
    "image": "image alone",
    "leakage": "leakage alone",
    "compression": "compression alone",
    "all": "**all three**",
}
SENSOR_ROWS = {"all": "**all quantities**", "without offset": "without the offset", "offset alone": "offset alone"}


@cache
def record() -> dict[str, Any]:
    found: dict[str, Any] = read(RECORD)
    return found


def section() -> str:
    if not (RESULTS / RECORD).is_file():
        return ""
    plutos, sensors = (record()["sets"][name] for name in ("pluto", "sl109h"))
    late, cold = (sensors["results"][name] for name in ("early to late", "warm to cold"))
    count = len(plutos["captures"])
    parts = [_row(plutos["leave one capture out"], *own) for own in PLUTO_ROWS.items()]
    return f"""## Radios whose I/Q is known

{_what_they_show()}

![Image of three Plutos; carrier offset of five sensors over time](../{PICTURE})

**Three ADALM-Plutos** send a 5G uplink waveform that is known from a file, and a fourth receives: {count} captures of
20,000 samples, {len(plutos["captures"][0]["image"])} parts of each measured by `pisa measure --reference`. Each capture
in turn is left out.

{table(["flaws", "parts that are right", "Macro-F1"], parts)}

Image and leakage hold those of the receiver, which are the same for all three. The carrier offset is not used: it moves
by up to {_spread():.0f} kHz between captures of one radio. Parts of one capture are alike, so the intervals are too
narrow. One place and three devices: this shows that the fingerprint is there, not how far it carries.

**Five sensors of one model** (Oregon Scientific SL109H, 433.92 MHz, on-off keyed) were recorded by one RTL-SDR over
{max(row["hours"] for row in sensors["recordings"]):.0f} hours, and some of them went into a freezer. `pisa import iq`
reads recordings and ids; pulses are measured [without a known waveform](../measure.md).

{_sensor_table(late, cold)}

{fill(_temperature(), 120, break_long_words=False, break_on_hyphens=False)}

Intervals: 95 %, from a bootstrap over recordings. A recording that cannot be measured counts as wrong. The offset is
what tells these sensors, although it moves with temperature; without it little is left that lasts, and that depends on
details of the measurement, such as where a pulse is taken to begin. Nine cold recordings say little.

{_wifi()}

```
git clone https://github.com/IshaChid76/RF-Fingerprinting-of-5G-Cellular-Devices
git clone https://github.com/JustinHolzer/RFfingerprint
git clone https://github.com/merbanan/rtl_433_tests
git clone https://github.com/jhshi/openofdm
make study-radios ARGS="--data FOLDER --out results/studies/radios.json"
```

`studies/radios.py` says which files of them FOLDER holds. Record: `results/{RECORD}`.
"""


def _wifi() -> str:
    """Two recordings: what stays of a radio's flaws within a recording, and what between them."""
    pairs = record()["sets"]["openofdm"]["pairs"]
    rows = [
        [
            name,
            " and ".join(map(str, own["frames"])),
            *(f"{own[flaw]:.4f} ({own[f'{flaw}_errors']:.1f})" for flaw in ("image", "leakage")),
            f"{own['cfo_hz']:,.0f} ({own['cfo_errors']:.1f})",
        ]
        for name, own in pairs.items()
    ]
    heads = ["groups of frames", "frames", "image apart", "leakage apart", "offset apart (Hz)"]
    both = pairs["cable and air"]
    return f"""**Two Wi-Fi recordings** of openofdm (USRP N210, 20 MS/s, one antenna): an access point by cable, and the
same address over the air among other senders. Preambles alone are measured. Distances of means; in brackets in
standard errors of these means:

{table(heads, rows)}

Within a recording data frames and answers of one radio agree, and other senders differ by their offset. **Between the
recordings the same address has another image and leakage**, {both["image_errors"]:.0f} and
{both["leakage_errors"]:.0f} standard errors apart: both hold those of the receiving chain and of what lies between,
which these recordings do not tell apart. Its offset stays within {both["cfo_hz"]:,.0f} Hz. So image and leakage learnt
by cable do not identify this radio over the air."""


def _temperature() -> str:
    """How much of a sensor's offset is its temperature: a straight line for each sensor."""
    sensors = record()["sets"]["sl109h"]
    offset = sensors["quantities"].index("offset")
    by_device: dict[str, list[tuple[float, float]]] = {}
    for row in sensors["recordings"]:
        value = row["value"][offset]
        if np.isfinite(value):
            by_device.setdefault(row["device"], []).append((row["temperature_c"], value))
    lines, left, all_of_it, means = [], 0.0, 0.0, []
    for points in map(np.array, by_device.values()):
        celsius, hz = points.T
        slope, start = np.polyfit(celsius, hz, 1)
        left += float(np.sum((hz - start - slope * celsius) ** 2))
        all_of_it += float(np.sum((hz - hz.mean()) ** 2))
        means.append(float(hz.mean()))
        if np.ptp(celsius) > 10:  # those that were in the freezer
            lines.append(float(slope))
    gaps = np.diff(np.sort(means))
    slopes = ", ".join(f"{slope:.0f}" for slope in lines)
    return (
        f"A straight line in temperature explains {1 - left / all_of_it:.0%} of how the offset of a sensor varies "
        f"({slopes} Hz per °C for those that were in the freezer); neighbouring sensors are {min(gaps) / 1e3:.1f} to "
        f"{max(gaps) / 1e3:.1f} kHz apart."
    )


def _what_they_show() -> str:
    plutos, sensors = (record()["sets"][name] for name in ("pluto", "sl109h"))
    own, late = plutos["leave one capture out"]["all"], sensors["results"]["early to late"]
    return (
        f"**Three Plutos are told apart in {own['right']} of {own['of']} parts of captures that were left out; five "
        f"sensors of one model in {late['all']['right']} of {late['all']['of']} later recordings (Macro-F1 "
        f"{late['all']['macro_f1']:.3f}, {_interval(late['all'])}), without their carrier offset in "
        f"{late['without offset']['right']} ({late['without offset']['macro_f1']:.3f}).** Nothing is trained in epochs."
    )


def _interval(own: dict[str, Any]) -> str:
    low, high = own["interval"]
    return f"{low:.3f}–{high:.3f}"


def _row(scores: dict[str, Any], key: str, title: str) -> list[str]:
    own = scores[key]
    return [title, f"{own['right']} of {own['of']}", f"{own['macro_f1']:.3f} ({_interval(own)})"]


def _sensor_table(late: dict[str, Any], cold: dict[str, Any]) -> str:
    rows = [[*_row(late, *own), *_row(cold, *own)[1:]] for own in SENSOR_ROWS.items()]
    heads = ["measured", "earlier half → later", "Macro-F1", f"warm → below {record()['cold_c']:.0f} °C", "Macro-F1"]
    return table(heads, rows)


def _spread() -> float:
    """Largest span of the carrier offset over the captures of one Pluto, in kHz."""
    captures = record()["sets"]["pluto"]["captures"]
    spans = [
        np.ptp([row["cfo_hz"] for row in captures if row["device"] == device])
        for device in {row["device"] for row in captures}
    ]
    return float(max(spans)) / 1e3


def picture(folder: Path) -> None:
    """The image of every part of every Pluto, and the offset of the sensors over time."""
    if not (RESULTS / RECORD).is_file():
        return
    plutos, sensors = (record()["sets"][name] for name in ("pluto", "sl109h"))
    with canvas(folder / PICTURE, PAGE_INCHES, 3.0) as figure:
        left, right = figure.subplots(1, 2)
        for k, device in enumerate(sorted({row["device"] for row in plutos["captures"]})):
            values = np.array([v for row in plutos["captures"] if row["device"] == device for v in row["image"]])
            left.scatter(*(1e3 * values.T), s=9, color=COLOURS[k], label=f"Pluto {device}")
        left.axhline(0, color="0.8", linewidth=0.5, zorder=0)
        left.axvline(0, color="0.8", linewidth=0.5, zorder=0)
        left.set_aspect("equal", adjustable="datalim")
        left.set_xlabel("real part / 0.001")
        left.set_ylabel("imaginary part / 0.001")
        left.set_title("IQ image, three Plutos")
        left.legend(fontsize=6)
        for k, device in enumerate(sorted({row["device"] for row in sensors["recordings"]})):
            own = [row for row in sensors["recordings"] if row["device"] == device]
            offset = sensors["quantities"].index("offset")
            hours, khz = [row["hours"] for row in own], [row["value"][offset] / 1e3 for row in own]
            right.scatter(hours, khz, s=9, color=COLOURS[k], label=device.rpartition("-")[2])
            cold = [n for n, row in enumerate(own) if row["temperature_c"] < record()["cold_c"]]
            right.scatter([hours[n] for n in cold], [khz[n] for n in cold], s=28, facecolors="none", edgecolors="0.3")
        right.set_xlabel("hours")
        right.set_ylabel("carrier offset (kHz)")
        right.set_title("Five sensors; circles: in the cold")
        right.legend(fontsize=6, title="id", title_fontsize=6)
