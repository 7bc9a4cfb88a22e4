"""The sections of the results page on what receivers need: finding frames, and listening in real time."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.report import RESULTS, read

from pages.against_paper import markdown_table as table

HOUR = 1_800_000  # frames, at 500 a second
SHOWN_DB = (-3, 3, 10, 30)


def detect() -> str:
    """How fast and how surely frames are found; nothing before it was measured."""
    if not (RESULTS / "speed/detect-2core.json").exists():
        return ""
    record = read("speed/detect-2core.json")
    speed = [
        [row["what"], f"{row['on air']:.0%}", f"{row['M samples/s']:.0f}", _share(row["found of sent"])]
        for row in record["speed"]
    ]
    quick, half = (row["M samples/s"] for row in record["speed"][:2])
    found = [_found(row) for row in record["rows"] if row["SNR dB"] in SHOWN_DB]
    headings = ["antennas", "channel", "SNR dB", "found", "theory", "start ±1", "CFO error Hz", "bound Hz"]
    sure = next(r for r in record["rows"] if r["antennas"] == 4 and r["channel"] == "one path" and r["SNR dB"] == 3)
    return f"""## Detection: speed and certainty

Four antennas on two cores; millions of complex samples a second, all antennas together. Real time is 80. The minimum
was 80 and the target 160 at 10 % on the air, which {_reached(quick, 160)}, and 40 at 50 %, which {_reached(half, 40)}.
Headers read in a second: {record["headers"][0]["frames/s"]:,.0f} (target 500).

{table(["what", "on air", "M samples/s", "found of sent"], speed)}

Wi-Fi frames in noise. The target was 0.99 at 3 dB with four antennas, which {_reached(sure["found"], 0.99)}.
False alarms (target: less than one a minute): {"; ".join(map(_false, record["false_alarms"]))}.

{table(headings, found)}
{_lora()}{_bursts()}{_files()}
Command: `make bench-detect`, `python -m benchmarks.detect_lora`
"""


def _found(row: dict[str, Any]) -> list[str]:
    return [
        str(row["antennas"]),
        row["channel"],
        f"{row['SNR dB']:g}",
        f"{row['found']:.3f}",
        _share(row["theory"]),
        _share(row["start ±1"]),
        _number(row["CFO error Hz"]),
        _number(row["bound Hz"]),
    ]


def _false(row: dict[str, Any]) -> str:
    where = f"{row['in noise']} in {row['seconds']:g} s of noise"
    return f"{row['antennas']} antennas {where}, {row['with a carrier']} with a carrier, {row['with DC']} with DC"


def _lora() -> str:
    if not (RESULTS / "speed/detect-lora-2core.json").exists():
        return ""
    record = read("speed/detect-lora-2core.json")
    rows = [
        [name, *(f"{row[key]:.3f}" for key in ("found", "within_one_sample", "addresses_right")), str(row["false"])]
        for name, row in record["detection"].items()
    ]
    speed = [[name, f"{ratio:.1f}"] for name, ratio in record["times_real_time"].items()]
    return f"""
LoRa at 1 MS/s. SNR is within the bandwidth.

{table(["factor, antennas, SNR dB", "found", "start ±1", "addresses", "false"], rows)}

{table(["factor, antennas, duty cycle", "times real time, one core"], speed)}
"""


def _bursts() -> str:
    if not (RESULTS / "speed/burst-2core.json").exists():
        return ""
    record = read("speed/burst-2core.json")
    rows = [
        [
            f"{row['duty']:.0%}" + (f", {row['channels']} channels searched apart" if "channels" in row else ""),
            str(row["bursts"]),
            str(row["found"]),
            f"{row['samples/s'] / 1e6:.3g}" if "channels" in row else f"{row['samples/s'] / 1e6:.0f}",
        ]
        for row in record["rows"]
    ]
    slowest = min(row["samples/s"] for row in record["rows"] if "channels" not in row)
    return f"""
Bursts of any signal (`--waveform burst`) in {record["seconds"]:g} s of 16-bit samples of one antenna, read from a file,
5 to 30 dB over the noise; each was found within 16 samples of its ends. Millions of samples a second; the target of
{record["aimed"] / 1e6:.0f} {_reached(slowest, record["aimed"])}. Command: `make bench-burst`

{table(["on air", "bursts", "found", "M samples/s"], rows)}
"""


FILE_AIMS = {"pisa detect": 120, "pisa identify": 80}  # M samples/s


def _files() -> str:
    if not (RESULTS / "speed/files-2core.json").exists():
        return ""
    record = read("speed/files-2core.json")
    rows = [
        [
            f"`{row['command']}`",
            f"{row['M samples/s']:.0f}",
            str(FILE_AIMS[row["command"]]),
            _reached(row["M samples/s"], FILE_AIMS[row["command"]]),
            f"{row['times real time']:.2f}",
            f"{row['seconds']:.1f} ({row['least']:.1f} to {row['most']:.1f})",
            f"{row['cores']:.2f}",
        ]
        for row in record["rows"]
    ]
    seconds = record["samples"] / record["antennas"] / 20e6
    return f"""
Whole commands, from the start of Python to the last line written: {seconds:.1f} s of four antennas in 16-bit integers,
{record["rows"][0]["frames"]:,} frames, {record["on air"]:.0%} on the air, from the page cache{_of_what(record)}.
Headers are read, and `identify` decides with a closed form of ten devices. The median by the clock; cores are
processor time for a second. Command: `make bench-files`

