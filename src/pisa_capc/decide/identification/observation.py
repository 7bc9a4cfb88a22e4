"""Frames that were found in recordings, as a trained model is to see them."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.brief import brief
from pisa_capc.core.errors import DataError, ModelError
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.data.sources import CfoTrace, Iq, MemorySource, Rows
from pisa_capc.data.store.dataset import TIME
from pisa_capc.decide.identification.tracks import tracks
from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.methods.equaliser import AUTO
from pisa_capc.signal.detection import Found, FoundFrame
from pisa_capc.signal.detection.dataset import without_cfo
from pisa_capc.signal.recordings import About
from pisa_capc.signal.recordings.base import FileRecording
from pisa_capc.signal.waveforms import WAVEFORMS, Waveform

CARRIER_HZ = 5.825e9  # where a recording does not say it: only the tolerance of `tracks` depends on it
SAME_PLACE = 1e-3  # wavelengths between antennas that are taken to be where the model has them


@dataclass(frozen=True, eq=False)
class Observed:
    """Frames found in recordings, one recording after the other, each in time order.

    frames: what a model sees of them. found: the recordings. recording: (N,) the number of each frame's.
    about: what was found out of each frame. track: (N,) frames of one sender, as `tracks` has them.
    """

    frames: UnlabelledFrames
    found: tuple[Found, ...]
    recording: NDArray[np.int64]
    about: tuple[FoundFrame, ...]
    track: NDArray[np.int64]

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.about)

    @cached_property
    def start(self) -> NDArray[np.int64]:
        """(N,) first sample of each frame in its recording."""
        return np.array([frame.start for frame in self.about], dtype=np.int64)

    @cached_property
    def time_s(self) -> NDArray[np.float64]:
        """(N,) since the first sample of each frame's recording."""
        return np.array([frame.time_s for frame in self.about])

    @cached_property
    def address(self) -> list[str | None]:
        """Whom each frame claims to be from."""
        return [frame.claimed for frame in self.about]


def waveform_of(trained: TrainedModel) -> str | Waveform:
    """What the model was trained on: what it keeps, as its equaliser was told, else the waveform of its sample rate."""
    if trained.reference is not None:
        return trained.reference
    named, rate = trained.run.settings.get("waveform", AUTO), trained.run.sample_rate_hz
    known = {name: waveform.sample_rate_hz for name, waveform in WAVEFORMS.parts().items()}
    if named != AUTO:
        return str(named)
    for name, own in known.items():
        if own == rate:
            return name
    raise ModelError(
        f"the model was trained at {rate:g} samples/s, the rate of no waveform that is known "
        f"({', '.join(f'{name}: {own:g}' for name, own in known.items())}). Frames "
        "of any signal are found with --waveform burst, at this rate."
    )


def check_domain(trained: TrainedModel) -> None:
    """Refuse to find frames in samples for a model that takes none."""
    if trained.run.domain != TIME:
        raise ModelError(
            f"the model is of {trained.run.domain}, and recordings and receivers give samples. Give the card's files, "
            "or a dataset of `pisa import csi`, to `pisa identify` or `pisa predict`."
        )


def check_recording(trained: TrainedModel, about: About) -> None:
    """Refuse a recording whose array is not the model's, before it is read."""
    advice = "Give a recording of the same array, or train a model for this one."
    if about.antennas != trained.geometry.antennas:
        raise ModelError(
            f"{about.name}: has {about.antennas} antennas, the model was trained for {trained.geometry.antennas}. "
            f"{advice}"
        )
    if about.geometry is not None:
        off = float(np.abs(about.geometry.distances() - trained.geometry.distances()).max())
        if off > SAME_PLACE:
            raise ModelError(
                f"{about.name}: its antennas stand otherwise than those that the model was trained with; distances "
                f"differ by up to {off:.3g} wavelengths. {advice}"
            )


def observe(
    trained: TrainedModel, found: Sequence[Found], keep_cfo: bool = False, equalise_antennas: bool = False
) -> Observed:
    """Found frames as the model's training set had them: from the preamble on, each antenna's carrier offset taken off.

    keep_cfo: leave the offset in. equalise_antennas: bring every antenna to the same power, as the paper's Wi-Fi set
    has them. Truncated frames are left out with a warning.
    """
    samples, rate = trained.run.samples, trained.run.sample_rate_hz
    for one in found:
        check_recording(trained, one.recording.about)
        if one.waveform.sample_rate_hz != rate:
            raise ModelError(
                f"{one.recording.about.name}: frames of {one.waveform.title} were found, at "
                f"{one.waveform.sample_rate_hz:g} samples/s; the model was trained at {rate:g}. Give a model of this "
                "waveform."
            )
    usable = [(r, frame) for r, one in enumerate(found) for frame in one.frames if _usable(frame, one, samples)]
    left_out = sum(len(one.frames) for one in found) - len(usable)
    if not usable:
        raise _nothing(found, left_out)
    if left_out:
        warnings.warn(
            f"{left_out:,} frames are left out: their recording ends before {samples} samples of them, or no antenna "
            "has a carrier offset.",
            stacklevel=2,
        )
    recording, about = np.array([r for r, _ in usable], dtype=np.int64), tuple(frame for _, frame in usable)
    abouts = [one.recording.about for one in found]
    carrier_hz = abouts[0].carrier_hz or CARRIER_HZ
    cfo_hz = np.array([frame.cfo_hz for frame in about])
    keep_cfo = keep_cfo or getattr(trained.model, "keeps_offset", False)
    senders = [(r, frame.claimed) for r, frame in usable]
    track = tracks(senders, np.nanmedian(cfo_hz, axis=1), carrier_hz)
    order = np.arange(len(about))
    frames = UnlabelledFrames(
        source=_StreamSource(found, recording, about, cfo_hz, track, samples, rate, keep_cfo, equalise_antennas),
        rows=order,
        environment=recording,
        capture=recording,
        frame=order,
        environments=tuple(one.environment or "recording" for one in abouts),
        captures=tuple(one.capture or one.name for one in abouts),
        geometry=trained.geometry,
        sample_rate_hz=rate,
        carrier_hz=carrier_hz,
        samples=samples,
    )
    return Observed(frames, tuple(found), recording, about, track)


