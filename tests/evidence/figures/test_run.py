"""Figures and the report of trained runs."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pisa_capc.core.errors import ConfigError, MissingExtraError, ModelError
from pisa_capc.data.frames import Frames, load
from pisa_capc.data.protocol import Evaluator
from pisa_capc.evidence.evaluation import infer_runs, load_runs
from pisa_capc.evidence.figures.projection import draw_sample, project
from pisa_capc.evidence.figures.run import Subject, draw_run, stages
from pisa_capc.evidence.reports import report_of_runs
from tests.evidence.figures.tools import is_pdf_with_text, texts


@pytest.fixture(scope="module")
def drawn(subjects: list[Subject], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The texts of every figure, by name."""
    folder = tmp_path_factory.mktemp("figures")
    return {p.path.stem: texts(p.path) for p in draw_run(subjects, folder, "svg", points=40)}


def test_all_figures_are_drawn(drawn: dict[str, list[str]]) -> None:
    captures = ["calibration-E1-L1", "calibration-E1-L2"]
    assert [*drawn] == [*("confusion", "captures", "calibration", *captures, "tsne", "tsne-captures", "topology")]


def test_drawing_shows_how_far_it_is(
    data: Path, subjects: list[Subject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr("pisa_capc.core.progress.console", terminal)
    draw_run(subjects, tmp_path, "svg", ["topology", "captures"])
    assert "figures" in (shown := terminal.file.getvalue())  # type: ignore[attr-defined]
    assert "2/2" in shown
    report_of_runs(subjects, data, kinds=["topology", "captures", "calibration"])
    assert "3/3" in terminal.file.getvalue()  # type: ignore[attr-defined]


def test_stages_stand_in_the_order_of_the_paper(subjects: list[Subject], drawn: dict[str, list[str]]) -> None:
    three = ["Single", "PISA", "PISA-CAPC"]
    assert [*stages(subjects)["CNN"]] == [*three, "PISA-CAPC (careful)"]
    assert [text for text in drawn["tsne"] if text in three] == three
    for name in three:
        assert any(text.startswith(name) for text in drawn["confusion"])


def test_devices_and_captures_are_named(drawn: dict[str, list[str]]) -> None:
    assert {"D1", "D2", "D3", "CNN"} <= set(drawn["tsne"])
    assert {"D1", "D2", "D3", "decided device"} <= set(drawn["calibration-E1-L1"])
    panels = [text for text in drawn["tsne-captures"] if text.startswith("E1/")]
    assert panels == ["E1/L1", "E1/L2"]  # one panel each
    assert {"E1/L1", "E1/L2", "decisions changed (%)"} <= set(drawn["calibration"])


def test_chance_is_named_and_scores_end_at_one(drawn: dict[str, list[str]]) -> None:
    assert "chance (0.33)" in drawn["captures"]
    numbers = [text for text in drawn["captures"] if text.replace(".", "").isdigit()]
    assert max(map(float, numbers)) == 1


def test_single_alone_is_also_shown_calibrated(subjects: list[Subject]) -> None:
    assert [*stages(subjects[1:])["CNN"]] == ["Single", "Single + U-CAPC", "Single + U-CAPC (careful)"]


def test_seeds_of_one_experiment_are_scored_together(data: Path, trained: Path, tmp_path: Path) -> None:
    seeds = infer_runs([*load_runs(trained / "single"), *load_runs(trained / "other")], load(data), ["E1"], show=False)
    found = stages([seeds])["CNN"]["Single"]
    assert [scores.to_json() for scores in found] == [one.scores()["direct"].to_json() for one in seeds]
    pictures = draw_run([seeds], tmp_path, "svg", ["captures", "confusion"])
    assert all("2 runs" in picture.caption for picture in pictures)


def test_the_scores_are_those_of_the_evaluator(subjects: list[Subject]) -> None:
    [one] = subjects[0]
    [direct], [paper] = (stages(subjects)["CNN"][name] for name in ("PISA", "PISA-CAPC"))
    assert direct.to_json() == one.evaluator.score(one.outputs.logits).to_json()
    assert paper.to_json() == one.evaluator.score(one.stages["paper"].probability).to_json()


def test_a_sample_is_even_over_captures_and_depends_on_its_seed_alone() -> None:
    capture = np.repeat(["E1/L1", "E1/L2", "E1/M"], [30, 50, 5])
    evaluator = Evaluator(Frames.from_arrays(np.ones((85, 1, 1)), device=["a", "b", "c", "d", "e"] * 17))
    sample = draw_sample(evaluator, capture, 30, 1)
    assert [int((sample.capture == name).sum()) for name in sample.captures] == [10, 10, 5]
    np.testing.assert_array_equal(sample.device, sample.rows % 5)
    np.testing.assert_array_equal(sample.rows, draw_sample(evaluator, capture, 30, 1).rows)
    assert not np.array_equal(sample.rows, draw_sample(evaluator, capture, 30, 2).rows)
    assert "25 of 85 target frames" in str(sample)


def test_what_is_apart_stays_apart() -> None:
    rng = np.random.default_rng(0)
    space = np.concatenate([rng.normal(0, 0.1, (30, 5)), rng.normal(9, 0.1, (30, 5))])
    place = project(space, "tsne", 1)
    np.testing.assert_array_equal(place, project(space, "tsne", 1))
    first, second = place[:30], place[30:]
    assert np.linalg.norm(first.mean(0) - second.mean(0)) > 2 * max(first.std(), second.std())


def test_umap_where_it_is_installed(subjects: list[Subject], tmp_path: Path) -> None:
    pytest.importorskip("umap")
    pictures = draw_run(subjects, tmp_path, "pdf", ["umap"], points=40)
    assert [picture.path.stem for picture in pictures] == ["umap", "umap-captures"]
    assert all(is_pdf_with_text(picture.path) for picture in pictures)


def test_umap_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MissingExtraError, match=r"needs the package umap-learn: pip install 'pisa-capc\[umap\]'"):
        project(np.zeros((20, 3)), "umap", 1)


def test_runs_side_by_side_are_of_one_split(data: Path, trained: Path, subjects: list[Subject], tmp_path: Path) -> None:
    other = infer_runs(load_runs(trained / "other"), load(data), ["E1"], show=False)
    with pytest.raises(ModelError, match=r"split_seed is 2, that of .* is 1"):
        draw_run([subjects[0], other], tmp_path, "svg", ["confusion"])


def test_unknown_wishes_name_the_nearest(subjects: list[Subject], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown kind of figure 'tsen'\. Did you mean 'tsne'"):
        draw_run(subjects, tmp_path, "svg", ["tsen"])
    with pytest.raises(ConfigError, match="at least 10 frames"):
        draw_run(subjects, tmp_path, "svg", ["tsne"], points=3)
    assert not list(tmp_path.iterdir())


def test_the_report_says_what_was_found_and_where_it_is_from(data: Path, subjects: list[Subject]) -> None:
    page = report_of_runs(subjects, data, kinds=["confusion", "captures"], note="A small set.").html()
    assert "Trained in E2, E3, tested in E1" in page
    assert "A small set." in page
    [one] = subjects[0]
    three = {name: runs[0].macro_f1 for name, runs in stages(subjects)["CNN"].items()}
    best = max(three, key=three.__getitem__)
    first = page.split("<p")[1]
    found = rf"In E1, {re.escape(best)} with CNN (tells|does not tell) the 3 devices apart: Macro-F1 {three[best]:.3f} "
    assert re.search(found, first)
    assert ", chance 0.333)." in first
    assert '<figure class="narrow">' in page  # captures, of one column
    f1 = one.evaluator.score(one.stages["paper"].probability).macro_f1
    assert f"<tr><td>PISA-CAPC</td><td>{f1:.4f}</td>" in page
    assert page.count('src="data:image/svg+xml;base64,') == 2
    for text in (one.trained.run.dataset, "split_seed", "<td>beta</td><td>1.0</td>", "torch", "E1/L2"):
        assert text in page
    assert "http" not in page.replace("http-equiv", "")  # nothing is fetched


def test_a_run_is_shown_by_what_is_usual(data: Path, trained: Path) -> None:
    [one] = infer_runs(load_runs(trained / "pisa"), load(data), ["E1"], show=False)
    found = stages([[one]])["CNN"]
    assert list(found) == ["PISA", "PISA-CAPC", "PISA-CAPC (careful)"]
    [careful] = found["PISA-CAPC (careful)"]
    assert careful.to_json() == one.evaluator.score(one.stages["careful"].probability).to_json()