{table(["command", "M samples/s", "aim", "", "times real time", "s (range)", "cores"], rows)}
"""


def _closed_form() -> str:
    """The listener with a closed form, run after run."""
    if not (RESULTS / "speed/listen-closed-form-2core.json").exists():
        return ""
    record = read("speed/listen-closed-form-2core.json")
    rows = []
    for pace, aim in ((1.0, 15.0), (2.0, 30.0)):
        runs = [row for row in record["rows"] if row["times real time"] == pace]
        delays = sorted(row["p99 ms"] for row in runs)
        middle = median(delays)
        rows.append(
            [
                f"{500 * pace:.0f}",
                str(len(runs)),
                f"{sum(row['missed'] for row in runs):,}",
                f"{median(row['p50 ms'] for row in runs):.1f}",
                f"{middle:.1f} ({delays[0]:.1f} to {delays[-1]:.1f})",
                f"{aim:g}",
                _reached(-middle, -aim),
                f"{median(row['cores deciding'] for row in runs):.2f}",
                f"{median(row['cores finding'] for row in runs):.2f}",
            ]
        )
    headings = ["frames/s", "runs", "samples missed", "median, ms", "99 %, ms (range)", "aim", ""]
    headings += ["cores that receive and decide", "that find frames"]
    return f"""With a closed form in the network's place{_of_what(record)}; the median of runs of
{record["rows"][0]["seconds"]:g} s{f"; {taken}" if (taken := record.get("taken")) else ""}. Command:
`make bench-listen ARGS="--method closed-form --runs 5 --every-pace --paces 1 2 --seconds 10 --kills 0 --frames 0"`

{table(headings, rows)}

"""


def listen() -> str:
    """Whether a listener keeps up; nothing before it was measured."""
    if not (RESULTS / "speed/listen-2core.json").exists():
        return ""
    record = read("speed/listen-2core.json")
    row = record["rows"][0]
    rows = [
        ["samples missed", f"{row['missed']:,}", "0", _reached(-row["missed"], 0)],
        ["median delay, ms", f"{row['p50 ms']:.1f}", "20", _reached(-row["p50 ms"], -20)],
        ["delay at 99 %, ms", f"{row['p99 ms']:.1f}", "100", _reached(-row["p99 ms"], -100)],
    ]
    return f"""## Listening in real time

Four antennas at 20 MS/s through ZMQ, from another process on the same two cores{_of_what(record)},
for {row["seconds"]:g} s: {row["frames/s"]:.0f} frames a second, a tenth of the time on the air.
{row["decided of sent"]:.1%} of the frames were decided. Delay: from the last sample of a frame to its decision.

{table(["what", "measured", "aim", ""], rows)}

At this pace and others; twice that of a radio is for this machine what a radio is for one half as fast. Cores are
processor time for a second:

{_paces(record["rows"])}

{_closed_form()}{_others(record.get("others"))}
{_calibrating(record.get("calibrating"))}
{_memory(record.get("memory"))}{_kills(record.get("kills"))}
Command: `make bench-listen`{f"; {taken}" if (taken := record.get("taken")) else ""}
"""


def _of_what(record: dict[str, Any]) -> str:
    """The processor, where a record says it."""
    named = record["machine"].get("processor")
    return "" if named is None else f" ({named})"


PACE_COLUMNS = {
    "what": ("what", "{}"),
    "by": ("network by", "{}"),
    "times real time": ("pace of the radio", "{:g}"),
    "missed": ("samples missed", "{:,}"),
    "p50 ms": ("median, ms", "{:.1f}"),
    "p99 ms": ("99 %, ms", "{:.1f}"),
    "cores": ("cores of the listener", "{:.2f}"),
    "cores deciding": ("cores that receive and decide", "{:.2f}"),
    "cores finding": ("that find frames", "{:.2f}"),
    "cores of the publisher": ("of the publisher", "{:.2f}"),
}


def _paces(rows: list[dict[str, Any]]) -> str:
    """What the listener does at each pace, and what the processes cost; as far as a record says it."""
    shown = [name for name in PACE_COLUMNS if name in rows[0]]
    cells = [[PACE_COLUMNS[name][1].format(row[name]) for name in shown] for row in rows]
    return table([PACE_COLUMNS[name][0] for name in shown], cells)


def _others(rows: list[dict[str, Any]] | None) -> str:
    if rows is None:
        return ""
    return f"""What else was measured; the version before shows what the machine does for it, and what the code does:

{_paces(rows)}
"""


def _calibrating(rows: list[dict[str, Any]] | None) -> str:
    if rows is None:
        return ""
    cells = [[row["by"], row["learnt"], f"{row['ms a frame']:.2f}", f"{row['longest ms']:.1f}"] for row in rows]
    return f"""What calibrates, frame by frame, in processor time; what it learns in the background takes effect
a fixed number of frames later, whatever the speed:

{table(["calibration", "learnt", "ms a frame", "longest, ms"], cells)}
"""


def _memory(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"""Memory over {row["frames"]:,} frames, {row["frames"] / HOUR:.0%} of an hour's, replayed as fast as they
are decided: {row["MiB at a tenth"]:.0f} MiB after a tenth, {row["MiB at the end"]:.0f} at the end,
{row["most MiB"]:.0f} at most.
"""


def _kills(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    back = "its state was back each time" if row["state back"] else "its state was NOT back"
    return f"""Killed (SIGKILL) at {row["kills"]} random moments, {back}: {row["numbers twice"]} numbers and
{row["frames twice"]} frames were decided twice, {row["frames unsaid"]} of {row["decisions"] + row["frames unsaid"]:,}
frames left unsaid.
"""


def _reached(value: float, aim: float) -> str:
    return "is reached" if value >= aim else "is missed"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
