"""Enrolments by a network's embeddings, among whose frames a part is another device's: how often they are refused.

    make study-mixed ARGS="--out results/studies/mixed.json"

Models of seven of ten devices, as of `studies.enrolment` with --coarse --scale 0.1 --epochs 6 --batch 32. One of the
others is enrolled from frames of one recording, in a place of the source and in one that the model never saw; the
foreign frames are of a device of the model or of another that is not, in the same recording. What decides has its limit
from the model's source alone (`decide.enrolment.mixed`).
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.report import machine

from pisa_capc.core.provenance import made
from pisa_capc.core.randomness import generator
from pisa_capc.data.frames import load
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.decide.enrolment.mixed import ONE, second_sender
from pisa_capc.model.inference import embed
from studies.enrolment import GROUPS, SOURCE, TARGET, Study, dataset

SHARES, FRAMES = (0.0, 0.1, 0.2, 0.3, 0.5), (10, 20, 50)
FOLDS = (((SOURCE[0],), SOURCE[1]), ((SOURCE[1],), SOURCE[0]), (SOURCE, TARGET))
AS_THE_ENROLMENT = {
    **{"waveform": "wifi", "coarse": True, "scale": 0.1, "method": "pisa-equalised", "encoder": "cnn", "epochs": 6},
    **{"batch": 32, "seeds": "2026", "device": "cpu"},
}


def study(options: argparse.Namespace) -> dict[str, Any]:
    """By where, whose the foreign frames are, how many frames and their share: the number tried, the part refused, the
    part of the foreign frames that is named."""
    frames = load(dataset(options, options.work))
    own = Study(frames, options, options.work)
    found = defaultdict[str, list[tuple[bool, float]]](list)
    for (source, target), group in product(FOLDS, GROUPS):
        rest = [device for device in own.everyone if device not in group]
        [model] = own.trained(source, target, rest)
        z = embed(model, frames.unlabelled(), "cpu").embedding.astype(np.float64)
        for new, (kind, foreign) in product(group, (("an enrolled device", rest), ("an unknown one", group))):
            for key in np.unique(frames.capture_key[frames.device == new]):
                place = "source" if key.split("/")[0] in source else "elsewhere"
                random = generator(2026, "mixed", "+".join(source), str(new), key, kind)
                other = random.choice([device for device in foreign if device != new])
                mine, others = (
                    random.permutation(np.flatnonzero((frames.capture_key == key) & (frames.device == who)))
                    for who in (new, other)
                )
                for count, share in product(FRAMES, SHARES):
                    few = round(count * share)
                    if len(others) >= few and len(mine) >= count - few:
                        rows = np.append(others[:few], mine[: count - few])
                        named = second_sender(model.statistics, z[rows], np.zeros(count, dtype=np.int64))
                        right = float(named[:few].mean()) if few else 0.0
                        found[f"{place}, {kind}, {count}, {share:g}"].append((bool(named.any()), right))
    return {
        name: {"tried": len(each), "refused": round(refused, 4), "named": round(right, 4)}
        for name, each in found.items()
        for refused, right in [np.mean(each, axis=0).tolist()]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("work/mixed"), help="folder to go on in")
    parser.add_argument("--out", type=Path, help="file for the record")
    options = parser.parse_args(namespace=argparse.Namespace(**AS_THE_ENROLMENT))
    torch.set_num_threads(1)
    record = {
        "benchmark": "enrolments of two senders",
        "machine": machine(),
        "made": made(),
        "settings": AS_THE_ENROLMENT,
        "refused of one sender, at most": round(1 - ONE, 4),
        "found": study(options),
    }
    if options.out is not None:
        write_text_atomic(options.out, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
