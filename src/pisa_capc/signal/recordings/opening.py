"""From paths to a recording."""

from __future__ import annotations

import glob
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.core.quantities import MOST_ANTENNAS, frequency
from pisa_capc.data.store.files import reading
from pisa_capc.signal.recordings.base import About, FileRecording, SampleFile
from pisa_capc.signal.recordings.containers import NPY, WAV, ContainerInfo, open_contained, said_by_name
from pisa_capc.signal.recordings.encoding import ENDINGS, Encoding
from pisa_capc.signal.recordings.health import ALIGNED, LOOK_BYTES, check_is_samples, check_plausible, looks_like
from pisa_capc.signal.recordings.sigmf import COLLECTION, DATA, META, open_collection, open_sigmf


def open_recording(
    paths: str | Path | Sequence[str | Path],
    *,
    format: str | None = None,
    sample_rate_hz: float | None = None,
    carrier_hz: float | None = None,
    antennas: int | None = None,
    check: bool = True,
) -> FileRecording:
    """Open one recording; no more of it is read than what shows whether it is one.

    paths: a SigMF recording (`.sigmf-meta`, `.sigmf-data`) or collection, a WAV file of a receiver, a NumPy array
    (samples,), or plain samples in one file of interleaved channels or in one file per antenna: several paths, or a
    pattern as 'rx*.cs16' (rx2 comes before rx10). What is given goes before what a file says, that before its name.
    format: of plain samples, where their ending does not say it, as cs16 or cs16_be. A given format is used even where
    samples make no sense in it, with a warning.
    antennas: in all files together; of plain samples, by default one per file.
    check: compare the data with its SHA-512, where metadata has one.

    >>> recording = open_recording("roof.cs16", sample_rate_hz=20e6, antennas=4)  # doctest: +SKIP
    >>> recording.read(0, 1000).shape                                            # doctest: +SKIP
    (4, 1000)
    """
    for name, value in (("sample rate", sample_rate_hz), ("carrier", carrier_hz)):
        if value is not None:
            frequency(value, name)
    files = _files(paths)
    encoding = None if format is None else Encoding.named(format)
    described = [path for path in files if path.suffix in (META, DATA, COLLECTION)]
    if described and len(files) > 1:
        raise ConfigError(
            f"{described[0]}: several files of one recording, and SigMF among them; expected one path. Join SigMF "
            "recordings of one array by a .sigmf-collection."
        )
    if described:
        open_described = open_collection if files[0].suffix == COLLECTION else open_sigmf
        recording = open_described(files[0], encoding, sample_rate_hz, carrier_hz, check)
    else:
        recording = _open_files(files, encoding, sample_rate_hz, carrier_hz, antennas)
    if antennas not in (None, recording.about.antennas):
        raise ConfigError(f"{files[0]}: has {recording.about.antennas} antennas; --antennas says {antennas}.")
    _check_lengths(recording.files)
    for file in recording.files:
        check_plausible(file, trusted=encoding is not None)
    return recording


def _files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files that paths name; patterns are filled in, in the order of the numbers in their names."""
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    found: list[Path] = []
    for path in given:
        if Path(path).is_file():
            found.append(Path(path))
        elif matching := sorted(glob.glob(str(path)), key=_by_numbers):
            found += map(Path, matching)
        else:
            raise DataError(f"{path}: no such file. Expected a recording, or a pattern of one file per antenna.")
    if not found:
        raise DataError("no recording was given.")
    if len(found) > MOST_ANTENNAS:
        raise DataError(f"{found[0]} and {len(found) - 1} more files: expected at most {MOST_ANTENNAS}.")
    if folder := next((path for path in found if path.is_dir()), None):
        raise DataError(f"{folder}: is a folder; expected the files in it, as {folder}/*.cs16.")
    return found


def _by_numbers(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _open_files(
    files: list[Path],
    encoding: Encoding | None,
    sample_rate_hz: float | None,
    carrier_hz: float | None,
    antennas: int | None,
) -> FileRecording:
    """What stands in the files comes before what their names say, and what is given before both."""
    contained = encoding is None and files[0].suffix.lower() in (WAV, NPY)
    said = [open_contained(path) if contained else said_by_name(path) for path in files]
    rate, carrier = sample_rate_hz or said[0].sample_rate_hz, carrier_hz or said[0].carrier_hz
    if rate is None:
        raise ConfigError(f"{files[0]}: its samples say no sample rate. Give --sample-rate, as 20e6.")
    if contained:
        parts = tuple(one.file for one in said if one.file is not None)
    else:
        parts = _plain_files(files, encoding, said, antennas)
    about = About(
        name=files[0].name,
        sample_rate_hz=rate,
        carrier_hz=carrier,
        antennas=sum(part.channels for part in parts),
        length=parts[0].length,
        time=said[0].time,
        full_scale=parts[0].encoding.full_scale,
    )
    return FileRecording(about, parts)


def _plain_files(
    files: list[Path], encoding: Encoding | None, said: Sequence[ContainerInfo], antennas: int | None
) -> tuple[SampleFile, ...]:
    antennas = len(files) if antennas is None else antennas
    if not 1 <= antennas <= MOST_ANTENNAS or antennas % len(files):
        raise ConfigError(
            f"--antennas {antennas} in {len(files)} files: expected as many in each, and at most {MOST_ANTENNAS}."
        )
    each = antennas // len(files)
    return tuple(
        _plain(path, encoding or own.encoding or _by_ending(path), each) for path, own in zip(files, said, strict=True)
    )


def _by_ending(path: Path) -> Encoding:
    ending = path.suffix[1:].lower()
    if ending not in ENDINGS:
        with reading(path, "samples"), path.open("rb") as file:
            check_is_samples(head := file.read(LOOK_BYTES * ALIGNED), str(path))
        seems = looks_like(np.frombuffer(head[: len(head) // ALIGNED * ALIGNED], np.uint8))
        raise ConfigError(
            f"{path}: cannot tell its format from its ending {path.suffix!r}; known are {', '.join(ENDINGS)}, wav, npy "
            f"and SigMF. Give --format, as {'cs16' if seems is None else f'{seems.name}, which it looks like'}."
        )
    return Encoding.named(ending)


def _plain(path: Path, encoding: Encoding, channels: int) -> SampleFile:
    size, found = encoding.sample_bytes * channels, path.stat().st_size
    with reading(path, "samples"), path.open("rb") as file:
        check_is_samples(file.read(LOOK_BYTES), str(path))
    if found < size:
        raise DataError(
            f"{path}: holds {found} bytes; a sample of {channels} antennas as {encoding.name} has {size}. It is empty, "
            "or cut off."
        )
    if left := found % size:
        warnings.warn(
            f"{path}: its last {left} bytes are no whole sample of {size} bytes, {channels} antennas as "
            f"{encoding.name}: it was cut off, or --antennas or --format is wrong.",
            stacklevel=2,
        )
    return SampleFile(path, encoding, channels, found // size)


def _check_lengths(files: tuple[SampleFile, ...]) -> None:
    lengths = [file.length for file in files]
    if len(set(lengths)) > 1:
        short, long = files[lengths.index(min(lengths))], files[lengths.index(max(lengths))]
        raise DataError(
            f"{short.path.name} has {short.length:,} samples and {long.path.name} {long.length:,}; the antennas of a "
            "recording have equally many. Cut them to the same length, or look for the one that was cut off."
        )
