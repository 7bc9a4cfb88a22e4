"""Keyed hashes in the place of addresses."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.signal.detection.pseudonyms import Pseudonyms

ADDRESS = "e8:de:27:90:6e:42"


def test_the_key_is_made_for_its_owner_alone_and_used_again(tmp_path: Path) -> None:
    path = tmp_path / "key"
    first = Pseudonyms.of_file(path)(ADDRESS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Pseudonyms.of_file(path)(ADDRESS) == first
    assert Pseudonyms.of_file(tmp_path / "other")(ADDRESS) != first


def test_the_hash_is_blake2b_with_the_key(tmp_path: Path) -> None:
    name = Pseudonyms.of_file(tmp_path / "key")(ADDRESS.upper())
    key = bytes.fromhex((tmp_path / "key").read_text().strip())
    assert len(key) == 32
    assert name == "anon-" + hashlib.blake2b(ADDRESS.encode(), key=key, digest_size=8).hexdigest()


@pytest.mark.parametrize("content", ["", "abc", "zz" * 32, "00" * 31, "é" * 64])
def test_a_file_that_holds_no_key_is_left_alone(content: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(content)
    with pytest.raises(DataError, match="holds no key; expected 64 hexadecimal digits"):
        Pseudonyms.of_file(tmp_path / "key")
    assert (tmp_path / "key").read_text() == content


def test_a_key_that_others_can_read_is_said(tmp_path: Path) -> None:
    Pseudonyms.of_file(tmp_path / "key")
    (tmp_path / "key").chmod(0o644)
    with pytest.warns(UserWarning, match="others may read the key"):
        Pseudonyms.of_file(tmp_path / "key")


def test_a_place_where_nothing_can_be_made_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no key can be made there"):
        Pseudonyms.of_file(tmp_path / "absent/key")
