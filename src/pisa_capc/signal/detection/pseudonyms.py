"""Keyed hashes in the place of addresses: the same device has the same one, and only the key's owner knows whose."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import warnings
from pathlib import Path

from pisa_capc.core.errors import DataError
from pisa_capc.data.store.files import cannot_be_read

KEY_BYTES = 32
HASH_BYTES = 8


class Pseudonyms:
    """`anon-` and 16 hexadecimal digits of the keyed BLAKE2b of an address in lower case.

    >>> Pseudonyms(bytes(32))("E8:DE:27:90:6E:42") == Pseudonyms(bytes(32))("e8:de:27:90:6e:42")
    True
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __call__(self, address: str) -> str:
        digest = hashlib.blake2b(address.lower().encode(), key=self._key, digest_size=HASH_BYTES)
        return f"anon-{digest.hexdigest()}"

    @classmethod
    def of_file(cls, path: Path) -> Pseudonyms:
        """By the key in a file; one that is not there is made, for its owner alone."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return cls(_read(path))
        except OSError as error:
            raise DataError(f"{path}: no key can be made there ({error.strerror}). Choose another place.") from error
        key = secrets.token_bytes(KEY_BYTES)
        with os.fdopen(descriptor, "w") as file:
            file.write(key.hex() + "\n")
        return cls(key)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(4 * KEY_BYTES).strip()
            shared = os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    except OSError as error:
        raise cannot_be_read(path, error) from error
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise DataError(
            f"{path}: holds no key; expected {2 * KEY_BYTES} hexadecimal digits. Name a file that is not there, and "
            "one is made."
        )
    if shared:
        warnings.warn(f"{path}: others may read the key, and find out the addresses. chmod 600 it.", stacklevel=3)
    return key
