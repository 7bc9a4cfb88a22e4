"""The closed form: hardware flaws by least squares, devices as Gaussians. Nothing is trained in epochs.

`signal.measurement` measures each frame, with its error bars: the flaws of a transmitter where its waveform is known,
or what the hardware leaves in channel state. `model.gaussian` says which device that is. The model is kept and used as
any other, so every command takes it. Its embedding is the measurement in units of its usual scatter; its logits are
the log-likelihoods, each frame with its own error bars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pisa_capc.core.errors import ConfigError, DataError, ModelError
from pisa_capc.core.threads import OwnThreads
from pisa_capc.data.frames import Frames, UnlabelledFrames, groups_of
from pisa_capc.data.store.dataset import TIME, Subcarriers
from pisa_capc.model.gaussian import Device, GaussianBackend, fit_backend
from pisa_capc.model.gaussian.algebra import full
from pisa_capc.model.methods.equaliser import AUTO, PreambleSettings, waveform_of
from pisa_capc.model.methods.preamble import BehindPreamble
from pisa_capc.model.methods.registry import Method, register_method
from pisa_capc.model.networks.pisa import Output
from pisa_capc.model.stacked import Linear
from pisa_capc.signal.measurement import FLAWS, FlawEstimator, estimator_of
from pisa_capc.signal.measurement.channel_state import channel_state, place_prior
from pisa_capc.signal.measurement.fit import ChanceOf, fit_test
from pisa_capc.signal.waveforms import WAVEFORMS
from pisa_capc.signal.waveforms.reference import OVER_CHANCE, REFERENCE, SentReference, align

ERRORS = 200  # frames whose error bars stand for those of all
BATCH, AT_ONCE = 8192, 1 << 26  # frames, and samples, measured at a time
NOISE_FRAMES = 200  # of each recording, which the noise of channel state is measured on
WHITE = 1e-3  # part by which the frames' covariance of channel state is shrunk
KEYED = "keyed"  # in the place of a waveform's name, of frames that are on-off keyed; see `keyed`
LOOKED_AT = 32  # frames of a source, by which it is told whether they hold the reference
NEVER = 1e3  # below the others: the logit of a device that the source does not have

Real = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class ClosedFormSettings(PreambleSettings):
    """Of the waveform alone: nothing else is to be set. keyed: frames are on-off keyed, whatever bits they carry;
    reference:…: they hold what was sent from a file, which the model keeps."""

    called: ClassVar[str] = "closed form"

    def __post_init__(self) -> None:
        if not self.waveform.startswith((KEYED, REFERENCE)):
            super().__post_init__()


class ClosedForm(OwnThreads):
    """m_k, V_k, S and P of the back-end, and what whitens an embedding: z = W (θ − c).

    The classifier is that of frames which are all as certain as the source's are in the mean. Calibrations start from
    its rows; the logits do not.

    measures: what, in words. bars: whether every embedding comes with its error; of many dimensions that would be too
    many numbers.
    keeps_offset: whether it is to see frames with their carrier offset, which it goes by.
    """

    measures: ClassVar[str] = "the flaws seen in a known preamble"
    bars: ClassVar[bool] = True
    keeps_offset: ClassVar[bool] = False

    mean: Tensor
    error: Tensor
    frame: Tensor
    place: Tensor
    centre: Tensor
    whiten: Tensor

    def __init__(self, size: int, classes: int, runs: int = 1) -> None:
        super().__init__()
        if runs != 1:
            raise ConfigError("closed-form: there is nothing to train, so runs are made one by one.")
        self.frame_error: Real | None = None  # R of some source frames, where it was just fitted
        shapes = {
            "mean": (classes, size),
            "error": (classes, size, size),
            "frame": (size, size),
            "place": (size, size),
            "centre": (size,),
            "whiten": (size, size),
        }
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))
        self.classifier = Linear(size, classes)

    @property
    def backend(self) -> GaussianBackend:
        """Of the devices that the source had, by their numbers."""
        mean, error = _array(self.mean), _array(self.error)
        there = np.flatnonzero(np.isfinite(mean).all(axis=1))
        devices = {str(number): Device(mean[number], error[number], 0, 0) for number in there}
        return GaussianBackend(devices, _array(self.frame), _array(self.place))

    def measured(self, iq: NDArray[np.complexfloating[Any, Any]], there: Any = None) -> tuple[Real, Real]:
        """θ̂ (N, d) and its errors (N, d, d), or their diagonals (N, d); NaN of frames that could not be measured."""
        raise NotImplementedError

    def fit(self, frames: Frames) -> None:
        """Learn the devices, and how frames and places differ."""
        value, error, good = self._all_measured(frames)
        place = frames.environment * len(frames.captures) + frames.capture
        there, device = np.unique(frames.device[good], return_inverse=True)
        names = [str(number) for number in there]
        backend = fit_backend(value[good], error[good], device, place[good], names, **self.expected())
        size = error[good].sum(axis=1) if error.ndim == 2 else np.trace(error[good], axis1=1, axis2=2)
        usual = np.argsort(size)[len(size) // 2]
        if self.bars:
            self.frame_error = error[good][np.linspace(0, good.sum() - 1, min(ERRORS, good.sum())).astype(np.int64)]
        self.set_backend(backend, full(error[good][usual : usual + 1])[0])

    @property
    def can_measure(self) -> bool:
        """Whether what it measures with is possible."""
        return True

    def expected(self) -> dict[str, Any]:
        """What `fit_backend` is to know of places and frames beforehand."""
        return {}

    def _all_measured(self, frames: UnlabelledFrames) -> tuple[Real, Real, NDArray[np.bool_]]:
        """Values and errors of all frames, and which could be measured."""
        at_once = max(1, min(BATCH, AT_ONCE // (frames.antennas * frames.samples)))
        parts = [self.measured(part.iq) for part in frames.batches(at_once)]
        value, error = (np.concatenate(own) for own in zip(*parts, strict=True))
        return value, error, np.isfinite(value).all(axis=1)

    def set_backend(self, backend: GaussianBackend, error: Real) -> None:
        """Take over a back-end, whose devices have the names of their numbers; the others have no mean.

        error: (d, d) of a source frame's measurement, as it usually is.
        """
        numbers = [int(name) for name in backend.devices]
        devices = list(backend.devices.values())
        mean, uncertain = np.full(self.mean.shape, np.nan), np.zeros(self.error.shape)
        mean[numbers] = [device.mean for device in devices]
        uncertain[numbers] = [device.error for device in devices]
        centre = mean[numbers].mean(axis=0)
        whiten = np.linalg.inv(np.linalg.cholesky(backend.frame + backend.place + error))
        row = (mean - centre) @ whiten.T
        bias = np.nan_to_num(-(row**2).sum(axis=1) / 2, nan=-NEVER)
        state = {
            "mean": mean,
            "error": uncertain,
            "frame": backend.frame,
            "place": backend.place,
            "centre": centre,
            "whiten": whiten,
            "classifier.weight": np.nan_to_num(row)[None],
            "classifier.bias": bias[None],
        }
        self.load_state_dict(self.state_dict() | {name: torch.from_numpy(value) for name, value in state.items()})

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Refuse what no fit can have made: a file may hold anything."""
        found = super().load_state_dict(state_dict, strict, assign)
        known = _array(self.error)[np.isfinite(_array(self.mean)).all(axis=1)]
        rest = [_array(value) for value in (self.error, self.frame, self.place, self.centre, self.whiten)]
        try:
            if not len(known) or not all(np.isfinite(value).all() for value in rest) or not self.can_measure:
                raise np.linalg.LinAlgError
            np.linalg.cholesky(_array(self.frame) + _array(self.place) + known)
        except np.linalg.LinAlgError:
            raise ModelError(
                "the closed form of this model holds numbers that are no covariances. Restore its file, or train it "
                "again."
            ) from None
        return found

    def gaussians(self) -> dict[str, Real]:
        """The back-end in the units of the embedding, as `SourceStatistics` names it."""
        w = _array(self.whiten)
        place = w @ _array(self.place) @ w.T
        known: dict[str, Real] = {} if self.frame_error is None else {"frame_error": w @ self.frame_error @ w.T}
        return known | {
            "device_mean": (_array(self.mean) - _array(self.centre)) @ w.T,
            "device_error": w @ _array(self.error) @ w.T,
            # Without bars the usual error of a frame is part of S: S + P + R are whitened.
            "frame_spread": w @ _array(self.frame) @ w.T if self.bars else np.eye(len(w)) - place,
            "place_spread": place,
        }

    def with_devices(self, mean: Real, error: Real) -> dict[str, Tensor]:
        """What `mean` and `error` are for devices (C, D) and (C, D, D) in the units of the embedding."""
        w = np.linalg.inv(_array(self.whiten))
        return {
            "mean": torch.from_numpy(mean @ w.T + _array(self.centre)),
            "error": torch.from_numpy(w @ error @ w.T),
        }

    def forward(self, iq: Tensor, descriptor: Tensor | None = None, mask: Tensor | None = None) -> Output:
        """iq (N, A, T, 2), mask (N, A). A frame that cannot be measured says nothing: zeros, with an infinite error."""
        received = torch.view_as_complex(iq.detach().float().cpu().contiguous()).numpy()
        value, error = self.measured(received, None if mask is None else mask.cpu().numpy())
        good: NDArray[np.bool_] = np.all(np.isfinite(value), axis=1)
        backend = self.backend
        known = backend.log_likelihood(backend.evidence(value[good], error[good]))
        logits = np.zeros((len(value), len(self.mean)), dtype=np.float32)
        logits[good] = known.min(axis=1, keepdims=True) - NEVER
        logits[np.flatnonzero(good)[:, None], [int(name) for name in backend.devices]] = known
        whiten = _array(self.whiten)
        embedding = np.where(good[:, None], (value - _array(self.centre)) @ whiten.T, 0).astype(np.float32)
        z, scores = (torch.from_numpy(part).to(iq.device) for part in (embedding, logits))
        if not self.bars:
            return Output(z, scores)
        own = np.where(good[:, None, None], whiten @ error @ whiten.T, np.inf).astype(np.float32)
        return Output(z, scores, error=torch.from_numpy(own).to(iq.device))


