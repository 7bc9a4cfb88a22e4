"""What the Fisher information of each waveform puts within reach: every flaw beside every channel and every other flaw.

    make study-information ARGS="--out results/studies/information.json"

Of what a frame is known to send, as it is stored by default, the copies that a channel of the estimator's taps can make
are taken off each flaw's shape; what is left of its energy is `beyond`. With that, the information about all flaws
together at 20 dB, one antenna and a flat channel gives the error bar of each in one frame (standard deviation of the
real part, relative to the signal); `alone` is the same where no other flaw had to be told apart. A flaw of which less
than a thousandth lies beyond the channel is out of reach. Nothing is simulated and nothing is drawn but the bits of
frames that are rebuilt. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from pisa_capc.cli.output import print_table
from pisa_capc.core.provenance import machine, made
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.signal.measurement.estimator import SEEN
from pisa_capc.signal.measurement.flaws import FLAWS
from pisa_capc.signal.measurement.modulation import SHAPES
from pisa_capc.signal.measurement.rebuilt import typical
from pisa_capc.signal.waveforms import WAVEFORMS
from pisa_capc.signal.waveforms.delays import delayed_copies, orthonormal

OWN = ("wifi", "lora", "ieee802154", "ble", "adsb")
SNR_DB = 20.0


def information(name: str) -> list[dict[str, Any]]:
    """A row for each flaw of a waveform."""
    waveform = WAVEFORMS[name]
    sent = typical(waveform, waveform.stored_samples) if waveform.rebuilds else None
    x = waveform.preamble() if sent is None else sent
    before, after = waveform.taps
    samples = len(x) - before
    basis = orthonormal(delayed_copies(x, samples, before, after).T, 1e-7)
    shapes = {flaw: FLAWS[flaw].of(x) for flaw in FLAWS.parts()}
    if waveform.shifts_frequency:
        shapes |= {flaw: of(x) for flaw, of in SHAPES.items()}
    rows, beyond = [], []
    for flaw, shape in shapes.items():
        own = shape[:samples]
        left = own - basis @ (basis.conj().T @ own)
        share = float(np.linalg.norm(left) ** 2 / np.linalg.norm(own) ** 2)
        rows.append({"waveform": name, "samples": samples, "flaw": flaw, "beyond": share, "reach": share > SEEN})
        if share > SEEN:
            beyond.append(left)
    m = np.stack(beyond, axis=1) * 10 ** (SNR_DB / 20)
    joint = np.sqrt(np.diag(np.linalg.inv(m.conj().T @ m)).real / 2)
    alone = np.sqrt(0.5 / np.sum(np.abs(m) ** 2, axis=0))
    within = [row for row in rows if row["reach"]]
    for row, bar, by_itself in zip(within, joint.tolist(), alone.tolist(), strict=True):
        row |= {"bar": float(f"{bar:.3g}"), "alone": float(f"{by_itself:.3g}")}
    for row in rows:
        row["beyond"] = float(f"{row['beyond']:.3g}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file that keeps the last line")
    asked = parser.parse_args()
    rows = [row for name in OWN for row in information(name)]
    columns = ("waveform", "samples", "flaw", "beyond", "bar", "alone")
    print_table("Information", columns, [[str(row.get(name, "–")) for name in columns] for row in rows])
    record = {"rows": rows, "snr_db": SNR_DB, "machine": machine(), "made": made()}
    if asked.out is not None:
        write_text_atomic(asked.out, json.dumps(record) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
