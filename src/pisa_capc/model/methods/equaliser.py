"""Removing the channel of each antenna, or its phase alone, by the preamble that every device sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.linalg import toeplitz
from torch import Tensor, nn

from pisa_capc.core.config import check_numbers
from pisa_capc.core.errors import ConfigError
from pisa_capc.data.store.dataset import TIME
from pisa_capc.model.methods.registry import Setup
from pisa_capc.model.stacked import at_least_float32, full_precision
from pisa_capc.signal.waveforms import WAVEFORMS

LAG = 16  # samples, the period of the short training field: offsets up to ±fs/32
SILENCE = 1e-12
AUTO = "auto"


@dataclass(frozen=True)
class PreambleSettings:
    """waveform: whose preamble frames begin with; 'auto' is the one with this sample rate."""

    waveform: str = AUTO

    taps: ClassVar[int] = 8  # of the channels that a preamble may have come through, in the check that it is there
    called: ClassVar[str] = "equaliser"  # who needs the preamble, in messages

    def __post_init__(self) -> None:
        if self.waveform != AUTO and self.waveform not in WAVEFORMS:
            raise ConfigError(f"waveform: expected one of {', '.join([AUTO, *WAVEFORMS])}, found {self.waveform!r}.")

    def front(self, setup: Setup) -> PreambleReference:
        """What frames pass before the network."""
        return Aligner(waveform_of(self, setup), setup.samples, self.taps)


@dataclass(frozen=True)
class EqualiserSettings(PreambleSettings):
    """taps: length of the channel estimate [samples]; ridge: its regularisation, of the preamble's mean power;
    noise: floor of the equaliser, of the channel's mean power. waveform: 'auto' is the one with this sample rate."""

    taps: int = 8  # type: ignore[misc]  # a setting here
    ridge: float = 0.01
    noise: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.taps < 1:
            raise ConfigError(f"taps: expected at least 1, found {self.taps}.")
        if self.ridge <= 0 or self.noise <= 0:
            raise ConfigError(
                f"ridge and noise: expected more than 0, or silence could not be equalised; found {self.ridge} and "
                f"{self.noise}."
            )
        check_numbers(self)

    def front(self, setup: Setup) -> PreambleReference:
        return Equaliser(waveform_of(self, setup), setup.samples, self.taps, self.ridge, self.noise)


def least_samples(taps: int) -> int:
    """Samples of preamble needed to estimate offset and channel: with as many taps as samples, anything fits."""
    return max(2 * LAG, taps + 1)


class PreambleReference(nn.Module):
    """The preamble as sent, and the frequency offset it shows in a frame (…, A, T, 2).

    taps: length of the channels that it may have come through [samples].
    """

    reference: Tensor

    def __init__(self, waveform: str, samples: int, taps: int) -> None:
        super().__init__()
        sent = WAVEFORMS[waveform]
        reference = sent.preamble()[:samples]
        if len(reference) < (least := least_samples(taps)):
            raise ConfigError(f"equaliser: expected frames of {least} samples or more, found {samples}.")
        self.periodic = min(sent.periodic or len(reference), len(reference))
        self.taps = taps
        self.register_buffer("reference", torch.from_numpy(reference.astype(np.complex64)), persistent=False)

    def turn(self, received: Tensor) -> Tensor:
        """exp(j2πf̂n), the offset that the antennas have in common: (…, 1, T).

        f̂ = ∠Σ d*[n] d[n+16] / (2π·16) per sample, d = y·p*.
        """
        tone = received[..., : self.periodic] * self.reference[: self.periodic].conj()
        step = (tone[..., :-LAG].conj() * tone[..., LAG:]).sum((-1, -2)).angle() / LAG  # radians per sample
        phase = step[..., None, None] * torch.arange(received.shape[-1], device=received.device)
        return torch.polar(torch.ones_like(phase), phase)