def _array(value: Tensor) -> Real:
    return np.asarray(value.cpu().numpy())


class FlawsInClosedForm(ClosedForm):
    """Of frames that begin with a waveform that is known: the flaws of the transmitter."""

    def __init__(self, estimator: FlawEstimator, classes: int, runs: int = 1) -> None:
        super().__init__(2 * sum(FLAWS[name].role == "identity" for name in estimator.flaws), classes, runs)
        self.estimator = estimator
        self._fits: ChanceOf | None = None

    def measured(self, iq: NDArray[np.complexfloating[Any, Any]], there: Any = None) -> tuple[Real, Real]:
        """Errors are wider by the misfit."""
        found = self.estimator.measure(iq, there)
        value, error = found.features()
        return value, error * np.maximum(1, found.misfit)[:, None, None]

    @property
    def identity(self) -> tuple[str, ...]:
        """The flaws that devices are told apart by."""
        return tuple(name for name in self.estimator.flaws if FLAWS[name].role == "identity")

    def fits(self, iq: NDArray[np.complexfloating[Any, Any]], there: Any = None) -> Real:
        """(N,) chance that a frame of a known waveform leaves as much unexplained: the test of `pisa measure`."""
        if self._fits is None:
            self._fits = fit_test(self.estimator)
        return self._fits(iq, there)

    def in_own_units(self, embedding: Real, error: Real) -> tuple[Real, Real]:
        """θ̂ (N, d) and its errors (N, d, d), of embeddings with theirs."""
        w = np.linalg.inv(_array(self.whiten))
        return embedding @ w.T + _array(self.centre), w @ error @ w.T

    def by_name(self, value: Real, covariance: Real) -> tuple[dict[str, complex], dict[str, float]]:
        """θ (d,) of the identity flaws by name, and the variance of each."""
        (real, imaginary), variance = np.split(value, 2), np.add(*np.split(np.diag(covariance), 2))
        return (
            dict(zip(self.identity, (real + 1j * imaginary).tolist(), strict=True)),
            dict(zip(self.identity, variance.tolist(), strict=True)),
        )


