"""Files of scores: what `pisa embed` writes and a calibration reads, and what it writes in turn."""

from __future__ import annotations

import warnings
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from pisa_capc.core.errors import DataError
from pisa_capc.data.chance import AFTER_TRAINING, at_chance
from pisa_capc.data.store.files import atomic, reading
from pisa_capc.data.store.outside import array_members, files_under, read_arrays
from pisa_capc.decide.calibration.grouping import find_groups
from pisa_capc.decide.calibration.inputs import check_inputs
from pisa_capc.model.inference.statistics import PREFIX, SourceStatistics

if TYPE_CHECKING:
    from pisa_capc.decide.calibration.learning import Decisions
    from pisa_capc.decide.calibration.result import Calibration

CARRIED = ("capture", "environment", "frame", "group")  # of frames, from the scores to the result
RESULT = ("probability", "score", "prediction", "known", "unknown_score", "p_value")
UNKNOWN = "unknown"  # the name of what no device has sent, as far as a rejection can say


def read_scores(path: Path, also: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The arrays that a calibration knows, and those named `also`, of an NPZ file or of a folder with a .npy of each.

    Nothing in them is ever unpickled.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist; write scores with pisa embed.")
    wanted = ("embedding", "logits", "cfo_hz", "error", "devices", *CARRIED, *also)
    if path.is_dir():
        files = files_under(path, ".npy", deep=False)
        chosen = [one for one in files if one.stem in wanted or one.stem.startswith(PREFIX)]
        arrays = {one.stem: _array(one) for one in chosen}
        return _checked(path, arrays, ", ".join(one.name for one in files) or "nothing")
    with reading(path, "an NPZ file of plain arrays, as pisa embed writes scores"):
        with path.open("rb") as file:
            single = file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX
        if single:
            raise DataError(
                f"{path} is a single array; expected an NPZ file with embedding and logits, or the folder of "
                "embedding.npy and logits.npy."
            )
        arrays = read_arrays(path, wanted, PREFIX)
        with zipfile.ZipFile(path) as archive:
            found = ", ".join(array_members(archive)) or "nothing"
    return _checked(path, arrays, found)


def read_labelled(path: Path, like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Statistics of the source, by their names in a file, of labelled source frames: scores with `labels` (N,).

    labels: numbers of classes, or names where `devices` has those of all. like: the scores that they are for.
    """
    arrays = read_scores(path, also=("labels",))
    for name in ("embedding", "logits"):
        if (there := arrays[name].shape[1]) != (here := like[name].shape[1]):
            raise DataError(f"{path}: {name} has {there} columns, that of the scores {here}. Give those of one model.")
    if (labels := arrays.get("labels")) is None:
        raise DataError(f"{path}: has no labels, the class of each frame. Add labels (N,), or labels.npy.")
    if labels.dtype.kind in "US":
        known = arrays.get("devices", like.get("devices"))
        if known is None:
            raise DataError(
                f"{path}: labels are names, and no devices (C,) says which column of logits is whose. Add it."
            )
        number = {name: k for k, name in enumerate(known.astype(str).tolist())}
        if strangers := sorted(set(labels.astype(str).tolist()) - number.keys()):
            raise DataError(f"{path}: labels hold {strangers[0]!r}, which is none of devices.")
        labels = np.array([number[name] for name in labels.astype(str).tolist()], dtype=np.int64)
    source = SourceStatistics.from_source(arrays["embedding"], arrays["logits"], labels, arrays.get("capture"))
    return {PREFIX + name: value for name, value in source.known().items()}


def _array(path: Path) -> np.ndarray:
    with reading(path, "a plain array, as numpy.save writes it"):
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False))  # a map is no longer than its file


def _checked(path: Path, arrays: dict[str, np.ndarray], found: str) -> dict[str, np.ndarray]:
    """The arrays; found: what there was, for people."""
    missing = [name for name in ("embedding", "logits") if name not in arrays]
    if missing:
        raise DataError(f"{path} has no {' and no '.join(missing)}; found {found}. Write scores with pisa embed.")
    for name in ("embedding", "logits"):
        if arrays[name].ndim != 2:
            raise DataError(f"{path}: {name} has shape {arrays[name].shape}; expected (frames, columns).")
    _check_rows(path, arrays)
    if "devices" in arrays and arrays["devices"].shape != (classes := arrays["logits"].shape[1:]):
        raise DataError(f"{path}: devices has shape {arrays['devices'].shape}; expected {classes}, a name per logit.")
    return arrays


def _check_rows(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Refuse arrays that do not have one row per frame. How many frames there are is what most arrays say."""
    found = {name: arrays[name] for name in ("embedding", "logits", *CARRIED) if name in arrays}
    frames = Counter(values.shape[0] for values in found.values() if values.ndim).most_common(1)[0][0]
    for name, values in found.items():
        columns = values.shape[1:] if name in ("embedding", "logits") else ()
        if values.shape != (frames, *columns):
            others = ", ".join(other for other, v in found.items() if v.shape[:1] == (frames,) and other != name)
            raise DataError(
                f"{path}: {name} {values.shape} does not have one value per frame; expected {(frames, *columns)}, as "
                f"many rows as {others}. Write scores with pisa embed, or correct the array."
            )


def write_result(path: Path, result: Calibration | Decisions, arrays: dict[str, np.ndarray]) -> None:
    """The calibrated frames as NPZ, with what their scores said about them, and who sent them by name."""
    written: dict[str, Any] = {name: arrays[name] for name in CARRIED if name in arrays}
    found = {name: getattr(result, name, None) for name in RESULT}
    written |= {name: values for name, values in found.items() if values is not None}
    if (devices := arrays.get("devices")) is not None:
        names = np.append(devices.astype(str), UNKNOWN)
        written |= {"devices": devices, "device": names[np.asarray(result.prediction)]}
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **written)


def found_groups(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """(N,) groups found with all that the scores say about their frames."""
    check_inputs(arrays["embedding"], arrays["logits"])
    found = find_groups(arrays["embedding"], arrays["logits"], arrays.get("cfo_hz"), arrays.get("frame"))
    _watch_order(arrays)
    return found


def _watch_order(arrays: dict[str, np.ndarray]) -> None:
    """Warn where frame numbers fall within a capture: its rows are then not in the order of reception."""
    if "capture" not in arrays or "frame" not in arrays:
        return
    order = np.argsort(arrays["capture"], kind="stable")
    capture, frame = arrays["capture"][order], arrays["frame"][order]
    falls = np.flatnonzero((capture[1:] == capture[:-1]) & (frame[1:] < frame[:-1]))
    if len(falls):
        i = falls[0]
        warnings.warn(
            f"--group auto needs frames in the order in which they were received; in capture {capture[i]} frame "
            f"{frame[i + 1]} comes after frame {frame[i]}, as when recordings follow one another (pisa embed writes "
            "them so). Sort the rows by time, use --group capture, or pisa calibrate stream, which plays them in time "
            "order.",
            stacklevel=2,
        )


def warn_if_untrained(arrays: dict[str, np.ndarray]) -> None:
    """Warn where the classifier has not learnt its own source: there are decisions, and they mean nothing."""
    decided = arrays.get(f"{PREFIX}confusion")
    if decided is None or decided.ndim != 2:
        return
    if found := at_chance("the classifier on held-out frames of its own source", decided.T):
        warnings.warn(f"{found} {AFTER_TRAINING}", stacklevel=2)
