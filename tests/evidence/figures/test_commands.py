"""pisa figures, pisa report and pisa bench figures, as they are called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (a fixture)
from tests.evidence.benchmark.tools import all_runs, made_up, quick
from tests.evidence.figures.tools import is_pdf_with_text


def test_figures(pisa: Command, data: Path, trained: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "out"
    found = pisa(
        "figures", trained / "pisa", data, "--with", trained / "single", "--kind", "topology,confusion", "--out", out
    )
    assert found.code == 0
    assert found.out.split() == [str(out / "topology.pdf"), str(out / "confusion.pdf")]
    assert all(is_pdf_with_text(Path(path)) for path in found.out.split())
    assert "**topology.pdf** Topology prior of the linear array of 2 antennas" in (out / "captions.md").read_text()


def test_a_report_of_a_run(pisa: Command, data: Path, trained: Path, tmp_path: Path) -> None:  # noqa: F811
    page = tmp_path / "report.html"
    found = pisa("report", trained / "single", "--data", data, "--kind", "captures", "--out", page)
    assert (found.code, found.out.strip()) == (0, str(page))
    assert "Single + U-CAPC" in page.read_text()


def test_a_protocol(pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    protocol = quick(tmp_path)
    for run in all_runs(protocol):
        made_up(run, {"direct": 0.5, **dict.fromkeys(run.calibration, 0.6)}).write(tmp_path / "results" / "quick")
    where = (tmp_path / "quick.yaml", "--results", tmp_path / "results")
    assert pisa("report", *where, "--out", tmp_path / "report.html").code == 0
    assert "three stages" in (tmp_path / "report.html").read_text()
    found = pisa("bench", "figures", *where, "--out", tmp_path / "out", "--as", "svg")
    assert [Path(path).name for path in found.out.split()] == ["three-stages-1.svg", "source-target-1.svg"]
    said = json.loads(pisa("bench", "figures", *where, "--out", tmp_path / "out", "--as", "svg", "--json").out)
    assert said == {"figures": found.out.split(), "captions": str(tmp_path / "out/captions.md")}
    page = json.loads(pisa("report", *where, "--out", tmp_path / "report.html", "--json").out)
    assert page == {"out": str(tmp_path / "report.html"), "bytes": (tmp_path / "report.html").stat().st_size}
    counted = json.loads(pisa("bench", "status", *where, "--json").out)
    assert counted["planned"] == sum(place["runs"] for place in counted["recorded"]) == len(all_runs(protocol))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "{runs}/pisa"), "give --data FOLDER"),
        (("report", "wifi-smi"), "Did you mean 'wifi-sim'"),
        (("report", "wifi-sim", "--target", "E1"), "holds no run; --target and --with belong to one"),
        (("report", "wifi-sim", "--results", "{runs}/none"), "holds no records of wifi-sim"),
        (("report", "{runs}", "--data", "{data}"), "holds runs of different experiments"),
        (("report", "{runs}/none", "--data", "{data}"), "holds no model.json"),
        (("figures", "{runs}/pisa", "{data}", "--kind", "tnse"), "Did you mean 'tsne'"),
        (("figures", "{runs}/pisa", "{data}", "--as", "dpf"), "Did you mean 'pdf'"),
        (("figures", "{runs}/pisa", "{data}", "--target", "E2"), "both source and target"),
    ],
)
def test_what_is_wrong_is_said(
    pisa: Command,  # noqa: F811
    data: Path,
    trained: Path,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    found = pisa(*(text.format(runs=trained, data=data) for text in arguments))
    assert found.code == 2
    assert message in found.err


def test_a_run_of_another_dataset_is_refused(pisa: Command, trained: Path, tmp_path: Path) -> None:  # noqa: F811
    from tests.problems import write_small

    other = write_small(tmp_path / "other", frames=13)
    found = pisa("figures", trained / "pisa", other, "--out", tmp_path / "out")
    assert found.code == 2
    assert "Use the dataset the run was trained on" in found.err
