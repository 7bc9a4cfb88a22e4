"""Whose addresses are whose."""

from __future__ import annotations

from pathlib import Path

import pytest

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.data.geometry import linear
from pisa_capc.data.store import CaptureSpec, Dataset
from pisa_capc.data.store.origins import PROVENANCE, Origin, digest, origins_text, write_origins
from pisa_capc.decide.identification.addresses import learnt_addresses, named_by_address, read_addresses
from tests.datasets import write_random

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


def test_addresses_are_learnt_from_the_frames_of_a_dataset(tmp_path: Path) -> None:
    sent = [("phone", "x"), ("phone", "x"), ("laptop", "x"), ("laptop", "y"), ("laptop", ""), ("fridge", "z")]
    text = origins_text(Origin("E1", device, "L1", 0, "roof", 0, 0.0, "", 1.0, address) for device, address in sent)
    captures = tuple(CaptureSpec("E1", device, "L1", 1) for device in ("fridge", "laptop", "phone"))
    described = Dataset(linear(2), 20e6, 5.8e9, 16, captures, {PROVENANCE: digest(text)})
    described.create(tmp_path / "learnt")
    write_origins(tmp_path / "learnt", text)
    assert learnt_addresses(tmp_path / "learnt", DEVICES) == {"x": "phone", "y": "laptop"}
    with pytest.raises(DataError, match="no frame of one of the model's devices"):
        learnt_addresses(tmp_path / "learnt", ("toaster",))
    write_random(tmp_path / "simulated")
    with pytest.raises(DataError, match="not cut by"):
        learnt_addresses(tmp_path / "simulated", DEVICES)


def test_devices_may_be_named_by_their_addresses() -> None:
    devices = ("02-aa-00-00-00-01", "02-aa-00-00-00-02")
    claimed = ["02:aa:00:00:00:01", None, "02:aa:00:00:00:09"]
    assert named_by_address(claimed, devices) == {"02:aa:00:00:00:01": "02-aa-00-00-00-01"}
    with pytest.raises(ConfigError, match="--addresses FILE"):
        named_by_address(claimed, DEVICES)
