"""Files to download: the frames of an alarm, one frame, and annotations of the stream."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.live.listen import Air
from pisa_capc.live.listen.alarms import STORED, STRANGER, annotation
from pisa_capc.signal.detection import FoundFrame
from pisa_capc.signal.recordings.sigmf import DATA, META, archive, as_text, capture, global_info

SNIPPET = re.compile(rf"alarm-[0-9]{{1,20}}({STRANGER})?\.sigmf-meta")
LARGEST = 64 << 20  # bytes of a file that is sent
GENERATOR = "pisa serve"


def snippet(folder: Path, name: str) -> bytes:
    """A snippet of the folder of alarms as a SigMF archive; DataError where it is not there, or no snippet."""
    if not SNIPPET.fullmatch(name):
        raise DataError("that is not the name of a snippet.")
    stem = name.removesuffix(META)
    return archive(stem, _content(folder / name), _content(folder / (stem + DATA)))


def _content(path: Path) -> bytes:
    """A plain file: a link may lead anywhere."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise DataError("the snippet is no longer there: the folder of alarms keeps the newest ones.") from error
    if len(content) > LARGEST:
        raise DataError(f"the snippet has more than {LARGEST:,} bytes.")
    return content


def frame_archive(
    frame: FoundFrame, iq: NDArray[np.complex64], sample_rate_hz: float, carrier_hz: float | None
) -> bytes:
    """One frame as it may be shown, with its samples (A, T)."""
    info = global_info(STORED, sample_rate_hz, len(iq), {"recorder": GENERATOR, "description": f"frame {frame.number}"})
    note = annotation(frame, 0, iq.shape[1], GENERATOR)
    metadata = {"global": info, "captures": [capture(carrier_hz, frame.utc)], "annotations": [note]}
    return archive(f"frame-{frame.number}", as_text(metadata).encode(), iq.T.astype("<c8").tobytes())


def annotated(frames: Iterable[FoundFrame], air: Air, samples: int) -> bytes:
    """Metadata of the stream as it was received, with its frames as annotations. samples: that each rests on."""
    said = {"recorder": GENERATOR, "metadata_only": True}
    info = global_info(air.encoding, air.sample_rate_hz, air.antennas, said)
    notes = [annotation(one, one.start, samples, GENERATOR) for one in sorted(frames, key=lambda one: one.start)]
    return as_text({"global": info, "captures": [capture(air.carrier_hz)], "annotations": notes}).encode()
