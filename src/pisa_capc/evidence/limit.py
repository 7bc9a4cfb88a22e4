"""The limit: how well devices can be told apart by a receiver that knows the hardware of each of them.

An informed receiver has what no trained model has: the profile of every device, hence the waveform x_k that leaves it.
Of a frame it does not know the channel, the phase and the frequency offset that correction has left. It estimates them
by least squares under each hypothesis and decides by what then remains unexplained, a generalised likelihood-ratio
test (Kay, Fundamentals of Statistical Signal Processing II, 1998, ch. 6):

    y_a[n] = e^{j2πfn} Σ_l h_a[l] x_k[n − l] + w_a[n],    w_a white and Gaussian, of unknown power on each antenna a
    R_a(k, f) = min_h ‖y_a − e^{j2πfn} (x_k ∗ h)‖² = ‖y_a‖² − ‖Q_kᴴ e^{−j2πfn} y_a‖²
    ln Λ(k) = max_f −T Σ_a ln R_a(k, f),    k̂ = argmax_k ln Λ(k)

Q_k (T, r) is an orthonormal basis of x_k behind all channels of the stated taps; a timing error is covered by them, and
the phase by their being complex. f is common to the antennas of a frame (one oscillator at either end), or of each.

What it assumes. Taps stand still over the frame: true of 320 samples, not of thousands. Noise is white, which the walk
of the oscillator's phase is not; most of that is taken for frequency and channel. All devices are as likely. The
residual frequency identifies no device, unless `profile_cfo` gives the receiver the CFO of each profile as
well; correction leaves a part of it. Then f has the density p_k, normal around that and as wide as places, captures,
jitter and the slope of the phase's walk make it, and is integrated over (by Laplace's method) instead of maximised.

How to read it. What it tells apart is in the frames, and a model that does not has not found it. It is no strict bound
on what could be told: a receiver that also used how channels fade, or how phases walk, would do a little better.

Cost: K (G + 7) T r complex multiplications for each frame and antenna, with G points of the frequency grid: about a
millisecond a frame for ten devices, 320 samples and the 18 taps of Wi-Fi.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pisa_capc.core.config import from_mapping
from pisa_capc.core.engines import run_jobs
from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.core.progress import progress
from pisa_capc.data.frames import MODEL_SAMPLES
from pisa_capc.data.scores import CaptureScore, Scores, score
from pisa_capc.data.store.native import CaptureSpec, Dataset, StoreSource
from pisa_capc.data.store.signature import check_signature
from pisa_capc.signal.measurement.rebuilt import typical
from pisa_capc.signal.simulation.capture import device_profile, recording_snr_db
from pisa_capc.signal.simulation.channel import LONGEST_DELAY_SPREADS
from pisa_capc.signal.simulation.hardware import DeviceProfile, transmit
from pisa_capc.signal.simulation.scene import Scene
from pisa_capc.signal.waveforms import WAVEFORMS
from pisa_capc.signal.waveforms.delays import delayed_copies

Complex = NDArray[np.complex128]
TOLERANCE = 1e-3  # of the largest singular value; what is smaller lies outside the band, where no sane channel shows
GRID_PER_CYCLE = 16  # points of the frequency grid while the phase turns once over the frame
KERNEL_SAMPLES = 4.0  # tails of a fractional delay at full bandwidth; less where the signal is oversampled
LEAST_SHARED = 128  # samples of a preamble, by which the limit is taken where all frames share fewer than models see
READ_AHEAD = 32  # samples that the waveform is computed beyond the frame, so that its filters are whole
SNR_STEP_DB = 3
SHARING = ("frame", "antenna")


@dataclass(frozen=True)
class KnownChannel:
    """R = ‖y − x_k‖²: the channel is known, and is in `sent` (K, T) already."""

    sent: Complex

    def residual(self, y: Complex, k: int) -> NDArray[np.float64]:
        """(…,) of frames (…, T)."""
        return np.asarray((np.abs(y - self.sent[k]) ** 2).sum(-1))

    def __len__(self) -> int:
        return len(self.sent)


@dataclass(frozen=True)
class UnknownChannel:
    """R = ‖y‖² − ‖Q_kᴴ y‖², basis (K, T, r): the channel that explains the most."""

    basis: Complex

    @classmethod
    def of_taps(cls, sent: Complex, samples: int, before: int, after: int) -> UnknownChannel:
        """Channels with taps at −before … after samples; sent (K, T + before or more) from the frame's first sample on.

        All hypotheses keep the same number of dimensions, so that none can explain more noise than another.
        """
        if before < 0 or after < 0 or sent.shape[-1] < samples + before:
            raise ConfigError(
                f"taps −{before} … {after} of frames of {samples} samples: expected {samples + before} samples of what "
                f"was sent or more, found {sent.shape[-1]}."
            )
        echoes = delayed_copies(sent, samples, before, after)[:, ::-1]  # (K, taps, T)
        found = [np.linalg.svd(rows.T, full_matrices=False)[:2] for rows in echoes]
        rank = min(int(np.sum(values > TOLERANCE * values[0])) for _, values in found)
        return cls(np.stack([vectors[:, :rank] for vectors, _ in found]))

    def residual(self, y: Complex, k: int) -> NDArray[np.float64]:
        """(…,) of frames (…, T)."""
        explained = (np.abs(y @ self.basis[k].conj()) ** 2).sum(-1)
        return np.asarray((np.abs(y) ** 2).sum(-1) - explained)

    def __len__(self) -> int:
        return len(self.basis)


@dataclass(frozen=True)
class FrequencyPrior:
    """p_k(f): normal with these means and standard deviations (K,), in cycles per sample."""

    mean: NDArray[np.float64]
    std: NDArray[np.float64]

    def log(self, f: NDArray[np.float64]) -> NDArray[np.float64]:
        """ln p_k of (…, K), but for a constant."""
        return np.asarray(-(((f - self.mean) / self.std) ** 2) / 2 - np.log(self.std))


@dataclass(frozen=True)
class InformedReceiver:
    """The test above. span: largest |f| that is looked for, in cycles per sample; zero where f is known and gone.

    sharing: whether one f is of all antennas of a frame, or of each antenna. prior: what is known of f beforehand.
    """

    channel: KnownChannel | UnknownChannel
    span: float = 0.0
    sharing: str = "frame"
    prior: FrequencyPrior | None = None

    def __post_init__(self) -> None:
        if self.sharing not in SHARING:
            raise ConfigError(unknown_name("sharing of the frequency", self.sharing, SHARING))

    def log_likelihood(self, y: Complex) -> NDArray[np.float64]:
        """(N, K) ln Λ of frames (N, A, T): logits of the devices, all as likely beforehand."""
        if self.sharing == "antenna":
            frames, antennas, samples = y.shape
            each = self._best(np.reshape(y, (frames * antennas, 1, samples)))
            return np.asarray(each.reshape(frames, antennas, -1).sum(1))
        return self._best(y)

    def _best(self, y: Complex) -> NDArray[np.float64]:
        devices, samples = len(self.channel), y.shape[-1]
        if self.span == 0:
            return self._value(y, np.zeros((1, devices)))
        step = 1 / (GRID_PER_CYCLE * samples)
        points = int(np.ceil(self.span / step))
        grid = step * np.arange(-points, points + 1)
        values = np.stack([self._value(y, np.full((1, devices), f)) for f in grid])
        f = grid[values.argmax(0)]
        for half in (step / 2, step / 8):  # the lowest point of a parabola through three, twice
            frequencies = [f + offset for offset in (-half, 0.0, half)]
            left, middle, right = (self._residual(y, at) for at in frequencies)
            # Near f, ln R is R over its middle value, but for a constant; a parabola, unlike ln R, also without noise.
            costs = [samples * (own / middle).sum(1) for own in (left, middle, right)]
            if self.prior is not None:
                costs = [cost - self.prior.log(at) for cost, at in zip(costs, frequencies, strict=True)]
            bend = np.maximum(costs[0] - 2 * costs[1] + costs[2], np.finfo(np.float64).tiny)
            f = f + np.clip(half / 2 * (costs[0] - costs[2]) / bend, -2 * half, 2 * half)
        best = self._value(y, f)
        return best if self.prior is None else best - np.log(bend / half**2) / 2

    def _value(self, y: Complex, f: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N, K) ln Λ at the frequencies (N, K) of each frame and hypothesis, or (1, K) of all frames."""
        values = -y.shape[-1] * np.log(self._residual(y, f)).sum(1)
        return np.asarray(values if self.prior is None else values + self.prior.log(f))

    def _residual(self, y: Complex, f: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N, A, K) R at the same frequencies."""
        least = 1e-14 * (np.abs(y) ** 2).sum(-1)  # what rounding leaves of a frame that is explained entirely
        found = np.empty((*y.shape[:2], len(self.channel)))
        turned = y
        for k in range(len(self.channel)):
            if k == 0 or len(f) > 1:
                turned = y * np.exp(-2j * np.pi * f[:, k, None, None] * np.arange(y.shape[-1]))
            found[..., k] = np.maximum(self.channel.residual(turned, k), least)
        return found


@dataclass(frozen=True)
class Limit:
    """What the informed receiver reaches: scores in all, by capture, and by the SNR of the recordings.

    taps: first and last of the channel that it estimates. frames: looked at of each recording.
    """

    scores: Scores
    by_snr: dict[str, CaptureScore]
    samples: int
    frames: int
    taps: tuple[int, int]
    profile_cfo: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "frames": self.frames,
            "taps": list(self.taps),
            "profile_cfo": self.profile_cfo,
            **self.scores.to_json(),
            "per_snr": {name: vars(own) for name, own in self.by_snr.items()},
        }


def limit(
    data: Annotated[str | Path, "Dataset that `pisa simulate` made."],
    *,
    environment: Annotated[str | None, "Environment: the one whose frames are decided on; default all."] = None,
    samples: Annotated[
        int, "Samples of a frame; the first ones, which the receiver sees as the models do."
    ] = MODEL_SAMPLES,
    frames: Annotated[int, "Frames of each recording: so many, evenly spread."] = 64,
    profile_cfo: Annotated[bool, "Let the receiver know the CFO of each device too."] = False,
    workers: Annotated[int | None, "Processes at a time: by default one per core."] = None,
    show_progress: bool = True,
) -> Limit:
    """The scores of the informed receiver on a simulated dataset, whose devices are known from its provenance."""
    folder = Path(data)
    dataset = Dataset.read(folder)
    check_signature(folder)
    scene, seed = scene_of(dataset, folder)
    if frames < 1:
        raise ConfigError(f"frames: expected at least 1, found {frames}.")
    if profile_cfo and dataset.provenance.get("cfo_from"):
        raise ConfigError(f"{folder}: its CFO was recorded elsewhere, not the profiles'. Leave out profile_cfo.")
    known = sorted({spec.environment for spec in dataset.captures})
    if environment is not None and environment not in known:
        raise ConfigError(f"{folder}: " + unknown_name("environment", environment, known))
    specs = [spec for spec in dataset.captures if environment in (None, spec.environment)]
    devices = sorted({spec.device for spec in dataset.captures})
    waveform = WAVEFORMS[scene.waveform.kind]
    receiver: LimitReceiver
    if waveform.head(samples + READ_AHEAD) is None and (example := typical(waveform, dataset.samples)) is not None:
        samples = min(samples, len(example))
        receiver, read = BitsKnown(scene, seed, tuple(devices), samples, profile_cfo), dataset.samples
        _, taps = receiver_of(scene, seed, devices, samples, profile_cfo, example)
    else:
        shared = len(waveform.preamble()) - 2 * READ_AHEAD  # and what a channel has before its first arrival
        if samples == MODEL_SAMPLES and waveform.head(samples + READ_AHEAD) is None and shared >= LEAST_SHARED:
            samples = min(samples, shared)
        receiver, taps = receiver_of(scene, seed, devices, samples, profile_cfo)
        read = samples
    jobs = [(folder, dataset, spec, receiver, read, frames) for spec in specs]
    found: dict[CaptureSpec, NDArray[np.float64]] = {}
    with progress("limit", len(jobs), show=show_progress) as bar:
        for spec, values in run_jobs(decide, jobs, workers=workers):
            found[spec] = values
            bar.advance(1, spec.name)
    outputs = np.concatenate([found[spec] for spec in specs])
    counts = [len(found[spec]) for spec in specs]
    label = np.repeat([devices.index(spec.device) for spec in specs], counts)
    capture = np.repeat([f"{spec.environment}/{spec.capture}" for spec in specs], counts)
    snr = np.repeat([_snr_name(recording_snr_db(scene, seed, spec)) for spec in specs], counts)
    return Limit(
        scores=score(outputs, label, devices, capture),
        by_snr=score(outputs, label, devices, snr).per_capture,
        samples=samples,
        frames=frames,
        taps=taps,
        profile_cfo=profile_cfo,
    )


def scene_of(dataset: Dataset, folder: Path) -> tuple[Scene, int]:
    """The scene and the seed that a simulated dataset was made with."""
    made = dataset.provenance
    if not isinstance(made.get("scene"), dict) or not isinstance(made.get("seed"), int):
        raise DataError(f"{folder}: not made by `pisa simulate`, so the hardware of its devices is unknown.")
    return from_mapping(Scene, made["scene"]), made["seed"]


class LimitReceiver(Protocol):
    def log_likelihood(self, y: Complex) -> NDArray[np.float64]:
        """(N, K) ln Λ of frames (N, A, T)."""
        ...


@dataclass(frozen=True)
class BitsKnown:
    """An informed receiver for each frame, where its bits tell what the devices would have sent (`Waveform.rebuilt`).

    A frame whose bits cannot be decided tells nothing: all devices are as likely.
    """

    scene: Scene
    seed: int
    devices: tuple[str, ...]
    samples: int
    profile_cfo: bool

    def log_likelihood(self, y: Complex) -> NDArray[np.float64]:
        found = np.zeros((len(y), len(self.devices)))
        for n, sent in enumerate(WAVEFORMS[self.scene.waveform.kind].rebuilt(y)):
            if sent is not None:
                own = self.scene, self.seed, list(self.devices), min(self.samples, len(sent)), self.profile_cfo
                receiver, _ = receiver_of(*own, sent)
                found[n] = receiver.log_likelihood(y[n : n + 1, :, : own[3]])[0]
        return found


def receiver_of(
    scene: Scene, seed: int, devices: list[str], samples: int, profile_cfo: bool, sent: Complex | None = None
) -> tuple[InformedReceiver, tuple[int, int]]:
    """The receiver of a scene's first `samples` samples, and the first and last tap it estimates.

    sent: what a frame sends before any hardware; by default what all have in common.

    Taps reach from the tails of a fractional delay before the first arrival to those behind the last that any
    environment has. The frequency is sought as far as the scene's limits and four deviations of its jitter.
    """
    signal, frequency = scene.waveform, scene.frequency
    profiles = [device_profile(scene, seed, device) for device in devices]
    longest_s = max(LONGEST_DELAY_SPREADS * own.delay_spread_s.high for own in scene.environments.values())
    tails = int(np.ceil(KERNEL_SAMPLES * signal.occupied))
    taps = (-tails, tails + int(np.ceil(longest_s * signal.sample_rate_hz)))
    channel = UnknownChannel.of_taps(sent_waveforms(scene, profiles, samples + tails, sent), samples, tails, taps[1])
    left_hz_per_ppm = frequency.residual_fraction * signal.carrier_hz * 1e-6
    farthest_ppm = sum(
        max(-spread.low, spread.high)
        for spread in (scene.hardware.cfo_ppm, frequency.environment_ppm, frequency.capture_ppm)
    )
    span_hz = left_hz_per_ppm * farthest_ppm + 4 * frequency.residual_jitter_hz.high
    prior = None
    if profile_cfo:
        # A line through a Wiener process of variance 2πβ a second, over T seconds, has a slope of variance 6·2πβ/(5T).
        linewidth_hz = np.array([own.linewidth_hz for own in profiles])
        walk_hz2 = 6 / 5 * linewidth_hz * signal.sample_rate_hz / samples / (2 * np.pi)
        place_ppm2 = frequency.environment_ppm.std**2 + frequency.capture_ppm.std**2
        jitter_hz2 = frequency.residual_jitter_hz.mean**2 + frequency.residual_jitter_hz.std**2
        prior = FrequencyPrior(
            left_hz_per_ppm * np.array([own.cfo_ppm for own in profiles]) / signal.sample_rate_hz,
            np.sqrt(left_hz_per_ppm**2 * place_ppm2 + jitter_hz2 + walk_hz2) / signal.sample_rate_hz,
        )
    return InformedReceiver(channel, span_hz / signal.sample_rate_hz, prior=prior), taps


def sent_waveforms(scene: Scene, profiles: list[DeviceProfile], samples: int, sent: Complex | None = None) -> Complex:
    """(K, samples) what leaves each device, without CFO and phase noise, where it sends what all frames begin with."""
    waveform = WAVEFORMS[scene.waveform.kind]
    head = waveform.head(samples + READ_AHEAD) if sent is None else np.pad(sent, (0, samples + READ_AHEAD))
    if head is None:
        raise ConfigError(
            f"samples: beyond what all {scene.waveform.kind} frames share the receiver would have to know the payload; "
            f"expected fewer, found {samples}."
        )
    return np.stack([transmit(head, own, waveform.occupied)[:samples] for own in profiles]).astype(np.complex128)


def decide(
    folder: Path, dataset: Dataset, spec: CaptureSpec, receiver: LimitReceiver, samples: int, frames: int
) -> tuple[CaptureSpec, NDArray[np.float64]]:
    """One job: ln Λ (n, K) of some frames of one recording."""
    source = StoreSource(folder, dataset)
    first = int(source.starts[dataset.captures.index(spec)])
    rows = first + np.linspace(0, spec.frames - 1, min(frames, spec.frames)).astype(np.int64)
    with threadpool_limits(1):
        return spec, np.concatenate([receiver.log_likelihood(y) for y in _pieces(source.read_iq(rows, samples))])


def _pieces(iq: NDArray[np.complex64]) -> Iterator[Complex]:
    """A few frames at a time, so that working copies stay small."""
    step = max(1, 2**18 // iq[0].size)
    for start in range(0, len(iq), step):
        yield iq[start : start + step].astype(np.complex128)


def _snr_name(snr_db: float) -> str:
    low = SNR_STEP_DB * int(np.floor(snr_db / SNR_STEP_DB))
    return f"{low} to {low + SNR_STEP_DB} dB"