def _usable(frame: FoundFrame, found: Found, samples: int) -> bool:
    return frame.at + samples <= found.stream.about.length and bool(np.isfinite(frame.cfo_hz).any())


def _nothing(found: Sequence[Found], left_out: int) -> DataError:
    names = ", ".join(one.recording.about.name for one in found)
    seconds = sum(one.recording.about.length / one.recording.about.sample_rate_hz for one in found)
    short = f", besides {left_out} truncated ones" if left_out else ""
    return DataError(
        f"{names}: no frame of {found[0].waveform.title} was found in {seconds:.3g} s{short}. See whether there are "
        "signals at all, at this sample rate and carrier."
    )


def as_trained(
    iq: NDArray[np.complex64],
    cfo_hz: NDArray[np.float64],
    rate_hz: float,
    keep_cfo: bool = False,
    equalise_antennas: bool = False,
) -> NDArray[np.complex64]:
    """Frames (N, A, T) as received → as the model's training set had them; `iq` may be changed.

    cfo_hz (N, A): how fast the samples turn, the carrier offset and what a chirp between samples adds to it. An antenna
    without a known value is dead, and absent: zero.
    """
    known = np.isfinite(cfo_hz)
    iq[~known] = 0
    if not keep_cfo:
        iq = without_cfo(iq, np.where(known, cfo_hz, 0.0), rate_hz)
    if equalise_antennas:
        power = np.mean(np.abs(iq) ** 2, axis=2, keepdims=True)
        iq = np.divide(iq, np.sqrt(power), out=np.zeros_like(iq), where=power > 0)
    return iq


@dataclass(frozen=True, eq=False)
class _StreamSource:
    """A `FrameSource` that reads frames from their recordings when they are asked for.

    An antenna without a carrier offset is dead, and absent: zero. The carrier is followed along the frames of one
    sender, as in training, where a recording was of one device.
    """

    found: Sequence[Found]
    recording: NDArray[np.int64]
    about: Sequence[FoundFrame]
    cfo_hz: NDArray[np.float64]
    track: NDArray[np.int64]
    samples: int
    rate_hz: float
    keep_cfo: bool
    equalise_antennas: bool

    @property
    def antennas(self) -> int:
        return int(self.cfo_hz.shape[1])

    def read_iq(self, rows: Rows, samples: int, out: Iq | None = None) -> Iq:
        pieces = [self.found[self.recording[i]].read(self.about[i], samples) for i in rows.tolist()]
        iq = np.stack(pieces) if pieces else np.empty((0, self.antennas, samples), dtype=np.complex64)
        turn_hz = np.array([self.about[i].turn_hz for i in rows.tolist()])
        turning_hz = self.cfo_hz[rows] + turn_hz[:, None]
        iq = as_trained(iq, turning_hz, self.rate_hz, self.keep_cfo, self.equalise_antennas)
        if out is None:
            return iq
        out[...] = iq
        return out

    def read_cfo_hz(self, rows: Rows) -> NDArray[np.float64]:
        return self._memory.read_cfo_hz(rows)  # type: ignore[return-value]

    def cfo_traces(self, rows: Rows) -> Iterator[CfoTrace]:
        return self._memory.cfo_traces(rows)

    @cached_property
    def _memory(self) -> MemorySource:
        """The carriers alone; of a dead antenna that of the others, which nothing looks at."""
        array = np.nanmedian(self.cfo_hz, axis=1, keepdims=True)
        known = np.where(np.isfinite(self.cfo_hz), self.cfo_hz, array)
        nothing = np.empty((len(known), self.antennas, 0), dtype=np.complex64)
        return MemorySource(nothing, known, self.track, np.arange(len(known)))


def frames_of_address(
    seen: Observed, recordings: Sequence[FileRecording], address: str | None = None
) -> tuple[UnlabelledFrames, list[dict[str, Any]]]:
    """The frames that claim one address, and their `origin` for `enrol`; without one they must not claim several."""
    claimed = Counter(name for name in seen.address if name is not None)
    if address is None and len(claimed) > 1:
        most = ", ".join(f"{name} ({count})" for name, count in claimed.most_common(12))
        raise DataError(f"frames of {len(claimed)} addresses were found: {most}. Name the device's with --address.")
    wanted = address or next(iter(claimed), None)
    rows = [i for i, name in enumerate(seen.address) if name == wanted]
    if not rows:
        said = ", ".join(name for name, _ in claimed.most_common(12)) or "none"
        raise DataError(f"no frame claims the address {address}; found: {said}.")
    origin = [
        {
            "recording": recording.about.name,
            "sha256": [_sha256(file.path) for file in recording.files],
            "address": wanted,
            "frames": int((seen.recording[rows] == r).sum()),
        }
        for r, recording in enumerate(recordings)
    ]
    return seen.frames.select(rows), origin


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
