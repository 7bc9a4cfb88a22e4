"""The part of the page on reliability about weeks, from the record of `make soak`."""

from __future__ import annotations

from typing import Any

from benchmarks.report import read

from pages.against_paper import markdown_table as table
from pages.threats import wrapped

RECORD = "speed/soak.json"
BOUND_MIB = 800


def weeks() -> str:
    """One row for each thing that befalls a listener in weeks."""
    parts: dict[str, dict[str, Any]] = read(RECORD)["parts"]
    memory, clocks, disk, source, killed = (parts[name] for name in ("memory", "clocks", "disk", "source", "kills"))
    rows = [
        [
            f"{memory['senders']:,} made-up senders, {memory['minutes']:g} minutes of 500 frames/s at 20 MS/s, "
            "in real time",
            f"{memory['MiB at a sixth']:.0f} MiB after a sixth, {memory['MiB at the end']:.0f} MiB at the end "
            f"({memory['change']:+.1%}), {memory['most MiB']:.0f} MiB at most; {memory['ring MiB']} MiB of it is the "
            "ring",
        ],
        [
            f"the clock jumps an hour either way, {clocks['jumps']} times",
            f"{clocks['decided otherwise']} of {clocks['frames']} frames decided otherwise, "
            f"{clocks['alarms otherwise']} of {clocks['alarms']} alarms other than without",
        ],
        [
            "the disk is full, and has room again",
            f"{disk['decided']} of {disk['frames']} frames decided, {disk['alarms raised']} alarms raised, "
            f"{len(disk['named as full'])} of 3 places named, written again afterwards: "
            f"{'yes' if disk['written again'] else 'no'}",
        ],
        [
            f"a source comes and goes {source['connections']:,} times",
            f"{source['decided of sent']:.2%} of its frames decided, {source['descriptors left open']} descriptors "
            "left open",
        ],
        [
            f"`kill -9` at {killed['kills']} random moments",
            f"{killed['numbers twice']} numbers and {killed['frames twice']} frames twice, {killed['frames unsaid']} "
            f"of {killed['decisions'] + killed['frames unsaid']} frames not reported, {killed['alarms begun twice']} "
            f"of {killed['alarms']} alarms begun twice",
        ],
    ]
    share = memory["frames decided"] / memory["frames sent"]
    text = f"""Memory is that of the listener and its finder; their ring and libraries count once. At a sixth and at
      the end it is what stays between two batches of samples, for these are as large as the machine is busy; the most
      has them in it, and the bound is {BOUND_MIB} MiB. The machine was shared and overloaded: {share:.0%} of the
      {memory["frames sent"]:,} frames were decided, {memory["frames decided"] / 60 / memory["minutes"]:.0f} a second,
      in {memory["cores"]:.2f} cores, and the rest found no room. A frame that is being reported at the moment of a kill
      may stay unreported, at most one a kill. Record `results/{RECORD}`."""
    return table(["what happens", "outcome"], rows) + "\n\n" + wrapped(text)