class Aligner(PreambleReference):
    """x̂_a = y_a e^{−jφ_a}, φ_a = ∠Σ_n p*[n] e^{−j2πf̂n} y_a[n]: every antenna in phase with the known preamble.

    The phase of a frame is the moment's and the place's, not the device's, and differs from frame to frame. Nothing
    else is taken off. Antennas that are not there (mask) are silent.
    """

    def forward(self, iq: Tensor, mask: Tensor | None = None) -> Tensor:
        with full_precision(iq):
            received = _received(iq, mask)
            known = len(self.reference)
            still = received[..., :known] * self.turn(received)[..., :known].conj()
            gain = still @ self.reference.conj().to(still.dtype)  # (…, A)
            phase = gain.conj() / gain.abs().clamp_min(SILENCE)
            return torch.view_as_real(received * phase[..., None])


class Equaliser(PreambleReference):
    """x̂ = IFFT( Y H* / (|H|² + σ² mean|H|²) ), unit mean power, on every antenna: (…, A, T, 2) → the same.

    H is the response of h = (PᴴP + δI)⁻¹ Pᴴ y, the regularised least-squares channel of `taps` samples from the known
    preamble (P: its convolution matrix). Before that the frequency offset, common to the antennas, is taken off, and
    put back afterwards. The convolution is taken as circular.
    mask (…, A): antennas that are there; the others are silent and count neither for f̂ nor for the power.
    """

    solve: Tensor

    def __init__(self, waveform: str, samples: int, taps: int, ridge: float, noise: float) -> None:
        super().__init__(waveform, samples, taps)
        sent = WAVEFORMS[waveform].preamble()[:samples]
        convolution = toeplitz(sent, np.zeros(taps))
        gram = convolution.conj().T @ convolution
        solve = np.linalg.solve(gram + ridge * len(sent) * np.eye(taps), convolution.conj().T)
        self.noise = noise
        self.register_buffer("solve", torch.from_numpy(solve.astype(np.complex64)), persistent=False)

    def forward(self, iq: Tensor, mask: Tensor | None = None) -> Tensor:
        with full_precision(iq):
            received = _received(iq, mask)
            turn = self.turn(received)
            still = received * turn.conj()
            known, samples = len(self.reference), received.shape[-1]
            channel = still[..., :known] @ self.solve.mT.to(still.dtype)  # (…, A, taps)
            response = torch.fft.fft(channel, n=samples)
            power = response.abs().square()
            floor = self.noise * power.mean(-1, keepdim=True) + SILENCE
            sent = turn * torch.fft.ifft(torch.fft.fft(still) * response.conj() / (power + floor))
            scale = sent.abs().square().mean((-1, -2), keepdim=True)
            if mask is not None:
                scale = scale * (mask.shape[-1] / mask.sum(-1))[..., None, None]
            return torch.view_as_real(sent * torch.rsqrt(scale + SILENCE))


def _received(iq: Tensor, mask: Tensor | None) -> Tensor:
    """(…, A, T) complex; antennas that are not there are silent."""
    received = torch.view_as_complex(at_least_float32(iq).contiguous())
    return received if mask is None else received.masked_fill(~mask[..., None], 0)


def waveform_of(settings: PreambleSettings, setup: Setup) -> str:
    """The named waveform, or the one whose preamble has the sample rate of the frames, which must be of time."""
    if setup.domain != TIME:
        raise ConfigError(
            f"{settings.called}: the frames are {setup.domain} of a channel and hold no preamble. Train another method."
        )
    rate = setup.sample_rate_hz
    known = {name: waveform.sample_rate_hz for name, waveform in WAVEFORMS.parts().items()}
    found = [name for name, own in known.items() if own == rate]
    if settings.waveform == AUTO and not found:
        rates = ", ".join(f"{own:g} ({name})" for name, own in known.items())
        raise ConfigError(
            f"{settings.called}: no preamble is known at {rate:g} samples/s; known: {rates}. "
            "Set waveform if it is one of these."
        )
    return found[-1] if settings.waveform == AUTO else settings.waveform  # a plugin's, of several with this rate


class Equalised(nn.Module):
    """A network that sees each antenna through an equaliser; to be named before the network it is mixed with."""

    def __init__(self, front: PreambleReference, *network: Any, **others: Any) -> None:
        super().__init__(*network, **others)
        self.front = front

    def feature(self, iq: Tensor, mask: Tensor | None = None) -> Tensor:
        found: Tensor = super().feature(self.front(iq, mask), mask)  # type: ignore[misc]
        return found
