"""From recordings to the frames that a trained model sees."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pisa_capc.detect import Detection, Detector
from pisa_capc.errors import DataError, ModelError
from pisa_capc.frames import UnlabelledFrames
from pisa_capc.identify.tracks import tracks
from pisa_capc.inference import TrainedModel
from pisa_capc.methods.equaliser import AUTO
from pisa_capc.phy import Header
from pisa_capc.recordings import About, Recording, resampled
from pisa_capc.sources import MemorySource
from pisa_capc.waveforms import WAVEFORMS, Waveform

BLOCK = 1 << 19  # samples of each antenna that are read at a time
CARRIER_HZ = 5.825e9  # where a recording does not say it: only the tolerance of `tracks` depends on it
SAME_PLACE = 1e-3  # wavelengths between antennas that are taken to be where the model has them

DetectorFor = Callable[[About], Detector]


@dataclass(frozen=True, eq=False)
class Observed:
    """Frames found in recordings, one after the other, each in time order.

    frames: what a model sees of them. abouts: of the recordings. recording: (N,) the number of each frame's.
    start, samples: (N,) its first sample and its length, as far as is known, at the recording's own rate.
    cfo_hz, snr_db: (N, A). header: what each says of itself. track: (N,) frames of one sender, as `tracks` has them.
    cut: frames that were left out because the recording ended too early in them.
    """

    frames: UnlabelledFrames
    abouts: tuple[About, ...]
    recording: NDArray[np.int64]
    start: NDArray[np.int64]
    samples: NDArray[np.int64]
    cfo_hz: NDArray[np.float64]
    snr_db: NDArray[np.float64]
    quality: NDArray[np.float64]
    header: tuple[Header, ...]
    track: NDArray[np.int64]
    cut: int = 0

    def __len__(self) -> int:
        return len(self.start)

    @property
    def time_s(self) -> NDArray[np.float64]:
        """(N,) since the first sample of each frame's recording."""
        return self.start / np.array([about.sample_rate_hz for about in self.abouts])[self.recording]

    @property
    def address(self) -> list[str | None]:
        """Whom each frame claims to be from."""
        return [claimed(header) for header in self.header]


def claimed(header: Header) -> str | None:
    """The transmitter's address; a header with a wrong checksum claims nothing."""
    return None if header.fcs is False else header.transmitter


def waveform_of(trained: TrainedModel) -> Waveform:
    """What the model was trained on: as its equaliser was told, else the waveform of its sample rate."""
    named = trained.about["settings"].get("waveform", AUTO)
    rate = trained.about["sample_rate_hz"]
    for name, waveform in WAVEFORMS.parts().items():
        if name == named or (named == AUTO and waveform.sample_rate_hz == rate):
            return waveform
    raise ModelError(
        f"the model was trained at {rate:g} samples/s, which is no waveform's rate; known are "
        f"{', '.join(f'{name} ({w.sample_rate_hz:g})' for name, w in WAVEFORMS.parts().items())}. "
        "Frames of other waveforms cannot be found in recordings."
    )


def check_recording(trained: TrainedModel, about: About) -> None:
    """Refuse a recording whose array is not the model's."""
    if about.antennas != trained.geometry.antennas:
        raise ModelError(
            f"{about.name}: has {about.antennas} antennas, the model was trained for {trained.geometry.antennas}. "
            "Give a recording of the same array, or train a model for this one."
        )
    if about.geometry is not None:
        off = np.abs(about.geometry.distances() - trained.geometry.distances()).max()
        if off > SAME_PLACE:
            raise ModelError(
                f"{about.name}: its antennas stand otherwise than those the model was trained with; distances differ "
                f"by up to {off:.3g} wavelengths. Give a recording of the same array, or train a model for this one."
            )


