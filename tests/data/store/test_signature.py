"""Signatures: who may have changed a model, a dataset or a calibration, and who may not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError, DataError, MissingExtraError, PisaError, SealError
from pisa_capc.data.frames import load
from pisa_capc.data.store import seal, signature
from pisa_capc.data.store.seal import sealed
from pisa_capc.decide.calibration import FrozenCalibration
from pisa_capc.model.inference import TrainedModel, load_model
from pisa_capc.model.inference.sealing import seal as seal_folder
from pisa_capc.model.training import TrainingConfig, fit
from tests.cli.test_model_commands import Command
from tests.data.store.test_native import write_random
from tests.decide.identification.conftest import pisa  # noqa: F401  (a fixture)
from tests.problems import runs, small_frames

pytest.importorskip("cryptography")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (signature.VARIABLE, seal.VARIABLE):
        monkeypatch.setenv(name, "")  # so that what a command sets ends with the test


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key"
    assert signature.new_key(path) == path.with_name("key.pub")
    return path


@pytest.fixture(scope="module")
def trained() -> TrainedModel:
    frames = small_frames(devices=3, environments=2)
    training = TrainingConfig(epochs=1, batch=16)
    [model] = fit(runs(frames), encoder="cnn", device="cpu", training=training, show=False)
    return model


@pytest.fixture
def run(trained: TrainedModel, key: Path, tmp_path: Path) -> Path:
    """A signed model."""
    trained.save(tmp_path / "run")
    signature.sign(tmp_path / "run", key)
    return tmp_path / "run"


def reverse_devices(about: dict[str, object]) -> None:
    about["devices"] = list(about["devices"])[::-1]  # type: ignore[call-overload]


def edit(run: Path, change: Callable[[dict[str, object]], object], with_digest: bool = True) -> None:
    path = run / "model.json"
    about = json.loads(path.read_text())
    del about["digest"]
    change(about)
    path.write_text(json.dumps(sealed(about) if with_digest else about))


def test_who_deletes_the_digest_and_reverses_the_devices_is_refused(run: Path) -> None:
    load_model(run)
    edit(run, reverse_devices, with_digest=False)
    with pytest.raises(SealError, match=r"model.json: without a digest, .* forger leaves it.*`pisa sign FOLDER`"):
        load_model(run)


def test_a_right_digest_does_not_help_where_a_signature_is_asked_for(run: Path, key: Path) -> None:
    edit(run, reverse_devices)
    load_model(run)  # a digest has no key: this is what a signature is for
    signature.trust([key.with_name("key.pub")])
    with pytest.raises(SealError, match=r"run: model.json was changed since it was signed"):
        load_model(run)


def test_every_other_change_of_a_signed_model_is_refused(run: Path, key: Path, tmp_path: Path) -> None:
    signature.trust([key.with_name("key.pub")])
    load_model(run)

    def weights(folder: Path) -> None:
        content = bytearray((folder / "model.safetensors").read_bytes())
        content[-1] ^= 1
        (folder / "model.safetensors").write_bytes(content)

    def relisted(folder: Path) -> None:
        weights(folder)
        path = folder / signature.FILE
        told = json.loads(path.read_text())
        path.write_text(json.dumps({**told, "files": signature._digests(folder)}))

    def another_key(folder: Path) -> None:
        signature.new_key(tmp_path / "theirs")
        signature.sign(folder, tmp_path / "theirs")

    def claimed_key(folder: Path) -> None:
        ours = json.loads((folder / signature.FILE).read_text())["key"]
        another_key(folder)
        told = json.loads((folder / signature.FILE).read_text())
        (folder / signature.FILE).write_text(json.dumps({**told, "key": ours}))

    attacks: dict[str, Callable[[Path], object]] = {
        "model.safetensors was changed": weights,
        "not what the key SHA256:": relisted,
        "signed by the key SHA256:.* not a trusted one": another_key,
        "signature.json: not what the key": claimed_key,
        "model.onnx was added": lambda folder: (folder / "model.onnx").write_bytes(b"theirs"),
        "is not signed": lambda folder: (folder / signature.FILE).unlink(),
        "signature.json: damaged": lambda folder: (folder / signature.FILE).write_text('{"schema": 1, "files": 3}'),
        "written with schema 2": lambda folder: (folder / signature.FILE).write_text('{"schema": 2}'),
    }
    for number, (said, attack) in enumerate(attacks.items()):
        copy = Path(shutil.copytree(run, tmp_path / f"copy{number}"))
        attack(copy)
        with pytest.raises(SealError, match=said):
            load_model(copy)
        for path in (tmp_path / "theirs", tmp_path / "theirs.pub"):
            path.unlink(missing_ok=True)


def test_a_signature_for_another_purpose_is_none_here(run: Path, key: Path) -> None:
    told = json.loads((run / signature.FILE).read_text())
    plain = json.dumps(told["files"], sort_keys=True).encode()  # without what stands before it
    told["signature"] = signature._private(key).sign(plain).hex()
    (run / signature.FILE).write_text(json.dumps(told))
    signature.trust([key.with_name("key.pub")])
    with pytest.raises(SealError, match="not what the key"):
        load_model(run)


def test_datasets_and_calibrations_are_asked_for_their_signature_too(key: Path, tmp_path: Path) -> None:
    dataset, fitted = write_random(tmp_path / "set"), tmp_path / "fitted"
    random = np.random.default_rng(1)
    FrozenCalibration.fit(random.normal(size=(9, 4)), random.normal(size=(9, 3))).save(fitted)
    signature.trust([key.with_name("key.pub")])
    for folder, read in ((dataset, load), (fitted, FrozenCalibration.load)):
        with pytest.raises(SealError, match="is not signed"):
            read(folder)
        signature.sign(folder, key)
        read(folder)
    capture = next(dataset.rglob("*.h5"))
    capture.write_bytes(capture.read_bytes() + b"\0")
    with pytest.raises(SealError, match=r"\.h5 was changed"):
        load(dataset)


def test_models_of_earlier_versions_are_sealed_and_signed(trained: TrainedModel, key: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    trained.save(run := tmp_path / "run")
    whole = {path.name: path.read_bytes() for path in run.iterdir()}
    save_file(load_file(run / "model.safetensors"), run / "model.safetensors")
    about = json.loads((run / "model.json").read_text())
    (run / "model.json").write_text(json.dumps({k: v for k, v in about.items() if k not in ("digest", "sha256")}))
    with pytest.raises(SealError, match="without a digest"):
        load_model(run)
    assert sorted(seal_folder(run)) == ["model.json", "model.safetensors"]
    assert seal_folder(run) == []
    load_model(run)
    assert (run / "model.safetensors").read_bytes() == whole["model.safetensors"]
    edit(run, lambda about: about.update(sha256="0"), with_digest=False)
    with pytest.raises(SealError, match="its weights are not those"):
        seal_folder(run)
    (run / "model.json").write_text(json.dumps({**about, "samples": 7}))  # with a digest that is not its own
    with pytest.raises(SealError, match="it was changed"):
        seal_folder(run)
    with pytest.raises(DataError, match=r"holds no model.json, dataset.json, calibration.json"):
        seal_folder(tmp_path)


def test_the_commands(run: Path, pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    mine = tmp_path / "mine"
    made = pisa("sign", "--new-key", mine)
    assert made.code == 0
    assert mine.stat().st_mode & 0o077 == 0
    assert pisa("sign", "--new-key", mine).code == 2  # never replaces a key
    fewer = ("enrol", run, "--remove", "D2", "--out", tmp_path / "fewer")
    refused = pisa(*fewer, "--trusted", f"{mine}.pub")
    assert refused.code == 2
    assert "which is not a trusted one" in refused.err
    assert "signed with SHA256:" in pisa("sign", run, "--key", mine).out
    assert (done := pisa(*fewer, "--trusted", f"{mine}.pub")).code == 0, done.err
    for arguments, said in (
        (("sign",), "give a folder and --key KEY"),
        (("sign", "--key", mine), "--key needs a folder"),
        (("sign", run, "--key", f"{mine}.pub"), "holds no private key"),
        (("sign", run, "--key", tmp_path / "none"), "cannot be read"),
        (("--trusted", mine, "methods"), "holds no public key"),
        (("methods", "--trusted"), "--trusted: expected a file"),
    ):
        done = pisa(*arguments)
        assert (done.code, said in done.err) == (2, True), repr(done.err)


def test_a_command_reads_a_model_without_a_digest_where_it_is_told_to(run: Path, pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    edit(run, lambda about: None, with_digest=False)
    fewer = ("enrol", run, "--remove", "D2", "--out", tmp_path / "fewer")
    assert pisa(*fewer).code == 2
    done = pisa(*fewer, "--unsealed")
    assert done.code == 0, done.err
    assert "without a digest" in done.err
    seal_note = pisa("sign", run)
    assert "model.json: had no digest; it has one now" in seal_note.out


def test_keys_of_openssl_work_and_others_are_named(run: Path, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")

    def openssl(*arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    theirs, public = tmp_path / "theirs.pem", tmp_path / "theirs.pub"
    openssl("genpkey", "-algorithm", "ed25519", "-out", theirs)
    openssl("pkey", "-in", theirs, "-pubout", "-out", public)
    signature.sign(run, theirs)
    signature.trust([public])
    load_model(run)
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", theirs)
    openssl("pkey", "-in", theirs, "-pubout", "-out", public)
    with pytest.raises(ConfigError, match="a key of another kind; expected an Ed25519 key"):
        signature.sign(run, theirs)
    with pytest.raises(ConfigError, match="a key of another kind"):
        signature.trust([public])


def test_without_the_package_nothing_is_trusted(run: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(signature.VARIABLE, str(key.with_name("key.pub")))
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingExtraError, match=r"pisa-capc\[sign\]"):
        load_model(run)


@pytest.mark.parametrize(
    "content", [b"", b"x" * 20_000, b"\xff\xfe", b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----"]
)
def test_a_file_that_holds_no_key_is_one_message(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(content)
    for use in (lambda: signature.trust([tmp_path / "odd"]), lambda: signature.sign(tmp_path, tmp_path / "odd")):
        with pytest.raises(PisaError, match="odd: holds no"):
            use()
