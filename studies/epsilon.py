"""Epsilon: what the entropic smoothing ε of U-CAPC, which the paper leaves open, changes on the demo's set.

    make demo && make study-epsilon

One model, the demo's PISA; Macro-F1 on E1 by ε, the other settings as published. The last line is one JSON object with
the same figures; the committed record is results/studies/epsilon.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from benchmarks.report import begin, show

from pisa_capc import UCAPC, load
from pisa_capc.core.errors import DataError
from pisa_capc.evidence.evaluation.inference import infer
from pisa_capc.evidence.evaluation.runs import split_for
from pisa_capc.model.inference import load_model

TARGET = ("E1",)
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, default=Path("demo"), help="the folder that `make demo` wrote")
    folder: Path = parser.parse_args().demo
    if not (folder / "pisa").is_dir():
        raise DataError(f"{folder}: holds no model; expected what `make demo` writes. Run `make demo` first.")
    torch.set_num_threads(1)
    trained, frames = load_model(folder / "pisa"), load(folder / "wifi")
    part = split_for(trained, replace(trained.recipe, target=TARGET), frames)
    [(_, found)] = infer([trained], [part], {f"{epsilon:g}": UCAPC(epsilon=epsilon) for epsilon in EPSILONS})
    rows = [{"epsilon": stage, "macro_f1": round(scores.macro_f1, 4)} for stage, scores in found.scores().items()]
    show("Macro-F1 on E1 by ε of U-CAPC; direct: without it", rows, {"command": "make demo study-epsilon"})


if __name__ == "__main__":
    begin(main)
