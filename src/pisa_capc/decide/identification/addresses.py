"""Whose addresses are whose: a file or a dataset says it, or devices are named by their addresses."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.data.store.files import read_json, reading
from pisa_capc.data.store.origins import read_origins
from pisa_capc.signal.detection.dataset import file_name
from pisa_capc.signal.detection.finding import Rename

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


def learnt_addresses(dataset: Path, devices: Sequence[str]) -> dict[str, str]:
    """The device that sent most of the frames with each address, in a dataset that `pisa detect` wrote."""
    origins = read_origins(dataset)
    if origins is None:
        raise DataError(f"{dataset}: its frames do not say their addresses: they were not cut by `pisa detect --out`.")
    votes: dict[str, Counter[str]] = {}
    for origin in origins:
        if origin.transmitter and origin.device in devices:
            votes.setdefault(origin.transmitter.lower(), Counter())[origin.device] += 1
    if not votes:
        raise DataError(
            f"{dataset}: no frame of one of the model's devices ({_some(devices)}) has an address. Give the dataset "
            "that the model was trained on."
        )
    return {address: count.most_common(1)[0][0] for address, count in votes.items()}


def owners(path: Path, devices: Sequence[str], rename: Rename | None = None) -> dict[str, str]:
    """The device of each address, as a file or a dataset says it; a dataset has pseudonyms if it was made with them."""
    if path.is_dir():
        return learnt_addresses(path, devices)
    return renamed(read_addresses(path, devices), rename)


def renamed(addresses: Mapping[str, str], rename: Rename | None) -> dict[str, str]:
    """The same devices by the pseudonyms of their addresses."""
    return {address if rename is None else rename(address): device for address, device in addresses.items()}


def named_by_address(
    claimed: Sequence[str | None], devices: Sequence[str], known: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The claimed addresses that are a device's name, as `pisa detect --label address` enrols them, and those known."""
    if not any(claimed):
        raise DataError(
            "no frame has an address, so there is nothing to verify. Use `pisa identify` to find out who sent them."
        )
    found = {address: file_name(address) for address in sorted({a for a in claimed if a is not None})}
    found = {address: name for address, name in found.items() if name in devices} | dict(known or {})
    if not found:
        raise ConfigError(
            f"no frame claims an address that is the name of one of the model's devices ({_some(devices)}). Say whose "
            "addresses are whose: --addresses FILE with lines `address,device`, or the dataset the devices were "
            "enrolled with."
        )
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
