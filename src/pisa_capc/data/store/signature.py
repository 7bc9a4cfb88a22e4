"""Signatures of folders: who made a model or a dataset. A digest finds damage; a forger writes one that fits.

`signature.json` lists the SHA-256 of every file of the folder, and holds an Ed25519 signature over that list. Keys are
PEM files, as `new_key` and openssl write them. Where trusted keys are named, by `--trusted` or in the variable
PISA_TRUSTED, a folder is read only if one of them signed it and no file was added, taken away or changed since.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pisa_capc.core.errors import ConfigError, DataError, MissingExtraError, SealError
from pisa_capc.data.store.files import cannot_be_read, new_file, read_json, write_text_atomic
from pisa_capc.data.store.outside import files_under

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FILE, SCHEMA = "signature.json", 1
VARIABLE = "PISA_TRUSTED"  # files of public keys, separated as in PATH
CONTEXT = (
    b"pisa-capc signature 1\n"  # stands before what is signed, so nothing else that the key signed is taken for it
)
LONGEST_KEY = 10_000  # bytes
EXPECTED = "expected an Ed25519 key in PEM, as `pisa sign --new-key` or `openssl genpkey -algorithm ed25519` writes"


def new_key(path: Path) -> Path:
    """Write a new private key, which only its owner can read, and its public half beside it, as PATH.pub."""
    _needed("a new key")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    public = path.with_name(f"{path.name}.pub")
    for place in (path, public):
        new_file(place)
    key = Ed25519PrivateKey.generate()
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}). Choose another place to write to.") from error
    text = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    write_text_atomic(public, text)
    return public


def sign(folder: Path, key: Path) -> str:
    """Sign all files of a folder, in the place of an older signature; how people know the key."""
    private = _private(key)
    files = _digests(folder)
    if not files:
        raise DataError(f"{folder}: holds nothing to sign. Expected a model, a dataset or a calibration.")
    public = private.public_key().public_bytes_raw()
    signed = {"schema": SCHEMA, "files": files, "key": public.hex(), "signature": private.sign(_text(files)).hex()}
    write_text_atomic(folder / FILE, json.dumps(signed, indent=1))
    return fingerprint(public)


def trust(keys: Sequence[Path]) -> None:
    """Read only what one of these keys signed, in this process and in those that it starts; the keys are read now."""
    for key in keys:
        _public(key)
    os.environ[VARIABLE] = os.pathsep.join(str(key.absolute()) for key in keys)


def check_signature(folder: Path) -> None:
    """Refuse a folder that no trusted key signed, or that is another than was signed; nothing, without trusted keys."""
    keys = [Path(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    if not keys:
        return
    advice = f"Sign it with `pisa sign {folder} --key KEY` if you know that it is right, or leave --trusted out."
    files, key, signature = _read(folder / FILE, advice)
    trusted = {public.public_bytes_raw(): public for public in map(_public, keys)}
    if key not in trusted:
        raise SealError(f"{folder}: signed by the key {fingerprint(key)}, which is not a trusted one. {advice}")
    from cryptography.exceptions import InvalidSignature

    try:
        trusted[key].verify(signature, _text(files))
    except InvalidSignature as error:
        raise SealError(f"{folder / FILE}: not what the key {fingerprint(key)} signed. {advice}") from error
    found = _digests(folder)
    for name in sorted({*files, *found}):
        if files.get(name) != found.get(name):
            what = "was added" if name not in files else "is missing" if name not in found else "was changed"
            raise SealError(f"{folder}: {name} {what} since it was signed. {advice}")


def fingerprint(public: bytes) -> str:
    """What people know a public key by."""
    return f"SHA256:{hashlib.sha256(public).hexdigest()[:32]}"


def _read(path: Path, advice: str) -> tuple[dict[str, str], bytes, bytes]:
    """The files, the key and the signature that a signature file names."""
    if not path.is_file():
        raise SealError(f"{path.parent}: is not signed; --trusted asks for it. {advice}")
    try:
        value: Any = read_json(path)
        if value["schema"] != SCHEMA:
            raise SealError(f"{path}: written with schema {value['schema']}; this version reads {SCHEMA}.")
        files = {str(name): str(digest) for name, digest in value["files"].items()}
        return files, bytes.fromhex(value["key"]), bytes.fromhex(value["signature"])
    except OSError as error:
        raise cannot_be_read(path, error, SealError) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SealError(f"{path}: damaged ({type(error).__name__}: {error}). {advice}") from error


def _digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in a folder by its path there. Hidden files, which nothing reads, are left out."""
    if not folder.is_dir():
        raise DataError(f"{folder}: is not a folder. Expected a model, a dataset or a calibration.")
    found = {}
    for path in files_under(folder):
        inside = path.relative_to(folder)
        if inside.as_posix() != FILE and not any(part.startswith(".") for part in inside.parts):
            try:
                with path.open("rb") as file:
                    found[inside.as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise cannot_be_read(path, error) from error
    return found


def _text(files: dict[str, str]) -> bytes:
    """What is signed."""
    return CONTEXT + json.dumps(files, sort_keys=True).encode()


def _private(path: Path) -> Ed25519PrivateKey:
    _needed("--key")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    found = _key(path, "private", lambda content: load_pem_private_key(content, None))
    if not isinstance(found, Ed25519PrivateKey):
        raise ConfigError(f"{path}: holds a key of another kind; {EXPECTED}.")
    return found


def _public(path: Path) -> Ed25519PublicKey:
    _needed("--trusted")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    found = _key(path, "public", load_pem_public_key)
    if not isinstance(found, Ed25519PublicKey):
        raise ConfigError(f"{path}: holds a key of another kind; {EXPECTED}.")
    return found


def _key(path: Path, half: str, load: Callable[[bytes], object]) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        with path.open("rb") as file:
            return load(file.read(LONGEST_KEY))
    except OSError as error:
        raise cannot_be_read(path, error, ConfigError) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path}: holds no {half} key without a password; {EXPECTED}.") from error


def _needed(purpose: str) -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("cryptography", "sign", purpose) from error
