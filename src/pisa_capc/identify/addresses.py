"""Whose addresses are whose: a file that says it, or devices that are named by their addresses."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from pisa_capc.errors import ConfigError, DataError, unknown_name
from pisa_capc.store.files import read_json, reading

EXPECTED = "lines `address,device`, or JSON {address: device}"
LARGEST = 1 << 24  # bytes


def read_addresses(path: Path, devices: Sequence[str]) -> dict[str, str]:
    """The device of each address, from .csv or .json; every device must be one of the model's."""
    if not path.is_file():
        raise DataError(f"{path}: no such file. Expected {EXPECTED}.")
    if path.stat().st_size > LARGEST:
        raise DataError(f"{path}: has {path.stat().st_size:,} bytes; expected at most {LARGEST:,}, {EXPECTED}.")
    with reading(path, EXPECTED):
        pairs = list(read_json(path).items()) if path.suffix == ".json" else _lines(path)
        found = {str(address).strip().lower(): str(device).strip() for address, device in pairs}
    if len(found) < len(pairs):
        raise DataError(f"{path}: names an address twice. Name each once.")
    for device in found.values():
        if device not in devices:
            raise DataError(f"{path}: {unknown_name('device', device, devices)}")
    if not found:
        raise DataError(f"{path}: names no address. Expected {EXPECTED}.")
    return found


def _lines(path: Path) -> list[tuple[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file) if any(cell.strip() for cell in row)]
    if odd := next((row for row in rows if len(row) != 2), None):
        raise DataError(f"{path}: the line {','.join(odd)!r} has {len(odd)} values; expected {EXPECTED}.")
    if rows and rows[0] == ["address", "device"]:
        rows = rows[1:]
    return [(address, device) for address, device in rows]


def named_by_address(claimed: Iterable[str | None], devices: Sequence[str]) -> dict[str, str]:
    """The addresses among those claimed that are a device's name, as after enrolment by `--label address`."""
    by_address = {device.lower(): device for device in devices}
    found = {a: by_address[a] for a in sorted({a for a in claimed if a is not None}) if a in by_address}
    if not found:
        raise ConfigError(
            f"no frame claims an address that is the name of one of the model's devices ({', '.join(devices[:5])}"
            f"{', …' if len(devices) > 5 else ''}). Say whose addresses are whose: --addresses FILE with "
            "lines `address,device`."
        )
    return found
