#!/usr/bin/env python3
"""A GNU Radio flow graph that plays samples through a ZMQ PUB sink, for `pisa listen` to hear.

    python3 play.py roof.sigmf-meta --repeat
    python3 play.py roof.cf32 --sample-rate 20e6 --antennas 4 --address tcp://127.0.0.1:5555

Runs with Debian's `gnuradio`; needs nothing of pisa. With a radio, put its source in the place of file and throttle:
all that matters is the sink. Samples of all antennas are one vector, and tags are passed on, so that whoever listens
knows what it missed.
"""

import argparse
import json
import re
from pathlib import Path

from gnuradio import blocks, gr, zeromq


class Play(gr.top_block):
    """file → throttle → PUB sink; an item is one sample of all antennas."""

    def __init__(self, path, item_bytes, antennas, sample_rate_hz, address, tags, repeat):
        super().__init__("play")
        size = item_bytes * antennas
        file = blocks.file_source(size, str(path), repeat)
        throttle = blocks.throttle(size, sample_rate_hz)
        sink = zeromq.pub_sink(item_bytes, antennas, address, 100, tags)
        self.connect(file, throttle, sink)


def described(path, options):
    """Data file, bytes of a sample, antennas and rate: of SigMF as its metadata says, else as the options do."""
    if path.suffix not in (".sigmf-meta", ".sigmf-data"):
        return path, options.format, options.antennas, options.sample_rate
    said = json.loads(path.with_suffix(".sigmf-meta").read_text(encoding="utf-8"))["global"]
    return (
        path.with_suffix(".sigmf-data"),
        said["core:datatype"],
        int(said.get("core:num_channels", 1)),
        float(said["core:sample_rate"]),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--format", default="cf32", help="of plain samples: cf32, cs16, cs8 …")
    parser.add_argument("--sample-rate", type=float, default=20e6)
    parser.add_argument("--antennas", type=int, default=1, help="of plain samples, interleaved")
    parser.add_argument("--address", default="tcp://127.0.0.1:5555")
    parser.add_argument("--no-tags", action="store_true", help="send items alone")
    parser.add_argument("--repeat", action="store_true")
    options = parser.parse_args()
    path, kind, antennas, rate = described(options.path, options)
    item_bytes = 2 * int(re.search(r"\d+", kind)[0]) // 8
    print(f"{options.address}: {antennas} antennas, {kind}, {rate / 1e6:g} MS/s", flush=True)
    graph = Play(path, item_bytes, antennas, rate, options.address, not options.no_tags, options.repeat)
    graph.run()


if __name__ == "__main__":
    main()
