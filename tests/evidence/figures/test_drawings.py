"""The workflow, the topology prior, and how any figure is written."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import numpy as np
import pytest
from pages.workflow import HIGH, WIDE, _boxes, workflow_figure

import pisa_capc
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.geometry import ArrayGeometry, circular, custom, linear, square
from pisa_capc.evidence.figures.style import PAGE_INCHES, canvas
from pisa_capc.evidence.figures.topology import prior_weights, topology_figure
from pisa_capc.model.networks import PISA
from tests.evidence.figures.tools import ids, is_pdf_with_text, texts


def test_every_name_in_the_workflow_is_one_of_the_code() -> None:
    modules = [m.name for m in pkgutil.walk_packages(pisa_capc.__path__, "pisa_capc.") if ".kernels" not in m.name]
    wanted = ("data.frames", "data.descriptors", "model.networks", "decide.calibration")
    known = set(dir(PISA(2, "cnn")))
    for name in modules:
        if ".".join(name.split(".")[1:3]) in wanted and not name.endswith("calibration.kernels"):
            for value in vars(importlib.import_module(name)).values():
                known |= {getattr(value, "__name__", ""), *getattr(value, "__annotations__", {}), *dir(value)}
    assert {box.code for box in _boxes().values()} <= known


def test_the_workflow_holds_all_pathways_and_no_box_covers_another(tmp_path: Path) -> None:
    picture = workflow_figure(tmp_path / "workflow.svg")
    found = texts(picture.path)
    for name in ("Frames", "TokenRefinement", "array_view", "DynamicsModulator", "SuppressionGate", "decisions"):
        assert name in found
    boxes = list(_boxes().values())
    assert all(WIDE / 2 < box.x < PAGE_INCHES - WIDE / 2 for box in boxes)
    for i, a in enumerate(boxes):
        assert all(abs(a.x - b.x) > WIDE or abs(a.y - b.y) > HIGH for b in boxes[:i])


@pytest.mark.parametrize(
    "geometry",
    [square(), linear(5), circular(6), custom([[0, 0, 0], [0.5, 0, 0.4], [0.2, 0.7, 0.1]]), linear(1)],
    ids=lambda geometry: geometry.kind,
)
def test_every_pair_of_antennas_has_an_edge(tmp_path: Path, geometry: ArrayGeometry) -> None:
    path = topology_figure(geometry, tmp_path / "topology.svg").path
    antennas = geometry.antennas
    assert len(ids(path, "edge-")) == antennas * (antennas - 1) // 2
    assert {str(a) for a in range(antennas)} <= set(texts(path))


def test_the_weights_are_those_of_the_equation() -> None:
    geometry = square()
    weight = prior_weights(geometry, tau_s=0.7, tau_t=3.0, tokens=4)
    gap = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    expected = np.exp(-geometry.distances() / 0.7)[:, None, :, None] * np.exp(-gap / 3)[None, :, None, :]
    np.testing.assert_allclose(weight, expected)
    nearest = f"P = {expected[0, 0, 1, 0]:.2f}"
    assert nearest == "P = 0.49"


def test_the_same_figure_is_the_same_file(tmp_path: Path) -> None:
    for suffix in ("svg", "pdf"):
        first, second = (topology_figure(square(), tmp_path / f"{i}.{suffix}").path for i in range(2))
        assert first.read_bytes() == second.read_bytes()
    assert is_pdf_with_text(first)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"unknown picture format 'svq'\. Did you mean 'svg'"),
        canvas(tmp_path / "a.svq", 1, 1),
    ):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        topology_figure(square(), tmp_path / "file" / "a.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


@pytest.mark.parametrize("name", ["x$_$y", "$\\frac", "a$b"])
def test_a_name_on_a_figure_is_no_formula(name: str, tmp_path: Path) -> None:
    with canvas(tmp_path / "a.svg", 2, 2) as figure:
        axes = figure.subplots()
        axes.set_title(name)
        axes.plot([0, 1], label=name)
        axes.legend()
    assert texts(tmp_path / "a.svg").count(name) == 2
