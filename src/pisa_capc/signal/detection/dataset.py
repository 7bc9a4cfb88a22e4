"""Found frames as a dataset: aligned to their first sample, without their frequency offset, beside where they are from.

Samples are read from the recording a second time, frame by frame, so that a recording may be of any length. On disk
(`write_frames`), or in memory for what needs them once (`read_frames`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.core.progress import progress
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.data.geometry import default_geometry
from pisa_capc.data.store.dataset import UNLABELLED, CaptureSpec, Dataset
from pisa_capc.data.store.native import write_capture_chunks
from pisa_capc.data.store.origins import NAME, PROVENANCE, Origin, digest, origins_text, write_origins
from pisa_capc.signal.detection.base import FoundFrame
from pisa_capc.signal.detection.finding import Found, finder_of
from pisa_capc.signal.recordings import About, Annotation
from pisa_capc.signal.recordings.encoding import without_ending

KINDS = ("address", "annotation", "pattern", "none")
SLACK = 32  # samples by which an annotation may begin after its frame
AT_ONCE = 256  # frames in memory
TURNS = 32  # samples
if TYPE_CHECKING:
    from pisa_capc.signal.measurement.whole import Whole

DECODED = 16  # whole frames in memory

Label = Callable[[FoundFrame], str | None]


@dataclass(frozen=True)
class DatasetChoices:
    """What becomes of found frames.

    label: one of `KINDS`. environment, capture: names for all of them, instead of those in the recordings.
    samples: of each frame; by default what the waveform says. keep_cfo: leave the samples as they were received.
    """

    label: str = "address"
    environment: str | None = None
    capture: str | None = None
    samples: int | None = None
    keep_cfo: bool = False


@dataclass(frozen=True)
class Written:
    """The dataset that was written, and how many frames were left out of it, by the reason."""

    dataset: Dataset
    left_out: dict[str, int]


@dataclass(frozen=True)
class _Chosen:
    found: Found
    frame: FoundFrame


def write_frames(
    out: str | Path,
    found: Sequence[Found],
    choices: DatasetChoices | None = None,
    named: Sequence[Mapping[str, str]] = (),
    show: bool = False,
) -> Written:
    """Write a dataset with a capture per environment, device and capture; one that was begun is gone on with.

    named: environment, device and capture from the path of each recording.
    """
    out, choices = Path(out), choices or DatasetChoices()
    waveform = found[0].waveform
    samples = choices.samples or waveform.stored_samples
    about = common([one.recording.about for one in found])
    groups, left_out = _grouped(found, choices, named or [{}] * len(found), samples)
    if not groups:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items()) or "none was found"
        raise DataError(f"no frame is left for {out}: {reasons}.")
    specs = {names: CaptureSpec(*names, len(members)) for names, members in sorted(groups.items())}
    text = origins_text(origin for names, spec in specs.items() for origin in _origins(spec, groups[names]))
    provenance = {
        "command": f"detect {waveform.name}",
        "recordings": [one.recording.about.name for one in found],
        "label": choices.label,
        "cfo": "kept" if choices.keep_cfo else "compensated",
        PROVENANCE: digest(text),
    }
    dataset = Dataset(
        about.geometry or default_geometry(about.antennas),
        waveform.sample_rate_hz,
        about.carrier_hz or 0.0,
        samples,
        tuple(specs.values()),
        provenance,
    )
    dataset.create(out)
    if not (out / NAME).exists():
        write_origins(out, text)
    missing = dataset.missing(out)
    with progress("write frames", total=sum(spec.frames for spec in missing), show=show) as bar:
        for spec in missing:
            members = groups[spec.environment, spec.device, spec.capture]
            cfo_hz = np.array([chosen.frame.cfo_hz for chosen in members])
            chunks = _samples(members, samples, choices.keep_cfo, bar.advance)
            write_capture_chunks(out, spec, (len(members), about.antennas, samples), chunks, cfo_hz)
    return Written(dataset, left_out)


def read_frames(found: Sequence[Found]) -> tuple[UnlabelledFrames, list[FoundFrame]]:
    """The preambles of found frames, a capture per recording, and which they are: those that were recorded whole.

    Where frames tell what they sent, it is all of them.

    An antenna without a frequency offset is dead: its samples are zero.
    """
    first, waveform = alike([one.recording.about for one in found]), found[0].waveform
    samples = waveform.stored_samples
    chosen = _with_preamble(found)
    if not chosen:
        names = ", ".join(one.recording.about.name for one in found)
        raise DataError(
            f"{names}: no {waveform.title} frame was found whole. See whether there are signals at all, at this sample "
            "rate and carrier."
        )
    cfo_hz = np.array([each.frame.cfo_hz for each in chosen])
    array_hz = np.nanmedian(cfo_hz, axis=1, keepdims=True)
    iq = np.concatenate(list(_samples(chosen, samples, False, lambda count: None)))
    frames = UnlabelledFrames.from_arrays(
        iq,
        environment=[each.found.recording.about.environment or "recording" for each in chosen],
        capture=[each.found.recording.about.name for each in chosen],
        cfo_hz=np.where(np.isfinite(cfo_hz), cfo_hz, array_hz),
        geometry=first.geometry or default_geometry(first.antennas),
        sample_rate_hz=waveform.sample_rate_hz,
        carrier_hz=first.carrier_hz or 0.0,
    )
    return frames, [each.frame for each in chosen]


def whole_frames(found: Sequence[Found]) -> Iterator[Whole]:
    """Those of the frames of `read_frames`, by the same numbers, that can be rebuilt from their bits, each whole."""
    from pisa_capc.signal.measurement.whole import Whole  # its package takes seconds to import

    right = [
        (row, chosen.found, chosen.frame, chosen.frame.samples)
        for row, chosen in enumerate(_with_preamble(found))
        if chosen.frame.header.fcs and chosen.frame.samples
    ]
    for first in range(0, len(right), DECODED):
        some = right[first : first + DECODED]
        one = some[0][1]  # recordings of one array at one carrier
        read = [replace(frame, iq=own.read(frame, samples)) for _, own, frame, samples in some]
        sent = finder_of(one.waveform.name).sent(read, one.recording.about)
        for (row, *_), frame, signal in zip(some, read, sent, strict=True):
            if signal is not None:
                known = np.isfinite(frame.cfo_hz)
                iq, cfo_hz = np.where(known[:, None], frame.iq, 0), np.where(known, frame.cfo_hz, 0.0)
                yield Whole(row, without_cfo(iq, cfo_hz, one.waveform.sample_rate_hz), signal)


def _with_preamble(found: Sequence[Found]) -> list[_Chosen]:
    """Frames whose preamble was recorded whole."""
    return [
        _Chosen(one, frame)
        for one in found
        for frame in one.frames
        if frame.at + one.waveform.stored_samples <= one.stream.about.length and np.isfinite(frame.cfo_hz).any()
    ]


def common(abouts: Sequence[About]) -> About:
    """What holds for all recordings of one dataset: they have one array and one carrier."""
    first = alike(abouts)
    if first.carrier_hz is None or first.carrier_hz <= 0:
        found = "no carrier is given" if first.carrier_hz is None else f"the carrier is {first.carrier_hz:g} Hz"
        raise DataError(f"{first.name}: {found}; a dataset needs one above 0 Hz. Give --carrier, in Hz.")
    return first


def alike(abouts: Sequence[About]) -> About:
    """The first of recordings, where the others have its array and carrier."""
    first = abouts[0]
    for other in abouts[1:]:
        for what in ("antennas", "carrier_hz", "geometry"):
            if getattr(other, what) != getattr(first, what):
                raise DataError(
                    f"{other.name}: {what} is {getattr(other, what)}; {first.name} has {getattr(first, what)}. Frames "
                    "of one dataset have one of each: write two."
                )
    return first


def _grouped(
    found: Sequence[Found], choices: DatasetChoices, named: Sequence[Mapping[str, str]], samples: int
) -> tuple[dict[tuple[str, str, str], list[_Chosen]], dict[str, int]]:
    """Frames by environment, device and capture in the order of time; and how many were left out, and why."""
    groups: dict[tuple[str, str, str], list[_Chosen]] = {}
    left_out: dict[str, int] = {}
    for one, names in zip(found, named, strict=True):
        about = one.recording.about
        device_of = labeller(choices.label, one.recording.annotations, names, about.name)
        environment = choices.environment or names.get("environment") or about.environment or "E1"
        capture = choices.capture or names.get("capture") or about.capture or without_ending(Path(about.name))
        for frame in one.frames:
            device = device_of(frame)
            if reason := _unfit(frame, device, one, samples):
                left_out[reason] = left_out.get(reason, 0) + 1
                continue
            key = (file_name(environment), str(device), file_name(capture))
            groups.setdefault(key, []).append(_Chosen(one, frame))
    return groups, left_out


def _unfit(frame: FoundFrame, device: str | None, found: Found, samples: int) -> str | None:
    """Why a frame is left out, if it is."""
    if device is None:
        return "whose device nothing says"
    if frame.at + samples > found.stream.about.length:
        return f"cut off by the end of the recording before {samples} samples"
    if not np.isfinite(frame.cfo_hz).all():
        return "without a frequency offset"
    return None


def _origins(spec: CaptureSpec, members: Sequence[_Chosen]) -> Iterator[Origin]:
    for i, chosen in enumerate(members):
        yield origin_of(spec, i, chosen.frame, chosen.found.recording.about, chosen.found.waveform.sample_rate_hz)


def origin_of(spec: CaptureSpec, number: int, frame: FoundFrame, about: About, rate_hz: float) -> Origin:
    """What a dataset keeps of a found frame. rate_hz: of the waveform, at which its samples are counted."""
    return Origin(
        spec.environment,
        spec.device,
        spec.capture,
        number,
        frame.source,
        frame.start,
        frame.time_s,
        "" if about.time is None else (about.time + timedelta(seconds=frame.time_s)).isoformat(),
        round(frame.quality, 6),
        frame.header.transmitter or "",
        round(float(np.nanmedian(frame.cfo_hz)), 3),
        round(float(np.max(np.nan_to_num(frame.snr_db, nan=-math.inf))), 3),
        math.nan if frame.samples is None else round(frame.samples * about.sample_rate_hz / rate_hz),
        math.nan if frame.bandwidth_hz is None else round(frame.bandwidth_hz, 3),
        math.nan if frame.channel_hz is None else frame.channel_hz,
    )


def _samples(members: Sequence[_Chosen], samples: int, keep_cfo: bool, done: Any) -> Iterator[NDArray[np.complex64]]:
    """(at most AT_ONCE, A, samples) at a time."""
    for first in range(0, len(members), AT_ONCE):
        some = members[first : first + AT_ONCE]
        iq = np.stack([chosen.found.read(chosen.frame, samples) for chosen in some])
        if not keep_cfo:
            rate_hz = some[0].found.waveform.sample_rate_hz
            turns_hz = np.array([np.add(chosen.frame.cfo_hz, chosen.frame.turn_hz) for chosen in some])
            known = np.isfinite(turns_hz)
            iq = without_cfo(np.where(known[..., None], iq, 0), np.where(known, turns_hz, 0.0), rate_hz)
        yield iq
        done(len(some))


def without_cfo(iq: NDArray[np.complex64], cfo_hz: NDArray[np.float64], sample_rate_hz: float) -> NDArray[np.complex64]:
    """x[n] exp(−j2π f n / fs) of (…, A, T) samples with offsets f (…, A) in Hz.

    n = TURNS m + r, so that TURNS and T / TURNS exponentials do, and their products.
    """
    each = -2j * np.pi / sample_rate_hz * cfo_hz[..., None]
    across, within = np.exp(each * np.arange(0, iq.shape[-1], TURNS)), np.exp(each * np.arange(TURNS))
    turns = (across[..., None] * within[..., None, :]).reshape(*cfo_hz.shape, -1)[..., : iq.shape[-1]]
    return np.asarray(iq * turns, dtype=np.complex64)


# Whose a frame is, for enrolment: by its address, by an annotation, by the recording's path, or unknown.


def labeller(kind: str, annotations: Sequence[Annotation], named: Mapping[str, str], recording: str) -> Label:
    """The device of a frame, None where nothing says it. named: what the recording's path says, by --pattern."""
    if kind == "address":
        return by_address
    if kind == "annotation":
        if not any(note.label for note in annotations):
            raise DataError(f"{recording}: no annotation names a device; expected signal:emitter or core:label.")
        return Annotated(annotations)
    if kind == "pattern":
        if "device" not in named:
            raise ConfigError("--label pattern: give --pattern with {device}, as '{device}/{capture}.cs16'.")
        return lambda frame: named["device"]
    if kind == "none":
        return lambda frame: UNLABELLED
    raise ConfigError(unknown_name("label", kind, KINDS))


