"""Whose a frame is, for enrolment: by its address, by what somebody annotated, by the recording's path, or unknown."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.data.store.dataset import UNLABELLED
from pisa_capc.signal.detection.base import FoundFrame
from pisa_capc.signal.recordings import Annotation

KINDS = ("address", "annotation", "pattern", "none")
SLACK = 32  # samples by which an annotation may begin after its frame

Label = Callable[[FoundFrame], str | None]


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
