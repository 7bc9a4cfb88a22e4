"""Figures and the report that records are enough for."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from pisa_capc.core.errors import ConfigError
from pisa_capc.data.scores import Scores, pool, score
from pisa_capc.evidence.benchmark.protocols import Protocol
from pisa_capc.evidence.benchmark.results import load_results
from pisa_capc.evidence.figures.protocol import make_figures, source_against_target
from pisa_capc.evidence.figures.style import score_axis, score_marks, stage_colour
from pisa_capc.evidence.reports import report_of_protocol
from tests.evidence.benchmark.tools import QUICK, all_runs, made_up, quick, with_stages
from tests.evidence.figures.tools import SVG, is_pdf_with_text, texts

DEVICES = ("D1", "D2", "D3")
LABELS = np.tile(np.arange(3), 20)
CAPTURES = np.repeat(["E1/L1", "E1/M"], 30)


def scores(seed: int, margin: float) -> Scores:
    logits = np.random.default_rng(seed).normal(size=(60, 3))
    logits[np.arange(60), LABELS] += margin
    return score(logits, LABELS, DEVICES, CAPTURES)


@pytest.fixture
def protocol(tmp_path: Path) -> Protocol:
    """Two seeds of single and pisa with whole scores; pisa is better, and better still after both calibrations."""
    protocol = quick(tmp_path, changes=QUICK)
    for run in all_runs(protocol):
        stages = {"direct": scores(run.seed, 0.5 if run.method == "single" else 1.5)}
        stages |= {stage: scores(run.seed + 9, 2.5) for stage in run.calibration}
        record = made_up(run, {stage: s.macro_f1 for stage, s in stages.items()}, 0.8)
        replace(
            record, stages={stage: s.to_json() for stage, s in stages.items()}, machine={"torch": "9.9", "gpu": "none"}
        ).write(tmp_path / "records")
    return protocol


def test_records_give_bars_scatter_confusions_and_captures(protocol: Protocol, tmp_path: Path) -> None:
    pictures = make_figures(protocol, load_results(protocol, tmp_path / "records"), tmp_path / "out", "svg")
    found = {p.path.stem: texts(p.path) for p in pictures}
    assert list(found) == ["three-stages-1", "source-target-1", "confusion-1-cnn", "captures-1-cnn"]
    for seed_margin in ((0, 0.5), (0, 1.5), (9, 2.5)):
        value = mean(scores(seed + seed_margin[0], seed_margin[1]).macro_f1 for seed in (1, 2))
        assert f"{value:.3f}" in found["three-stages-1"]
    assert {"Single", "PISA", "PISA-CAPC", "target = source"} <= set(found["source-target-1"])
    together = pool([scores(seed, 0.5) for seed in (1, 2)])
    shares = 100 * together.confusion / together.confusion.sum(axis=1, keepdims=True)
    cells = [text for text in found["confusion-1-cnn"] if text.isdigit()]
    assert f"{shares[0, 0]:.0f}" in cells
    assert sum("accuracy" in text for text in found["confusion-1-cnn"]) == 4
    assert found["confusion-1-cnn"].count("predicted device") == 2  # below the lower two
    assert {"E1/L1", "E1/M", "Single", "PISA-CAPC", "PISA-CAPC (safe)"} <= set(found["captures-1-cnn"])
    assert all(picture.caption.endswith(".") for picture in pictures)


def test_bars_name_chance_and_end_at_one(protocol: Protocol, tmp_path: Path) -> None:
    pictures = make_figures(protocol, load_results(protocol, tmp_path / "records"), tmp_path / "out", "svg")
    found = texts(pictures[0].path)
    assert "chance (0.33)" in found
    assert [text for text in found if text in ("1.0", "1.2")] == ["1.0"]


def test_a_stage_has_one_colour_in_all_figures() -> None:
    assert len({stage_colour(name) for name in ("Single", "PISA", "PISA-CAPC", "PISA-CAPC (safe)")}) == 4
    assert stage_colour("direct") == stage_colour("PISA")
    assert stage_colour("safe") == stage_colour("PISA-CAPC (safe)")


def test_the_marker_of_a_perfect_score_is_whole() -> None:
    axes = Figure().subplots()
    score_marks(axes, [1.0], [0.0], [0.1], color="black", marker="o")
    score_axis(axes)
    assert axes.get_xlim() == (0, 1)
    assert not axes.collections[-1].get_clip_on()


def test_drawing_shows_how_far_it_is(protocol: Protocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr("pisa_capc.core.progress.console", terminal)
    make_figures(protocol, load_results(protocol, tmp_path / "records"), tmp_path / "out", "svg")
    shown = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "4/?" in shown
    assert "captures-1-cnn.svg" in shown


def test_a_comparison_shows_its_methods_best_on_top(tmp_path: Path) -> None:
    protocol = quick(tmp_path, "external-baselines")
    for method, f1 in (("pisa", 0.4), ("sigmix", 0.6), ("gad", 0.3)):
        for run in all_runs(protocol, method=method):
            stages = {"direct": f1, **dict.fromkeys(run.calibration, f1), "paper": f1 + 0.1}
            made_up(run, stages).write(tmp_path / "records")
    [picture] = make_figures(protocol, load_results(protocol, tmp_path / "records"), tmp_path / "out", "svg")
    found = texts(picture.path)
    assert [name for name in found if name in ("PISA", "SigMix", "GAD", "Single")] == ["GAD", "PISA", "SigMix"]
    assert {"direct", "U-CAPC", "safe"} <= set(found)


def test_other_formats(protocol: Protocol, tmp_path: Path) -> None:
    results = load_results(protocol, tmp_path / "records")
    assert all(is_pdf_with_text(p.path) for p in make_figures(protocol, results, tmp_path / "out", "pdf"))
    with pytest.raises(ConfigError, match=r"unknown format 'sgv'\. Did you mean 'svg'"):
        make_figures(protocol, results, tmp_path / "out", "sgv")


def test_records_without_confusions_still_give_the_rest(tmp_path: Path) -> None:
    protocol = quick(tmp_path, "component-ablation")
    for run in all_runs(protocol):
        made_up(run, {"direct": 0.4}, 0.7).write(tmp_path / "records")
    [picture] = make_figures(protocol, load_results(protocol, tmp_path / "records"), tmp_path / "out", "svg")
    assert {"PISA", "PISA topology-only"} <= set(texts(picture.path))


def test_stages_are_called_as_in_the_tables(tmp_path: Path) -> None:
    """Also those that the paper's three stages do not have: Single after U-CAPC."""
    protocol = with_stages(quick(tmp_path), single=("paper",))
    for run in all_runs(protocol, method="single"):
        stages = {stage: scores(run.seed, 1.0).to_json() for stage in ("direct", "paper")}
        replace(made_up(run, {"direct": 0.5}), stages=stages).write(tmp_path / "records")
    pictures = make_figures(protocol, load_results(protocol, tmp_path / "records"), tmp_path / "out", "svg")
    for picture in pictures[1:]:
        named = [text.partition(",")[0] for text in texts(picture.path) if text.lower().startswith("single")]
        assert [name.split(" (")[0] for name in named] == ["Single", "Single + U-CAPC"]


