"""A waveform from outside is found by its preamble, in recordings and in streams, or by a finder of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc.core import plugins
from pisa_capc.core.errors import ConfigError
from pisa_capc.core.registry import PartOrigin, loading
from pisa_capc.live.listen.hearing import Hearing
from pisa_capc.signal.detection import FINDERS, Finder, FoundFrame, PreambleDetector, detect, register_finder
from pisa_capc.signal.recordings import About
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.waveforms import WAVEFORMS
from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (fixture)
from tests.signal.recordings.tools import InMemory, write_sigmf

PLUGIN = '''
import numpy as np
from pisa_capc.signal.waveforms import Waveform, register_waveform


@register_waveform("chips")
class Chips(Waveform):
    """128 chips of two samples each."""

    title = "Chips"
    sample_rate_hz = 4e6
    occupied = 0.75
    longest_samples = 400

    def preamble(self):
        return np.repeat(np.random.default_rng(5).choice([-1.0, 1.0], 128), 2) + 0j
'''
CARRIER_HZ = 2.45e9
STARTS = (500, 2000, 5900, 9300, 13_777)
CFO_HZ = (-91e3, -20.3e3, 0.0, 33.3e3, 90e3)


@pytest.fixture
def chips(tmp_path: Path, own_parts: None) -> Path:
    path = tmp_path / "chips.py"
    path.write_text(PLUGIN)
    plugins.load_file(path)
    return path


def sent(name: str, snr_db: float = 15.0, antennas: int = 2) -> NDArray[np.complex64]:
    """Frames at STARTS with offsets CFO_HZ in noise of unit power; on each antenna with a phase of its own."""
    waveform, rng = WAVEFORMS[name], np.random.default_rng(0)
    x = rng.normal(size=(antennas, 15_000, 2)) @ [1, 1j] / np.sqrt(2)
    for start, cfo_hz in zip(STARTS, CFO_HZ, strict=True):
        payload = np.repeat(rng.choice([-1, 1], 72), 2)
        frame = np.concatenate([waveform.preamble(), payload])
        turn = np.exp(2j * np.pi * cfo_hz / waveform.sample_rate_hz * np.arange(len(frame)))
        phase = np.exp(2j * np.pi * rng.uniform(size=(antennas, 1)))
        x[:, start : start + len(frame)] += 10 ** (snr_db / 20) * frame * turn * phase
    return x.astype(np.complex64)


def recording(x: NDArray[np.complex64]) -> InMemory:
    own = InMemory(x, 4e6)
    own.about = replace(own.about, carrier_hz=CARRIER_HZ)
    return own


@pytest.mark.usefixtures("chips")
@pytest.mark.parametrize("snr_db", [15.0, 0.0])
def test_frames_are_found_with_their_offsets_and_quality(snr_db: float) -> None:
    found = detect(recording(sent("chips", snr_db)), "chips").frames
    assert tuple(frame.start for frame in found) == STARTS
    # Of a tone in known samples no estimate is better than this (Cramér and Rao).
    bound_hz = 4e6 / (2 * np.pi) * np.sqrt(6 / (10 ** (snr_db / 10) * 256**3))
    np.testing.assert_allclose(
        [frame.cfo_hz for frame in found], np.repeat(CFO_HZ, 2).reshape(-1, 2), atol=4 * bound_hz
    )
    np.testing.assert_allclose([frame.snr_db for frame in found], snr_db, atol=1.0)
    power = 10 ** (snr_db / 10)
    np.testing.assert_allclose([frame.quality for frame in found], power / (1 + power), atol=0.1)


@pytest.mark.usefixtures("chips")
def test_the_blocks_of_a_stream_change_nothing() -> None:
    x = sent("chips")
    results = []
    for size in (997, 15_000):
        detector = PreambleDetector(WAVEFORMS["chips"], 2, CARRIER_HZ)
        found = [one for at in range(0, x.shape[1], size) for one in detector.push(x[:, at : at + size])]
        results.append([*found, *detector.finish()])
    assert [one.at for one in results[0]] == list(STARTS)
    for one, other in zip(*results, strict=True):
        assert (one.at, one.quality, one.iq.shape) == (other.at, other.quality, (2, 400))
        assert (one.iq == other.iq).all()
        assert (one.iq == x[:, one.at : one.at + 400]).all()


@pytest.mark.usefixtures("chips")
@pytest.mark.filterwarnings("ignore:memory")
def test_what_a_stream_cuts_is_left_out_and_dead_antennas_have_no_offset() -> None:
    x = sent("chips")
    x[1] = 0
    found = detect(recording(x[:, 600 : STARTS[-1] + 300]), "chips").frames  # in the first frame; behind a preamble
    assert [frame.start + 600 for frame in found] == list(STARTS[1:])
    assert not np.isnan([frame.cfo_hz[0] for frame in found]).any()
    assert np.isnan([frame.cfo_hz[1] for frame in found]).all()
    assert len(detect(recording(x[:, : STARTS[0] + 250]), "chips").frames) == 0


@pytest.mark.usefixtures("chips")
@pytest.mark.filterwarnings("ignore:memory")
def test_noise_carriers_and_silence_are_no_frames() -> None:
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(2, 100_000, 2)) @ [1, 1j]).astype(np.complex64)
    assert not detect(recording(x), "chips").frames
    x[:, 30_000:] += 100 * np.exp(0.1j * np.arange(70_000)).astype(np.complex64)
    assert not detect(recording(x), "chips").frames
    assert not detect(recording(np.zeros((2, 20_000), np.complex64)), "chips").frames


@pytest.mark.usefixtures("chips")
@pytest.mark.parametrize("kind", ["cf32", "cs16", "cu8"])
def test_frames_are_found_while_they_are_received(kind: str) -> None:
    x, encoding = sent("chips"), Encoding.named(kind)
    hearing = Hearing(About("air", 4e6, CARRIER_HZ, 2, 0), encoding, "chips", kept=256)
    parts = np.ascontiguousarray((x / 64).T).view(np.float32)
    data = parts if kind == "cf32" else np.round(parts * 32767 if kind == "cs16" else 127.5 * (parts + 1))
    raw = data.astype(encoding.number).view(np.uint8).reshape(-1)
    size, heard = hearing.sample_bytes, []
    for first in range(0, x.shape[1], 4000):
        heard += hearing.push(raw[size * first : size * (first + 4000)], first, False)
    heard += hearing.finish()
    assert [one.start for one in heard] == list(STARTS)
    assert {one.iq.shape for one in heard} == {(2, 256)}


def test_a_command_takes_the_waveform_of_a_plugin(pisa: Command, chips: Path, tmp_path: Path) -> None:  # noqa: F811
    pytest.importorskip("sigmf")
    meta = write_sigmf(tmp_path / "roof", sent("chips") / 64, sample_rate=4e6)
    done = pisa("detect", meta, "--waveform", "chips", "--plugin", chips)
    assert done.code == 0
    assert "5 frames" in done.out + done.err
    done = pisa("detect", meta, "--waveform", "chip", "--plugin", chips)
    assert done.code == 2
    assert "chips" in done.err


@pytest.mark.usefixtures("own_parts")
def test_a_finder_of_its_own_goes_before_the_preamble(chips: Path) -> None:
    class Every:
        """A frame at every thousandth sample."""

        def __init__(self) -> None:
            self.at = 0

        def wanted(self, received: int) -> int:
            return 1

        def push(self, block: NDArray[np.complex64]) -> list[FoundFrame]:
            first, self.at = -(-self.at // 1000) * 1000, self.at + block.shape[1]
            nothing = np.zeros(len(block))
            return [FoundFrame(n, block[:, :400], nothing, nothing, 1.0) for n in range(first, self.at, 1000)]

        def finish(self) -> list[FoundFrame]:
            return []

    with loading(PartOrigin("every", "1", "0" * 64)):

        @register_finder("chips")
        class EveryFinder(Finder):
            def detector(self, about: About, *_: object) -> Every:
                return Every()

    found = detect(recording(sent("chips")), "chips").frames
    assert [frame.start for frame in found] == list(range(0, 15_000, 1000))
    assert list(FINDERS)[-1] == "chips"
    with pytest.raises(ConfigError, match="the name is taken"):
        register_finder("wifi")(EveryFinder)