def by_address(frame: FoundFrame) -> str | None:
    """The transmitter's address, where the frame's checksum says that it was read right."""
    return file_name(frame.header.transmitter) if frame.header.fcs and frame.header.transmitter else None


class Annotated:
    """The label of the annotation that a frame lies in: of several, the one that begins last."""

    def __init__(self, annotations: Sequence[Annotation]) -> None:
        self._notes = sorted(annotations, key=lambda note: note.start)
        self._starts = [note.start for note in self._notes]
        self._longest = max((_count(note) for note in self._notes), default=0)

    def __call__(self, frame: FoundFrame) -> str | None:
        for note in reversed(self._notes[: bisect_right(self._starts, frame.start + SLACK)]):
            if frame.start < note.start + _count(note):
                return None if note.label is None else file_name(note.label)
            if frame.start >= note.start + self._longest:
                return None
        return None


def _count(note: Annotation) -> float:
    """Without a count, an annotation holds to the end."""
    return float("inf") if note.count is None else note.count


def file_name(name: str) -> str:
    """A name as a folder or file can have it: an address with dashes for its colons.

    >>> file_name("e8:de:27:90:6e:42")
    'e8-de-27-90-6e-42'
    """
    safe = "".join("-" if c in '/\\:*?"<>|' or not c.isprintable() else c for c in name)
    return "-" + safe[1:] if safe.startswith(".") else safe
