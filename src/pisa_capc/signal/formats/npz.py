"""NumPy archives: one `.npz` with a row per frame.

Arrays: `iq` (N, A, T) complex and `device` (N,), names or numbers; optional: `environment` and `capture` (N,), `frame`
(N,) time order, `cfo_hz` (N, A), `coordinates_wavelengths` (A, 3), `sample_rate_hz`, `carrier_hz`, and where samples
are not of time `domain` and the arrays of `NUMBERED`. Nothing is unpickled.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import Frames
from pisa_capc.data.geometry import custom
from pisa_capc.data.sources import groups
from pisa_capc.data.store.dataset import SUBCARRIERS, TIME, UNLABELLED, CaptureSpec, Subcarriers
from pisa_capc.data.store.files import atomic, new_file, reading
from pisa_capc.data.store.outside import array_members, check_member, check_unpacked, read_arrays, read_header
from pisa_capc.signal.formats.arrange import check_axes
from pisa_capc.signal.formats.base import (
    EVERYWHERE,
    ExportOptions,
    Format,
    ImportOptions,
    Plan,
    Samples,
    assumptions,
    check_unnamed,
    described,
    register_format,
)

EXPECTED = "an .npz archive of plain arrays"
NUMBERED = ("subcarriers", "empty_subcarriers", "subcarrier_spacing_hz", "front")  # of channel state
RATES = {"sample_rate_hz": 20e6, "carrier_hz": 5.825e9}  # where the archive has none


def plan(source: Path, options: ImportOptions) -> Plan:
    """One archive; frames of equal environment, device and capture are one capture."""
    if source.is_dir():
        raise DataError(f"{source}: is a folder; expected an .npz file.")
    with reading(source, EXPECTED):
        return _plan(source, options)


def _plan(source: Path, options: ImportOptions) -> Plan:
    iq_key, cfo_key = options.iq_key or "iq", options.cfo_key or "cfo_hz"
    with zipfile.ZipFile(source) as archive:
        there = array_members(archive)
        needed = [iq_key, *["device"] * (options.device is None), *filter(None, [options.cfo_key])]
        for name in needed:
            if name not in there:
                raise DataError(
                    f"{source}: holds no array {name!r}; found {', '.join(there) or 'none'}. Expected the I/Q "
                    "(frames, antennas, samples), which --iq-key can name, and the transmitters as device (frames,); "
                    f"--device-name {UNLABELLED} if they are unknown."
                )
        check_unpacked(there[iq_key].file_size, source.stat().st_size, f"{source}: {iq_key}")
        check_member(archive, there[iq_key])  # it is mapped from here on, past the archive's checksum
    known = (
        "device",
        "environment",
        "capture",
        "frame",
        cfo_key,
        "coordinates_wavelengths",
        "domain",
        *NUMBERED,
        *RATES,
    )
    arrays = read_arrays(source, known)
    iq = _mapped(source, iq_key)
    if iq.shape[:1] == (0,):
        raise DataError(f"{source}: {iq_key} {iq.shape} holds no frames; expected (frames, antennas, samples).")
    if iq.ndim != 3 or iq.dtype.kind != "c" or not iq.size:
        raise DataError(f"{source}: {iq_key} is {iq.dtype} {iq.shape}; expected complex (frames, antennas, samples).")
    order = _order(iq.shape, options, f"{source}: {iq_key}")
    n, antennas, samples = (iq.shape[axis] for axis in order)

    def column(name: str, default: str | int) -> NDArray[Any]:
        values = arrays.get(name, np.full(n, default))
        if values.shape != (n,):
            raise DataError(f"{source}: {name} has shape {values.shape}; expected ({n},), one per frame.")
        return values

    check_unnamed(options, [kind for kind in ("environment", "device", "capture") if kind in arrays], f"{source.name}")
    defaults = options.names()
    names = [column(name, default).astype(str) for name, default in defaults.items()]
    frame = column("frame", 0).astype(np.int64)
    cfo_hz = arrays[cfo_key].astype(np.float64) if cfo_key in arrays else None
    if cfo_hz is not None and cfo_hz.shape != (n, antennas):
        raise DataError(f"{source}: {cfo_key} has shape {cfo_hz.shape}; expected {(n, antennas)} (frames, antennas).")
    if "coordinates_wavelengths" in arrays and options.geometry is None:
        options = replace(options, geometry=custom(arrays["coordinates_wavelengths"]))

    numbered = np.stack([np.unique(column, return_inverse=True)[1] for column in names])
    rows: dict[CaptureSpec, NDArray[np.intp]] = {}
    for members in groups(np.unique(numbered, axis=1, return_inverse=True)[1].ravel()):
        environment, device, capture = (str(column[members[0]]) for column in names)
        in_time = members[np.argsort(frame[members], kind="stable")]
        rows[CaptureSpec(environment, device, capture, len(members))] = in_time
    for name in RATES:
        if name in arrays and (arrays[name].size != 1 or arrays[name].dtype.kind not in "iuf"):
            found = f"{arrays[name].dtype} {arrays[name].shape}"
            raise DataError(f"{source}: {name} is {found}; expected one number. Store one for all frames.")
    domain = "".join(np.ravel(arrays.get("domain", TIME)).astype(str))
    rate, carrier = (np.asarray(arrays.get(name, default)).item() for name, default in RATES.items())

    def read(spec: CaptureSpec) -> Samples:
        with reading(source, EXPECTED):
            # Mapped anew for each capture, so that what was read can leave memory.
            chosen = _mapped(source, iq_key).transpose(order)[rows[spec]].astype(np.complex64)
        return chosen, None if cfo_hz is None else cfo_hz[rows[spec]]

    dataset = described(dict.fromkeys(rows, (antennas, samples)), options, rate, carrier, domain)
    if NUMBERED[0] in arrays and domain != TIME:
        dataset = replace(dataset, subcarriers=_numbered(arrays, source))
    assumed = assumptions(options, arrays, (rate, carrier))
    if options.axes is None:
        letters = "".join("nAT"[order.index(axis)] for axis in range(3))
        assumed = [f"{iq_key} {iq.shape} as {letters} (--axes)", *assumed]
    return Plan(dataset, read, lambda spec, i: f"{iq_key}[{rows[spec][i]}]", tuple(assumed))


def _numbered(arrays: Mapping[str, NDArray[Any]], source: Path) -> Subcarriers:
    """What channel state is of, as `export` writes it."""
    numbers, empty, spacing_hz, front = (arrays.get(name, np.empty(0)) for name in NUMBERED)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1 or empty.ndim != 1 or spacing_hz.size != 1:
        raise DataError(
            f"{source}: expected {NUMBERED[0]} as whole numbers (K,), {NUMBERED[1]} (any,), and one {NUMBERED[2]}; "
            f"found {numbers.dtype} {numbers.shape}, {empty.shape} and {spacing_hz.shape}."
        )
    known = {"numbers": numbers, "empty": empty, "spacing_hz": spacing_hz.item(), "front": "".join(np.ravel(front))}
    return Subcarriers.from_json(known)


def _order(shape: tuple[int, ...], options: ImportOptions, where: str) -> tuple[int, int, int]:
    """Axes of frames, antennas and samples: as given, or frames first and antennas before samples unless their number
    says that they come last."""
    check_axes(options.axes)
    orders = [(0, 1, 2), (0, 2, 1)]
    if options.axes is not None:
        orders = [(options.axes.index("n"), options.axes.index("A"), options.axes.index("T"))]
    elif options.antennas is None and options.samples is None:
        orders = orders[:1]
    fitting = [
        order
        for order in orders
        if options.antennas in (None, shape[order[1]]) and options.samples in (None, shape[order[2]])
    ]
    if not fitting:
        asked = [
            f"--{name} {options.given()[name]}" for name in ("axes", "antennas", "samples") if name in options.given()
        ]
        raise DataError(f"{where} {shape} does not fit {', '.join(asked)}. Correct them, or leave them out.")
    return fitting[0]


def _mapped(source: Path, key: str) -> NDArray[Any]:
    """An array of the archive, mapped from disk where it is stored uncompressed, as np.savez does."""
    with zipfile.ZipFile(source) as archive, source.open("rb") as file:
        member = archive.getinfo(f"{key}.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            return read_arrays(source, [key])[key]
        # A zip member's bytes start after its own header: 30 bytes, its name, and its extra field.
        file.seek(member.header_offset)
        name_length, extra_length = struct.unpack("<HH", file.read(30)[26:])
        file.seek(name_length + extra_length, 1)
        start = file.tell()
        with archive.open(member) as content:
            shape, fortran, dtype = read_header(content, member, f"{source}: {key}")
            start += content.tell()
        return np.memmap(source, dtype, "r", start, shape, "F" if fortran else "C")


def export(frames: Frames, out: Path, options: ExportOptions, done: Callable[[], None]) -> None:
    """One archive of all frames, written piece by piece; `options` has nothing for this format."""
    new_file(out)
    columns: dict[str, NDArray[Any]] = {
        "device": np.array(frames.devices)[frames.device],
        "environment": np.array(frames.environments)[frames.environment],
        "capture": np.array(frames.captures)[frames.capture],
        "frame": frames.frame,
        "coordinates_wavelengths": frames.geometry.positions,
        "sample_rate_hz": np.array(frames.sample_rate_hz),
        "carrier_hz": np.array(frames.carrier_hz),
    }
    if (cfo_hz := frames.cfo_hz) is not None:
        columns["cfo_hz"] = cfo_hz
    if frames.domain != TIME:
        columns["domain"] = np.array(frames.domain)
    if frames.subcarriers is not None:
        own = frames.subcarriers.first(frames.samples)
        about = own.numbers, np.array(own.empty, dtype=int), own.spacing_hz, own.front
        columns |= dict(zip(NUMBERED, map(np.array, about), strict=True))
    with atomic(out) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, values in columns.items():
            with archive.open(f"{name}.npy", "w") as member:
                npy.write_array(member, values, allow_pickle=False)
        with archive.open("iq.npy", "w", force_zip64=True) as member:
            shape = (len(frames), frames.antennas, frames.samples)
            npy.write_array_header_1_0(member, {"descr": "<c8", "fortran_order": False, "shape": shape})
            for piece in frames.batches(1024):
                member.write(np.ascontiguousarray(piece.iq).tobytes())
    done()


@register_format("npz")
class NpzFormat(Format):
    """A NumPy archive."""

    uses = EVERYWHERE | {"iq_key", "cfo_key", "samples", "axes", "device"}
    domains = (TIME, SUBCARRIERS)
    plan = staticmethod(plan)
    export = staticmethod(export)
