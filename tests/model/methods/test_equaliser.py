"""The equaliser undoes channels, the alignment phases, and both keep what is the device's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pisa_capc.core.errors import ConfigError
from pisa_capc.data.geometry import square
from pisa_capc.model.methods import Setup, build_method
from pisa_capc.model.methods.equaliser import Aligner, Equaliser
from pisa_capc.signal.waveforms import WAVEFORMS

SAMPLES = 320


def received(waveform: str, cfo: float = 0.0, taps: int = 3, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    """Four antennas behind a random channel each, and what was sent; cfo in cycles per sample."""
    random = np.random.default_rng(seed)
    sent = WAVEFORMS[waveform].preamble()[:SAMPLES] * np.exp(2j * np.pi * cfo * np.arange(SAMPLES))
    channel = random.normal(size=(4, taps, 2)) @ [1, 1j] * 10.0 ** -np.arange(taps)
    iq = np.stack([np.convolve(sent, h)[:SAMPLES] for h in channel])
    return torch.view_as_real(torch.from_numpy(iq)), sent


def similarity(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(np.vdot(a, b)) / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("cfo", [0.0, 0.004, -0.01])
@pytest.mark.parametrize("waveform", ["wifi", "lora"])
def test_the_channel_is_removed_and_the_frequency_offset_is_kept(waveform: str, cfo: float) -> None:
    iq, sent = received(waveform, cfo)
    found = torch.view_as_complex(Equaliser(waveform, SAMPLES, 8, 1e-3, 1e-3)(iq)).numpy()
    before = torch.view_as_complex(iq).numpy()
    for antenna in range(4):
        assert similarity(found[antenna], sent) > 0.99
        assert similarity(found[antenna], sent) >= similarity(before[antenna], sent) - 5e-3
    assert np.mean(np.abs(found) ** 2) == pytest.approx(1, abs=1e-3)
    phases = np.angle([np.vdot(sent, row) for row in found])
    assert np.ptp(phases) < 0.1  # the antennas agree: their channels are gone


@pytest.mark.parametrize("cfo", [0.0, 0.004, -0.01])
@pytest.mark.parametrize("waveform", ["wifi", "lora"])
def test_aligned_antennas_have_the_preambles_phase_and_nothing_else_changes(waveform: str, cfo: float) -> None:
    iq, sent = received(waveform, cfo, taps=1)
    align = Aligner(waveform, SAMPLES, 8)
    found = torch.view_as_complex(align(iq)).numpy()
    before = torch.view_as_complex(iq).numpy()
    np.testing.assert_allclose(np.abs(found), np.abs(before), rtol=1e-5, atol=1e-6)
    for antenna in range(4):
        turned = np.vdot(before[antenna], found[antenna])  # one phase for all samples: the offset is kept
        assert abs(turned) == pytest.approx(np.linalg.norm(before[antenna]) ** 2, rel=1e-5)
        assert abs(np.angle(np.vdot(sent, found[antenna]))) < 1e-3
    turn = torch.polar(torch.ones(4, 1, dtype=torch.float64), torch.tensor([[0.3], [-2.0], [3.0], [1.0]]).double())
    other = torch.view_as_real(torch.view_as_complex(iq) * turn)
    torch.testing.assert_close(align(other), align(iq), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("front", [Equaliser("wifi", SAMPLES, 8, 0.01, 0.01), Aligner("wifi", SAMPLES, 8)])
def test_silence_stays_silence(front: torch.nn.Module) -> None:
    iq, _ = received("wifi")
    iq[2] = 0
    found = front(iq)
    assert found.isfinite().all()
    assert (found[2] == 0).all()
    assert (front(0 * iq) == 0).all()


def test_frames_may_be_longer_than_the_preamble() -> None:
    iq, _ = received("wifi")
    longer = torch.cat([iq, iq], dim=1)
    assert Equaliser("wifi", 2 * SAMPLES, 8, 0.01, 0.01)(longer).shape == longer.shape


@pytest.mark.parametrize("name", ["pisa-equalised", "pisa-aligned"])
def test_pisa_behind_the_preamble_is_pisa_of_the_frames_that_it_gives(name: str) -> None:
    setup = Setup(3, "cnn", square(), (0, 1), SAMPLES, 20e6)
    method = build_method(name, setup)
    model = method.build().eval()
    plain = build_method("pisa", setup).build().eval()
    plain.load_state_dict(model.state_dict())
    iq, _ = received("wifi")
    iq = iq.float().expand(2, *iq.shape)
    expected = plain(model.front(iq)).logits
    torch.testing.assert_close(model(iq).logits, expected)
    assert not torch.allclose(plain(iq).logits, expected)
    mask = torch.tensor([True, True, False, True]).expand(2, 4)
    absent = iq.masked_fill(~mask[..., None, None], float("nan"))
    assert model(absent, mask=mask).logits.isfinite().all()


def test_the_waveform_follows_from_the_sample_rate_or_is_named() -> None:
    def build(rate: float, samples: int = SAMPLES, **settings: str) -> None:
        build_method("eada", Setup(3, "cnn", square(), (0, 1), samples, rate), settings=settings).build()

    build(20e6)
    build(1e6)
    with pytest.raises(ConfigError, match=r"equaliser: no preamble is known at 7e\+06 samples/s"):
        build(7e6)
    build(7e6, waveform="lora")
    with pytest.raises(ConfigError, match=r"expected one of auto, .*lora, wifi.*, found 'zigbee'"):
        build(20e6, waveform="zigbee")
    with pytest.raises(ConfigError, match="expected frames of 32 samples or more, found 16"):
        build(20e6, samples=16)