class ChannelInClosedForm(ClosedForm):
    """Of channel state: what gain, phase and slope of each antenna, and the channels of places, leave of the hardware.

    noise: s² of the source, see `ChannelState.noise_level`.
    """

    measures = "channel state"
    bars = False
    noise: Tensor

    def __init__(self, subcarriers: Subcarriers, antennas: int, classes: int, runs: int = 1) -> None:
        super().__init__(2 * len(subcarriers.numbers), classes, runs)
        self.numbers, self.spacing_hz = np.array(subcarriers.numbers), subcarriers.spacing_hz
        self.antennas = antennas
        self.register_buffer("noise", torch.zeros((), dtype=torch.float64))

    def measured(self, iq: NDArray[np.complexfloating[Any, Any]], there: Any = None) -> tuple[Real, Real]:
        """Of frames without an antenna that holds anything: NaN."""
        csi = iq if there is None else np.where(np.asarray(there)[..., None], iq, 0)
        holds = np.any(np.isfinite(csi).all(axis=2) & csi.any(axis=2), axis=1)
        value, variance = np.full((2, len(csi), 2 * len(self.numbers)), np.nan)
        if holds.any():
            state = channel_state(csi[holds], self.numbers)
            value[holds], variance[holds] = state.features(float(self.noise))
        return value, variance

    @property
    def can_measure(self) -> bool:
        return 0 < float(self.noise) < np.inf

    def fit(self, frames: Frames) -> None:
        self.noise.fill_(noise_of(frames))
        super().fit(frames)

    def expected(self) -> dict[str, Any]:
        return {"place_prior": place_prior(self.numbers, self.spacing_hz, self.antennas), "white": WHITE}


