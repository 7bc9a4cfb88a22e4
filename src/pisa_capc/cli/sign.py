"""Sign models, datasets and calibrations: sign."""

from __future__ import annotations

from pathlib import Path

import typer

from pisa_capc.cli import app
from pisa_capc.cli.output import say
from pisa_capc.core.errors import ConfigError


@app.command()
def sign(
    path: Path | None = typer.Argument(None, help="Folder of a model, a dataset or a calibration.", show_default=False),
    key: Path | None = typer.Option(
        None, help="Private key, Ed25519 in PEM, to sign with; without it, missing digests are all that is written."
    ),
    new_key: Path | None = typer.Option(
        None, help="Write a new private key to this file, and its public key beside it, as FILE.pub."
    ),
) -> None:
    """Sign a model, a dataset or a calibration, so that `--trusted KEY` of any command can ask for the signature.

    What is in the folder is what you vouch for: look before you sign. Files of earlier versions, which have no digest,
    get one. After any change of the folder it has to be signed again.
    """
    from pisa_capc.data.store import signature
    from pisa_capc.model.inference.sealing import seal

    if path is None and key is not None:
        raise ConfigError("sign: --key needs a folder to sign.")
    if path is None and new_key is None:
        raise ConfigError("sign: give a folder and --key KEY, or --new-key KEY to make a key.")
    if new_key is not None:
        public = signature.new_key(new_key)
        say(f"{new_key}: the private key, to sign with; keep it to yourself")
        say(f"{public}: the public key, for --trusted")
    if path is None:
        return
    for name in seal(path):
        say(f"{path / name}: had no digest; it has one now")
    if (chosen := key or new_key) is not None:
        say(f"{path}: signed with {signature.sign(path, chosen)}")
