"""The frames of a device in datasets, for its enrolment, and which they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import Frames, UnlabelledFrames, load
from pisa_capc.data.store.native import fingerprint


def device_in_datasets(
    folders: Sequence[str | Path], name: str, environments: Sequence[str] | None = None
) -> tuple[UnlabelledFrames, list[dict[str, Any]]]:
    """The frames of the device called `name`, and their `origin` for `enrol`.

    Of a dataset with a single device they are those of that one, whatever it is called.
    """
    parts, origin = [], []
    for folder in folders:
        part = _of_device(load(folder), name, folder)
        part = part if environments is None else part.where(environment=environments)
        if not len(part):
            said = ", ".join(environments or ())
            raise DataError(f"{folder}: no frames of {name} in {said}. Choose other environments.")
        parts.append(part)
        origin.append(
            {
                "dataset": fingerprint(folder),
                "name": Path(folder).name,
                "environments": [part.environments[i] for i in sorted(set(part.environment.tolist()))],
                "frames": len(part),
            }
        )
    return (parts[0] if len(parts) == 1 else Frames.concatenate(parts)).unlabelled(), origin


def _of_device(frames: Frames, name: str, folder: str | Path) -> Frames:
    if name in frames.devices:
        return frames.where(device=name)
    if len(frames.devices) == 1:
        return frames
    raise DataError(
        f"{folder}: holds {len(frames.devices)} devices ({', '.join(frames.devices[:12])}), none of them {name!r}. "
        "Give a dataset with the new device alone, or one that has it under this name."
    )
