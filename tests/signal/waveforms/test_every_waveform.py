"""What holds of every waveform, and one that comes from outside."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import pisa_capc
from pisa_capc.cli import app
from pisa_capc.cli import simulate as _registers_the_command  # noqa: F401
from pisa_capc.core.errors import ConfigError
from pisa_capc.core.registry import PartOrigin, loading
from pisa_capc.data.geometry import square
from pisa_capc.data.store.native import Dataset
from pisa_capc.model.methods import Setup, build_method, method_list
from pisa_capc.model.methods.equaliser import Equaliser
from pisa_capc.model.methods.preamble import preamble_share
from pisa_capc.signal.simulation.scene import SHORTEST_SAMPLES
from pisa_capc.signal.waveforms import WAVEFORMS, Waveform, register_waveform

SCENE = """\
devices: 1
absent: []
waveform: {kind: barker, carrier_hz: 2.45e+9, sample_rate_hz: 4.0e+6, samples: 352, frame_interval_s: 0.01}
"""


@pytest.fixture
def barker() -> Iterator[type[Waveform]]:
    """A plugin's waveform: a Barker code as often as fits, on half-sine pulses of two samples a chip."""
    origin = PartOrigin("barkers", "1.0", "0" * 64)
    with loading(origin):

        @register_waveform("barker")
        class Barker(Waveform):
            title = "Barker"
            sample_rate_hz = 4e6
            occupied = 0.75
            longest_samples = 352

            def preamble(self) -> NDArray[np.complex128]:
                chips = np.tile([1, 1, 1, -1, -1, -1, 1, -1, -1, 1, -1], 16)
                return np.repeat(chips, 2) * (1 + 1j) / np.sqrt(2)

    yield Barker
    WAVEFORMS.forget(origin)


@pytest.mark.parametrize("name", WAVEFORMS)
def test_a_waveform_has_unit_power_and_begins_as_it_says(name: str) -> None:
    waveform = WAVEFORMS[name]
    assert waveform.name == name
    preamble = waveform.preamble()
    assert preamble.ndim == 1
    assert preamble.dtype == np.complex128
    assert np.mean(np.abs(preamble) ** 2) == pytest.approx(1)
    assert waveform.longest_samples >= SHORTEST_SAMPLES
    assert 0 < (waveform.periodic or len(preamble)) <= len(preamble)
    head = waveform.head(len(preamble))
    assert head is not None
    np.testing.assert_array_equal(head, preamble)


@pytest.mark.parametrize("name", WAVEFORMS)
def test_a_waveform_stays_within_its_band(name: str) -> None:
    waveform = WAVEFORMS[name]
    spectrum = np.abs(np.fft.fft(waveform.preamble())) ** 2
    outside = np.abs(np.fft.fftfreq(len(spectrum))) > waveform.occupied / 2
    assert spectrum[outside].sum() < 0.05 * spectrum.sum()  # the flanks of fields that begin and end at once


@pytest.mark.parametrize("name", WAVEFORMS)
def test_whole_frames_begin_with_what_all_share(name: str) -> None:
    waveform = WAVEFORMS[name]
    longest = waveform.longest_samples
    if waveform.head(longest) is not None:
        return
    draw = cache(lambda purpose: np.random.default_rng(len(purpose)))
    first, then = waveform.frames(2, draw), waveform.frames(1, draw)
    shared = len(waveform.preamble())
    assert first.shape == (2, longest)
    np.testing.assert_array_equal(first[:, :shared], np.broadcast_to(waveform.preamble(), (2, shared)))
    assert not np.allclose(first[0], first[1])
    draw = cache(lambda purpose: np.random.default_rng(len(purpose)))
    np.testing.assert_array_equal(np.concatenate([first, then]), waveform.frames(3, draw))


@pytest.mark.usefixtures("barker")
def test_one_class_and_a_scene_are_enough_to_simulate_and_to_equalise(tmp_path: Path) -> None:
    own = tmp_path / "barker.yaml"
    own.write_text(SCENE)
    frames = pisa_capc.simulate("wifi", tmp_path / "set", scale=0.001, workers=1, scene=own, show_progress=False)
    assert frames.iq.shape == (12 * 8, 4, 352)
    assert (frames.sample_rate_hz, frames.carrier_hz) == (4e6, 2.45e9)
    share = {name: np.median(preamble_share(Equaliser(name, 352, 8, 0.01, 0.01), frames.iq)) for name in WAVEFORMS}
    assert max(share, key=lambda name: share[name]) == "barker"
    method = build_method("eada", Setup(2, "cnn", square(), (0, 1), 352, 4e6))
    method.check_source(frames)
    [eada] = [about for about in method_list() if about["name"] == "eada"]
    assert "Barker (4 MS/s)" in eada["needs"][0]


@pytest.mark.usefixtures("barker")
def test_the_scene_of_a_plugin_may_be_a_whole_file(tmp_path: Path) -> None:
    import yaml

    from pisa_capc.core.config import merged, read_yaml
    from pisa_capc.signal.simulation.scene import scene_file

    own = tmp_path / "barker.yaml"
    own.write_text(yaml.safe_dump(merged(read_yaml(scene_file("wifi")), yaml.safe_load(SCENE))))
    command = ["simulate", str(own), "--out", str(tmp_path / "set"), "--scale", "0.001", "--workers", "1"]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert Dataset.read(tmp_path / "set").provenance["command"] == "pisa simulate barker.yaml"


def test_what_a_waveform_lacks_is_said_when_it_is_registered() -> None:
    class Bare(Waveform):
        title = "Bare"
        sample_rate_hz = 1e6
        longest_samples = 320

    with pytest.raises(ConfigError, match="waveform 'bare': Bare has no occupied"):
        register_waveform("bare")(Bare)
    Bare.occupied = 2.0
    with pytest.raises(ConfigError, match=r"waveform 'bare': occupied: expected between 0 and 1, found 2\.0"):
        register_waveform("bare")(Bare)
    Bare.occupied = 0.5
    with pytest.raises(ConfigError, match="waveform 'wifi': the name is taken"):
        register_waveform("wifi")(Bare)
    assert "bare" not in WAVEFORMS


def test_the_scene_of_a_waveform_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("waveform: {kind: wife}\n")
    with pytest.raises(ConfigError, match=r"waveform.kind: unknown waveform 'wife'. Did you mean 'wifi'"):
        pisa_capc.simulate("wifi", tmp_path / "out", scene=own)