def noise_of(frames: Frames) -> float:
    """s² of channel state, from some frames of each recording."""
    recordings = groups_of(frames)
    counts = [min(NOISE_FRAMES, len(own)) for own in recordings]
    some = [own[np.linspace(0, len(own) - 1, n).astype(int)] for own, n in zip(recordings, counts, strict=True)]
    assert frames.subcarriers is not None
    state = channel_state(frames.select(np.concatenate(some)).iq, np.array(frames.subcarriers.numbers))
    return state.noise_level(np.repeat(np.arange(len(counts)), counts))


def check_holds(frames: Frames, reference: SentReference) -> None:
    """Refuse frames if most of them do not hold the reference."""
    rows = np.unique(np.linspace(0, len(frames) - 1, LOOKED_AT).astype(int))
    found = [align(reference, frames.select(rows[k : k + 1]).iq[0]).over_chance for k in range(len(rows))]
    if np.median(found) < OVER_CHANCE:
        raise DataError(
            f"closed form: the reference does not stand out in most of the frames ({np.median(found):.1f} times the "
            f"chance level in the median, expected {OVER_CHANCE:g}). See that it is what was sent, at this sample rate."
        )


@register_method("closed-form")
class ClosedFormMethod(BehindPreamble, Method):
    """The flaws of the hardware in closed form: measured by least squares, each device a Gaussian. No epochs.

    y_a = h_a ∗ (x + Σ_j θ_j b_j(x)) + w_a (`signal.measurement`), θ ~ N(μ_k, S + P + R_n) (`model.gaussian`).

    The frame has to begin with the preamble. Carrier offset is measured and left out of the identity.

    Of channel state, θ is its logarithm without gain, phase and slope of each antenna, averaged over the antennas by
    power, and P begins with what a short channel may add (`signal.measurement.channel_state`).
    """

    Settings = ClosedFormSettings
    title = "Closed form"
    citation = "method of this software"
    as_reported = True
    in_epochs = False
    settings: ClosedFormSettings

    def build(self, runs: int = 1) -> nn.Module:
        setup = self.setup
        if setup.domain != TIME and self.settings.waveform == AUTO:
            if setup.subcarriers is None:
                raise ConfigError(
                    "closed form: these frames do not say which subcarriers they hold. Import them again from the "
                    "original files."
                )
            return ChannelInClosedForm(setup.subcarriers, setup.geometry.antennas, setup.classes, runs)
        if self._is_keyed:
            from pisa_capc.model.methods.keyed import KeyedInClosedForm

            return KeyedInClosedForm(self._keyed_estimator, setup.classes, runs)
        if self._against_reference:
            from pisa_capc.signal.measurement.reference import ReferenceEstimator

            return FlawsInClosedForm(ReferenceEstimator(self._reference, setup.samples), setup.classes, runs)
        waveform, rate = WAVEFORMS[waveform_of(self.settings, setup)], setup.sample_rate_hz
        if waveform.sample_rate_hz != rate:
            raise ConfigError(
                f"closed form: {waveform.title} is known at {waveform.sample_rate_hz:g} samples/s, the frames have "
                f"{rate:g}. Name the waveform that was sent, or resample the frames."
            )
        return FlawsInClosedForm(estimator_of(waveform, setup.samples), setup.classes, runs)

    @property
    def whole_frames(self) -> bool:
        return self._is_keyed or self._against_reference

    @property
    def _against_reference(self) -> bool:
        return self.settings.waveform.startswith(REFERENCE)

    @property
    def _reference(self) -> SentReference:
        """What was sent; it has to be the one that the setting names."""
        found, named = self.setup.reference, self.settings.waveform
        if found is None or found.name != named:
            raise ConfigError(
                f"waveform {named}: found {'no waveform' if found is None else found.name}; expected the samples that "
                "were sent. Train with --reference FILE."
            )
        if found.sample_rate_hz != self.setup.sample_rate_hz:
            raise ConfigError(
                f"closed form: the reference has {found.sample_rate_hz:g} samples/s, the frames "
                f"{self.setup.sample_rate_hz:g}. Resample one of them, or correct its --sample-rate."
            )
        return found

    @property
    def _is_keyed(self) -> bool:
        """On-off keying is what is left to measure where no preamble has the sample rate of the frames."""
        rates = {waveform.sample_rate_hz for waveform in WAVEFORMS.parts().values()}
        return self.settings.waveform.startswith(KEYED) or (
            self.settings.waveform == AUTO and self.setup.sample_rate_hz not in rates and self.setup.domain == TIME
        )

    @property
    def _keyed_estimator(self) -> Any:
        from pisa_capc.model.methods.keyed import keyed_estimator

        named = self.settings.waveform if self.settings.waveform.startswith(KEYED) else KEYED
        return keyed_estimator(named, self.setup.sample_rate_hz)

    def check_source(self, frames: Frames) -> None:
        if self._is_keyed:
            from pisa_capc.model.methods.keyed import check_keyed

            check_keyed(frames, self._keyed_estimator)
        elif self._against_reference:
            check_holds(frames, self._reference)
        elif self.setup.domain == TIME:
            super().check_source(frames)

    def solve(self, frames: Frames) -> nn.Module:
        network = self.build()
        assert isinstance(network, ClosedForm)
        network.fit(frames)
        return network