def observe(
    trained: TrainedModel,
    recordings: Sequence[Recording],
    detector: DetectorFor,
    keep_cfo: bool = False,
    after_block: Callable[[int], None] = lambda samples: None,
) -> Observed:
    """Find the frames of recordings and cut them as the model's training set had them.

    Frames begin with their preamble, and each antenna's carrier offset is taken off, unless `keep_cfo`. They wait in a
    temporary file, so that a recording may be of any length. after_block: called with the samples of each block.
    """
    samples, rate = int(trained.about["samples"]), float(trained.about["sample_rate_hz"])
    for recording in recordings:
        check_recording(trained, recording.about)
    heard = [resampled(recording, rate, waveform_of(trained).occupied) for recording in recordings]
    found: list[Detection] = []  # without their samples
    number: list[int] = []
    cut = 0
    with tempfile.TemporaryFile() as spool:
        for r, recording in enumerate(heard):
            for detection in _detections(recording, detector(recording.about), after_block):
                if detection.iq.shape[1] < samples:
                    cut += 1
                    continue
                iq = detection.iq[:, :samples]
                spool.write((iq if keep_cfo else without_cfo(iq, detection.cfo_hz, rate)).astype("<c8").tobytes())
                found.append(replace(detection, iq=np.empty((0, 0), np.complex64)))
                number.append(r)
        if not found:
            raise _nothing(recordings, cut)
        spool.flush()
        shape = (len(found), trained.geometry.antennas, samples)
        iq = np.memmap(spool, dtype="<c8", mode="r", shape=shape)  # lives on when the file's name and handle are gone
    return _observed(trained, tuple(one.about for one in recordings), np.array(number), found, iq, cut)


def without_cfo(iq: NDArray[np.complex64], cfo_hz: NDArray[np.float64], sample_rate_hz: float) -> NDArray[np.complex64]:
    """(A, T) x_a[n] exp(−j2π f_a n / fs): each antenna without its carrier offset f_a (A,)."""
    turn = -2j * np.pi * cfo_hz[:, None] * np.arange(iq.shape[1]) / sample_rate_hz
    return np.asarray(iq * np.exp(turn), dtype=np.complex64)


def _detections(recording: Recording, detector: Detector, after_block: Callable[[int], None]) -> Iterator[Detection]:
    for block in recording.blocks(BLOCK):
        yield from detector.push(block)
        after_block(block.shape[1])
    yield from detector.finish()


def _rounded(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(values).astype(np.int64)


def _nothing(recordings: Sequence[Recording], cut: int) -> DataError:
    names = ", ".join(recording.about.name for recording in recordings)
    seconds = sum(recording.about.length / recording.about.sample_rate_hz for recording in recordings)
    short = f", besides {cut} of which the recording has only the beginning" if cut else ""
    return DataError(
        f"{names}: no frame was found in {seconds:.3g} s{short}. See whether the recording has signals of this "
        "waveform at all, at this sample rate and carrier, and on every antenna."
    )


def _observed(
    trained: TrainedModel,
    abouts: tuple[About, ...],
    recording: NDArray[np.int64],
    found: Sequence[Detection],
    iq: NDArray[np.complex64],
    cut: int,
) -> Observed:
    rate, carrier_hz = float(trained.about["sample_rate_hz"]), abouts[0].carrier_hz or CARRIER_HZ
    cfo_hz = np.stack([detection.cfo_hz for detection in found])
    header = tuple(detection.header for detection in found)
    senders = [(r, claimed(h)) for r, h in zip(recording.tolist(), header, strict=True)]
    track = tracks(senders, np.median(cfo_hz, axis=1), carrier_hz)  # a dead antenna has any offset
    order = np.arange(len(found))
    own = np.array([about.sample_rate_hz for about in abouts])[recording] / rate
    frames = UnlabelledFrames(
        # The descriptors of a frame look at its recording's carrier, and a recording was of one device in training.
        source=MemorySource(iq, cfo_hz, track, order),
        rows=order,
        environment=recording,
        capture=recording,
        frame=order,
        environments=tuple(about.environment or "recording" for about in abouts),
        captures=tuple(about.capture or about.name for about in abouts),
        geometry=trained.geometry,
        sample_rate_hz=rate,
        carrier_hz=carrier_hz,
        samples=iq.shape[2],
    )
    return Observed(
        frames,
        abouts,
        recording,
        start=_rounded(own * [detection.start for detection in found]),
        samples=_rounded(own * [detection.samples or iq.shape[2] for detection in found]),
        cfo_hz=cfo_hz,
        snr_db=np.stack([detection.snr_db for detection in found]),
        quality=np.array([detection.quality for detection in found]),
        header=header,
        track=track,
        cut=cut,
    )
