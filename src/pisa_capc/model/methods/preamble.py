"""Whether frames begin with the preamble that an equaliser or an alignment needs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import Frames
from pisa_capc.model.methods.equaliser import AUTO, LAG, PreambleReference, PreambleSettings, least_samples, waveform_of
from pisa_capc.model.methods.registry import Method, Setup
from pisa_capc.signal.waveforms import WAVEFORMS
from pisa_capc.signal.waveforms.delays import delayed_copies

FRAMES = 64  # looked at in each source environment, evenly spread
CHANCE = 1e-6  # with which noise is taken for a preamble


def preamble_share(known: PreambleReference, iq: NDArray[np.complex64]) -> NDArray[np.float64]:
    """Part of each frame's energy that the preamble explains: (N, A, T) → (N,), each in [0, 1].

    s = Σ_a ‖Qᴴ ỹ_a‖² / Σ_a ‖ỹ_a‖², the squared normalised correlation. ỹ_a: what antenna a received while the preamble
    lasts, its frequency offset taken off as the equaliser does. Q: an orthonormal basis of the preamble behind all
    channels of `taps` samples. At a signal-to-noise ratio of ρ, s is about ρ/(1 + ρ).
    """
    reference = known.reference.numpy()
    basis, _ = np.linalg.qr(delayed_copies(reference.astype(np.complex128), len(reference), 0, known.taps - 1).T)
    received = torch.from_numpy(np.ascontiguousarray(iq))
    still = (received * known.turn(received).conj()).numpy()[..., : len(reference)]
    energy = (np.abs(still) ** 2).sum((-1, -2), dtype=np.float64)
    explained = (np.abs(still @ basis.conj()) ** 2).sum((-1, -2))
    return np.asarray(explained / np.maximum(energy, np.finfo(np.float64).tiny))


def noise_share(known: int, taps: int) -> float:
    """The share that white noise exceeds with a chance of at most one in a million, in a frame of one antenna.

    The share of `known` samples of complex white Gaussian noise in any `taps` of their dimensions is distributed as
    Beta(taps, known − taps). The offset that is taken off first is one of the known/16 that can be told apart within
    the ±fs/32 where it is looked for, so the chance is divided among them (union bound). Further antennas average, and
    lower it. For 320 samples and 8 taps: 0.10, the share of a preamble at −10 dB; noise has 0.025 in the mean.
    """
    return float(beta.isf(CHANCE * LAG / known, taps, known - taps))


@dataclass(frozen=True)
class PreambleFinding:
    """What the known preambles explain of the frames of one environment, in the median.

    expected: the waveform that was named, or has this sample rate. share: part of the energy, by waveform.
    level: what noise reaches.
    """

    environment: str
    expected: str
    share: dict[str, float]
    level: float

    @property
    def best(self) -> str:
        return max(self.share, key=lambda name: self.share[name])

    @property
    def is_there(self) -> bool:
        """Whether the expected preamble explains more than noise, and more than any other."""
        return self.best == self.expected and self.share[self.expected] > self.level


def look_for_preamble(frames: Frames, settings: PreambleSettings, setup: Setup) -> list[PreambleFinding]:
    """What known preambles explain of some frames of each environment."""
    expected = waveform_of(settings, setup)
    preambles = {
        name: PreambleReference(name, setup.samples, settings.taps)
        for name, waveform in WAVEFORMS.parts().items()
        # A short one explains a good part of anything.
        if name == expected or len(waveform.preamble()) >= 2 * least_samples(settings.taps)
    }
    level = noise_share(len(preambles[expected].reference), settings.taps)
    found = []
    for environment in np.unique(frames.environment).tolist():
        own = np.flatnonzero(frames.environment == environment)
        iq = frames.select(own[np.linspace(0, len(own) - 1, min(FRAMES, len(own))).astype(int)]).iq
        share = {name: float(np.median(preamble_share(known, iq))) for name, known in preambles.items()}
        found.append(PreambleFinding(frames.environments[environment], expected, share, level))
    return found


def check_preamble(frames: Frames, settings: PreambleSettings, setup: Setup) -> None:
    """Refuse frames that do not begin with the preamble: no better explained than noise, or better by another one.

    Judged by the median of some frames of each environment. Where the waveform was named and not inferred from the
    sample rate, the user is taken to know better, and only warned.
    """
    for found in look_for_preamble(frames, settings, setup):
        if found.is_there:
            continue
        inferred = settings.waveform == AUTO
        why = f"which is expected at {setup.sample_rate_hz:g} samples/s" if inferred else "as the setting waveform says"
        other = "" if found.best == found.expected else f", and that of {found.best} {found.share[found.best]:.2f}"
        text = (
            f"{settings.called}: the frames of {found.environment} do not seem to begin with the preamble of "
            f"{found.expected}, {why}: it explains {found.share[found.expected]:.2f} of their energy{other}; expected "
            "more than the "
            f"{found.level:.2f} that noise reaches, and more than any other. Set waveform to what was sent "
            f"({' or '.join(WAVEFORMS)}), correct the sample rate of the dataset, or train another method."
        )
        if inferred:
            raise DataError(text)
        warnings.warn(text, stacklevel=2)


class _KnownPreambles:
    """What these methods need of the data, listed on demand so that plugins' waveforms are included."""

    def __get__(self, method: Any, cls: type | None = None) -> tuple[str, ...]:
        known = (f"{w.title} ({w.sample_rate_hz / 1e6:g} MS/s)" for w in WAVEFORMS.parts().values())
        return (f"frames that begin with a preamble that is known: {' or '.join(known)}",)


class BehindPreamble(Method):
    """Base of the methods that equalise or align; to be named before the method it is mixed with."""

    needs = _KnownPreambles()
    settings: PreambleSettings

    def front(self) -> PreambleReference:
        return self.settings.front(self.setup)

    def check_source(self, frames: Frames) -> None:
        check_preamble(frames, self.settings, self.setup)
