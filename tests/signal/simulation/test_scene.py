"""The scene files hold the paper's layout, and mistakes in own ones are named."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.simulation.scene import load_scene, scene_names

PAPERS = [name for name in scene_names() if load_scene(name).waveform.kind in ("wifi", "lora")]


@pytest.mark.parametrize("name", PAPERS)
def test_layout_is_the_papers(name: str) -> None:
    layout = load_scene(name).layout()
    assert len(layout) == 119
    assert sum(spec.frames for spec in layout) == 76_288
    assert "E3/D05/L1" not in {spec.name for spec in layout}
    assert Counter(spec.frames for spec in layout) == {512: 89, 1024: 30}
    assert {spec.device for spec in layout} == {f"D{i:02d}" for i in range(1, 11)}


@pytest.mark.parametrize("name", scene_names())
def test_one_percent_of_the_carrier_offset_is_left_in_the_samples_as_in_the_paper(name: str) -> None:
    assert load_scene(name).frequency.residual_fraction == 0.01


def test_rates_are_those_of_the_papers_table() -> None:
    wifi, lora = load_scene("wifi").waveform, load_scene("lora").waveform
    assert (wifi.carrier_hz, wifi.sample_rate_hz, wifi.samples) == (5.825e9, 20e6, 320)
    assert (lora.carrier_hz, lora.sample_rate_hz, lora.samples) == (868.1e6, 1e6, 320)


@pytest.mark.parametrize(("scale", "static", "mobile"), [(0.1, 51, 102), (0.001, 8, 8), (1.0, 512, 1024)])
def test_scale_shrinks_captures_and_never_the_layout(scale: float, static: int, mobile: int) -> None:
    layout = load_scene("wifi").layout(scale)
    assert len(layout) == 119
    assert {spec.frames for spec in layout} == {static, mobile}


def test_own_settings_lie_over_the_built_in_scene(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("devices: 3\nabsent: []\nenvironments: {E1: {angle_spread_deg: 40}}\n")
    scene = load_scene("wifi", own)
    assert scene.devices == 3
    assert scene.environments["E1"].angle_spread_deg == 40
    assert scene.environments["E1"].clusters == load_scene("wifi").environments["E1"].clusters


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("environments: {E1: {angle_sprad_deg: 40}}", "Did you mean 'angle_spread_deg'"),
        ("devices: 0", "devices: expected a positive number, found 0"),
        ("devices: three", "devices: expected int, found 'three'"),
        ("absent: [E9/D01/L1]", "absent: unknown capture 'E9/D01/L1'"),
        ("hardware: {cfo_ppm: {std: -1}}", "expected std ≥ 0"),
        ("environments: {E4: {clusters: 2}}", "environments.E4: .*missing"),
        ("receiver: {timing_jitter_samples: 2}", "timing_jitter_samples: expected 0 to 0.3"),
        ("captures: {M: {moving_fraction: 2}}", "moving_fraction: expected 0 to 1, found 2"),
        ("captures: {M: {scatterer_spectrum: bel}}", "scatterer_spectrum: unknown spectrum 'bel'. Did you mean 'bell'"),
        ("propagation: {rays: plaice}", "propagation.rays: unknown owner 'plaice'. Did you mean 'place'"),
        ("propagation: {rays: device, phases: place}", "phases of the place need rays of the place"),
        ("- a list", "expected a mapping"),
    ],
)
def test_mistakes_in_a_scene_file_are_named(tmp_path: Path, text: str, message: str) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_scene("wifi", own)


@pytest.mark.parametrize(
    ("kind", "samples", "longest"), [("wifi", 3921, 3920), ("lora", 8193, 8192), ("lora", 10, 8192)]
)
def test_frame_lengths_the_waveform_does_not_have_are_refused(kind: str, samples: int, longest: int) -> None:
    with pytest.raises(ConfigError, match=f"320 to {longest} samples, found {samples}"):
        load_scene(kind, samples=samples)


def test_an_unknown_scene_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'wifi'"):
        load_scene("wify")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("devices", 1_000_000_000),
        ("environments.E1.rays_per_cluster", 1_000_000_000),
        ("environments.E1.clusters", 1_000_000_000),
        ("captures.M.frames", 10**12),
        ("waveform.channel_half_width_samples", 10**9),
    ],
)
def test_numbers_that_would_fill_the_memory_are_refused(path: str, value: int, tmp_path: Path) -> None:
    *outer, name = path.split(".")
    nested: dict[str, object] = {name: value}
    for key in reversed(outer):
        nested = {key: nested}
    (tmp_path / "scene.yaml").write_text(json.dumps(nested))
    with pytest.raises(ConfigError, match=rf"{name}: expected a positive number up to [\d,]+, found {value}"):
        load_scene("wifi", tmp_path / "scene.yaml")


def test_the_scene_of_the_tour_comes_with_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pisa_capc.signal.simulation.scene.PACKAGE", Path(__file__).parents[3])  # as in a wheel
    assert load_scene("wifi-own-place", Path("examples/demo_scene.yaml")).devices == 5
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples/demo_scene.yaml").write_text("devices: 3\nabsent: []\n")  # one of one's own goes first
    assert load_scene("wifi-own-place", Path("examples/demo_scene.yaml")).devices == 3


@pytest.mark.parametrize("name", ["wifi", "lora"])
def test_the_scene_of_own_places_differs_in_channels_and_motion_alone(name: str) -> None:
    shared, own = load_scene(name), load_scene(f"{name}-own-place")
    assert own.propagation == replace(shared.propagation, rays="device")
    for key, setting in own.captures.items():
        assert setting.moving_fraction == 0.1
        moved = {"moving_fraction": 1.0, "scatterer_speed_m_s": 0.333, "scatterer_spectrum": "bell"}
        assert replace(setting, **moved) == shared.captures[key]
    assert replace(own, propagation=shared.propagation, captures=shared.captures) == shared
