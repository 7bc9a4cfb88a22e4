"""Whose addresses are whose."""

from __future__ import annotations

from pathlib import Path

import pytest

from pisa_capc.errors import ConfigError, DataError
from pisa_capc.identify.addresses import named_by_address, read_addresses

DEVICES = ("phone", "laptop")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "address,device\n02:AA:00:00:00:01, phone\n\n02:aa:00:00:00:02,laptop\n"),
        ("a.csv", "02:aa:00:00:00:01,phone\n02:aa:00:00:00:02,laptop\n"),
        ("a.json", '{"02:aa:00:00:00:01": "phone", "02:AA:00:00:00:02": "laptop"}'),
    ],
)
def test_addresses_are_read_in_any_case(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert read_addresses(path, DEVICES) == {"02:aa:00:00:00:01": "phone", "02:aa:00:00:00:02": "laptop"}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "02:aa:00:00:00:01,fone\n", "unknown device 'fone'. Did you mean 'phone'"),
        ("a.csv", "02:aa:00:00:00:01\n", "has 1 values"),
        ("a.csv", "x,phone\nX,laptop\n", "names an address twice"),
        ("a.csv", "", "names no address"),
        ("a.json", "[1, 2]", "Expected lines `address,device`"),
        ("a.json", "{", "cannot be read"),
    ],
)
def test_what_is_no_list_of_addresses_is_refused(name: str, text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="a\\.") as error:
        read_addresses(path, DEVICES)
    assert words in str(error.value)


def test_devices_may_be_named_by_their_addresses() -> None:
    devices = ("02-aa-00-00-00-01", "02-aa-00-00-00-02")
    claimed = ["02:aa:00:00:00:01", None, "02:aa:00:00:00:09"]
    assert named_by_address(claimed, devices) == {"02:aa:00:00:00:01": "02-aa-00-00-00-01"}
    with pytest.raises(ConfigError, match="--addresses FILE"):
        named_by_address(claimed, DEVICES)