def test_the_lines_of_captures_are_explained(protocol: Protocol, tmp_path: Path) -> None:
    pictures = make_figures(protocol, load_results(protocol, tmp_path / "records"), tmp_path / "out", "svg")
    captures = pictures[-1]
    assert "lines their sample standard deviation" in captures.caption
    assert "Macro-F1, mean ± standard deviation" in texts(captures.path)


def test_the_name_of_the_diagonal_stands_in_the_legend_where_no_point_is(protocol: Protocol, tmp_path: Path) -> None:
    results = load_results(protocol, tmp_path / "records")
    path = source_against_target(results, results.places()[0], tmp_path / "scatter.svg").path
    [legend] = [e for e in ElementTree.parse(path).iter() if e.attrib.get("id") == "legend_1"]
    assert "target = source" in ["".join(e.itertext()).strip() for e in legend.iter(f"{SVG}text")]


def test_scores_are_read_as_they_were_written() -> None:
    before = scores(1, 1.0)
    assert Scores.from_json(before.to_json()).to_json() == before.to_json()


def test_the_report_of_a_protocol_has_tables_pictures_and_provenance(protocol: Protocol, tmp_path: Path) -> None:
    page = report_of_protocol(protocol, load_results(protocol, tmp_path / "records")).html()
    assert "4 recorded runs" in page
    assert "the best mean Macro-F1 is" in page.split("<p")[1]
    assert "chance is 0.333." in page.split("<p")[1]
    assert page.count('src="data:image/svg+xml;base64,') == 4
    value = mean(scores(seed + 9, 2.5).per_capture["E1/M"].macro_f1 for seed in (1, 2))
    assert f"<td>{value:.4f} ± " in page
    for text in (
        "three stages",
        "0123456789abcdef",
        "<td>learning_rate</td><td>0.001</td>",
        "<td>9.9</td>",
        "split seed",
    ):
        assert text in page


def test_settings_are_shown_as_tables_and_not_as_python_writes_them(protocol: Protocol, tmp_path: Path) -> None:
    page = report_of_protocol(protocol, load_results(protocol, tmp_path / "records")).html()
    assert "<tr><td>method</td><td>single</td></tr><tr><td>settings</td><td><table><tr><td>embedding</td>" in page
    assert "<tr><td>full</td><td>–</td></tr>" in page
    assert not re.search(r"\{(&#x27;|')", page)
    assert "<td>None</td>" not in page
