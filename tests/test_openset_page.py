"""The figures on the page about unknown devices are those of the committed record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from pisa_capc.calibration import UCAPC, OpenSet

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/openset.md").read_text(encoding="utf-8")
RECORD = json.loads((ROOT / "results/studies/openset-2core.json").read_text(encoding="utf-8"))


def test_the_page_quotes_the_record() -> None:
    for name, found in RECORD["target"].items():
        source = [fold["scores"][name]["auroc"] for fold in RECORD["folds"]]
        areas = " | ".join(f"{found[metric]:.3f}" for metric in ("auroc", "fpr95", "oscr"))
        shares = " | ".join(f"{100 * found[f'{kind} rejected']:.1f} %" for kind in ("known", "unknown"))
        assert f"| {name} | {np.mean(source):.3f} ({min(source):.3f}) | {areas} | {shares} |" in PAGE
    for plain, after in zip(RECORD["mixed"][::2], RECORD["mixed"][1::2], strict=True):
        rejected = "–" if after["unknown rejected"] is None else f"{100 * after['unknown rejected']:.1f} %"
        right = f"{plain['known right']:.3f} | {after['known right']:.3f} ({after['accepted known right']:.3f})"
        assert f"| {100 * plain['unknown share']:.0f} % | {right} | {rejected} |" in PAGE


def test_the_default_score_is_the_one_chosen_on_the_source() -> None:
    assert OpenSet(UCAPC()).score == RECORD["chosen"]
    assert RECORD["chosen"] == max(RECORD["selection"], key=lambda name: RECORD["selection"][name]["auroc"])


def test_the_first_two_folds_choose_otherwise() -> None:
    first = [
        f["scores"] for f in RECORD["folds"] if (f["environment"], f["unknown"][0]) in (("E2", "D01"), ("E3", "D03"))
    ]
    knn, mahalanobis = (np.mean([scores[name]["auroc"] for scores in first]) for name in ("knn", "mahalanobis"))
    assert len(first) == 2
    assert mahalanobis > knn
