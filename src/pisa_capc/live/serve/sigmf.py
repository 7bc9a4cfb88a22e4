"""Files to download: the frames of an alarm, one frame, and annotations of the stream."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.live.listen import Air, Decision
from pisa_capc.live.listen.alarms import annotation
from pisa_capc.signal.recordings.sigmf import DATA, EXTENSIONS, META, package

SNIPPET = re.compile(r"alarm-[0-9]{1,20}\.sigmf-meta")
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


def archive(stem: str, meta: bytes, data: bytes) -> bytes:
    """Metadata and samples as SigMF archives have them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for ending, content in ((META, meta), (DATA, data)):
            entry = tarfile.TarInfo(f"{stem}/{stem}{ending}")
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def frame_archive(
    decision: Decision, iq: NDArray[np.complex64], sample_rate_hz: float, carrier_hz: float | None
) -> bytes:
    """One frame (A, T) with what was decided of it."""
    info = {**_global("cf32_le", sample_rate_hz, len(iq)), "core:description": f"frame {decision.number}"}
    note = annotation(decision, 0, iq.shape[1], GENERATOR)
    metadata = {"global": info, "captures": _captures(carrier_hz, decision.at), "annotations": [note]}
    return archive(f"frame-{decision.number}", _bytes(metadata), iq.T.astype("<c8").tobytes())


def annotated(decisions: Iterable[Decision], air: Air, samples: int) -> bytes:
    """Metadata of the stream as it was received, with the decisions as annotations. samples: that each rests on."""
    info = _global(air.encoding.name, air.sample_rate_hz, air.antennas) | {"core:metadata_only": True}
    notes = [annotation(one, one.start, samples, GENERATOR) for one in sorted(decisions, key=lambda one: one.start)]
    return _bytes({"global": info, "captures": _captures(air.carrier_hz, None), "annotations": notes})


def _global(datatype: str, sample_rate_hz: float, antennas: int) -> dict[str, Any]:
    return {
        "core:datatype": datatype,
        "core:sample_rate": sample_rate_hz,
        "core:num_channels": antennas,
        "core:version": package().__specification__,
        "core:recorder": GENERATOR,
        "core:extensions": EXTENSIONS,
    }


def _captures(carrier_hz: float | None, at: str | None) -> list[dict[str, Any]]:
    capture: dict[str, Any] = {"core:sample_start": 0}
    if carrier_hz is not None:
        capture["core:frequency"] = carrier_hz
    if at is not None:
        capture["core:datetime"] = at
    return [capture]


def _bytes(metadata: dict[str, Any]) -> bytes:
    return json.dumps(metadata, indent=1, ensure_ascii=False).encode()
