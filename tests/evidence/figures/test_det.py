"""DET curves, by what is drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtri

from pisa_capc.data.trials import verification_score
from pisa_capc.evidence.figures.det import det_axes, draw_det, plot_det


def test_gaussian_scores_give_a_straight_line_of_slope_minus_one() -> None:
    rng = np.random.default_rng(1)
    found = verification_score(rng.normal(1, 1, 20_000), rng.normal(-1, 1, 20_000))
    axes = Figure().subplots()
    det_axes(axes)
    draw_det(axes, (found.miss, found.false_accept), "", 0)
    x, y = axes.lines[-1].get_data()
    inside = (np.abs(x) < 2) & (np.abs(y) < 2)
    slope, at_zero = np.polyfit(x[inside], y[inside], 1)
    np.testing.assert_allclose([slope, at_zero], [-1, -2], atol=0.1)  # d' = 2


def test_errors_that_are_never_made_lie_on_the_edge() -> None:
    found = verification_score([1.0, 2.0], [-1.0, -2.0])
    axes = Figure().subplots()
    det_axes(axes)
    draw_det(axes, (found.miss, found.false_accept), "", 0)
    x, y = axes.lines[-1].get_data()
    assert np.minimum(x, y).max() == ndtri(0.0005)


def test_a_picture_names_the_equal_error_rate_of_each_stage(tmp_path: Path) -> None:
    curves = {"direct": verification_score([1.0, -1.0], [0.0, -2.0]), "U-CAPC": verification_score([1.0], [0.0])}
    picture = plot_det(tmp_path / "det.svg", curves)
    text = picture.path.read_text()
    assert "direct (EER 50.0 %)" in text
    assert "U-CAPC (EER 0.0 %)" in text
