"""Models on disk, and what is refused when they are read or used."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import pisa_capc
from pisa_capc.core.errors import DataError, ModelError, SealError
from pisa_capc.data.store.seal import sealed
from pisa_capc.evidence.evaluation import load_runs
from pisa_capc.model.inference import TrainedModel, embed, load_model
from pisa_capc.model.inference.model import runs_inside
from pisa_capc.model.inference.tensors import save_tensors
from pisa_capc.model.training import TrainingConfig, fit
from tests.model.training.tools import assert_identical
from tests.problems import runs, small_frames

FRAMES = small_frames(devices=2, environments=2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainedModel]:
    folder = tmp_path_factory.mktemp("finished")
    training = TrainingConfig(epochs=1, batch=16)
    [trained] = fit(
        runs(FRAMES, (3, 4)), encoder="cnn", device="cpu", training=training, out=folder, dataset="f00", show=False
    )
    return folder, trained


@pytest.fixture
def folder(finished: tuple[Path, TrainedModel], tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished[0], tmp_path / "run"))


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    about = json.loads((folder / "model.json").read_text())
    edit(about)
    (folder / "model.json").write_text(json.dumps(sealed(about)))


def test_a_model_read_back_gives_identical_outputs(finished: tuple[Path, TrainedModel]) -> None:
    folder, trained = finished
    target = runs(FRAMES)[0].split.target
    expected, found = embed(trained, target), embed(load_model(folder), target)
    np.testing.assert_array_equal(found.logits, expected.logits)
    np.testing.assert_array_equal(found.embedding, expected.embedding)
    assert found.statistics.known().keys() == expected.statistics.known().keys()
    for name, value in expected.statistics.known().items():
        np.testing.assert_array_equal(found.statistics.known()[name], value)


def test_the_description_says_what_the_model_is_from(finished: tuple[Path, TrainedModel]) -> None:
    about = json.loads((finished[0] / "model.json").read_text())
    expected = {
        "method": "pisa", "variant": "full", "encoder": "cnn", "devices": ["D1", "D2"], "source": ["E2"],
        "target": ["E1"], "split_seed": 3, "seed": 4, "dataset": "f00", "version": pisa_capc.__version__, "samples": 32,
    }  # fmt: skip
    assert {name: about[name] for name in expected} == expected
    assert about["settings"]["model"]["tau_t"] == 2.0
    assert about["settings"]["objective"]["graph"] == 0.001
    assert about["training"]["batch"] == 16
    assert about["geometry"] == FRAMES.geometry.to_json()
    assert set(about["history"][0]["loss"]) == {"cls", "graph", "aug", "kl", "sup"}
    assert about["metrics"]["best_epoch"] == 1


def test_a_description_is_written_as_it_was_read(finished: tuple[Path, TrainedModel], tmp_path: Path) -> None:
    load_model(finished[0]).save(tmp_path)
    assert (tmp_path / "model.json").read_bytes() == (finished[0] / "model.json").read_bytes()


def test_the_description_as_a_dictionary_works_for_one_more_version(finished: tuple[Path, TrainedModel]) -> None:
    with pytest.warns(DeprecationWarning, match=r"TrainedModel\.about is now TrainedModel\.run"):
        assert finished[1].about == finished[1].run.to_json()


def test_source_statistics_are_those_of_the_training_and_validation_frames(
    finished: tuple[Path, TrainedModel],
) -> None:
    trained = finished[1]
    parts = runs(FRAMES, (3, 4))[0].split
    train, validation = embed(trained, parts.train.unlabelled()), embed(trained, parts.validation.unlabelled())
    source = trained.statistics.known()
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(source["mean"], train.embedding.mean(0), **close)
    for c in range(2):
        np.testing.assert_allclose(source["class_mean"][c], train.embedding[parts.train.device == c].mean(0), **close)
    np.testing.assert_allclose(source["prior"], np.bincount(parts.train.device) / len(parts.train), **close)
    np.testing.assert_allclose(train.logits, train.embedding @ source["weight"].T + source["bias"], **close)
    for decided, true in np.ndindex(2, 2):
        here = (validation.logits.argmax(1) == decided) & (parts.validation.device == true)
        assert source["confusion"][decided, true] == here.sum()
    assert source["temperature"] > 0


def test_a_truncated_file_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"model\.safetensors: damaged"):
        load_model(folder)


def test_whoever_may_read_the_description_may_read_the_weights(folder: Path) -> None:
    modes = {name: (folder / name).stat().st_mode for name in ("model.json", "model.safetensors")}
    assert modes["model.safetensors"] == modes["model.json"]


def test_a_file_that_may_not_be_read_is_not_called_damaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    description = (folder / "model.json").read_text()
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: description)
    with pytest.raises(ModelError, match=r"model\.safetensors: cannot be read \(Permission denied\)"):
        load_model(folder)


def test_a_run_that_may_not_be_looked_into_is_not_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs tests as root may look into everything."""
    is_file = Path.is_file

    def refusing(self: Path) -> bool:
        if self.parent.name == "b":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return is_file(self)

    shutil.copytree(folder, folder.parent / "runs" / "a")
    assert runs_inside(folder.parent / "runs") == [folder.parent / "runs" / "a"]
    assert runs_inside(folder.parent / "nowhere") == runs_inside(folder / "model.json") == []
    (folder.parent / "runs" / "b").mkdir()
    monkeypatch.setattr(Path, "is_file", refusing)
    with pytest.raises(ModelError, match=r"b/model\.json: cannot be read \(Permission denied\)"):
        load_runs(folder.parent / "runs")


@pytest.mark.parametrize("tensor", ["model.classifier.weight", "source.mean"])
def test_one_changed_bit_is_refused(folder: Path, tensor: str) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    header = int.from_bytes(content[:8], "little")
    place = 8 + header + json.loads(content[8 : 8 + header])[tensor]["data_offsets"][0]
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.safetensors: damaged .* SHA-256"):
        load_model(folder)


def test_the_weights_of_another_run_are_refused(folder: Path, finished: tuple[Path, TrainedModel]) -> None:
    other = deepcopy(finished[1])
    with torch.no_grad():
        other.model.get_parameter("classifier.bias").add_(1)
    other.save(folder.parent / "other")
    shutil.copy(folder.parent / "other" / "model.safetensors", folder)
    with pytest.raises(ModelError, match=r"not those that model\.json was written with"):
        load_model(folder)


def test_a_model_written_before_there_were_digests_is_read_where_that_is_asked_for(
    folder: Path, finished: tuple[Path, TrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "model.safetensors"
    save_file(load_file(path), path)
    change(folder, lambda about: about.pop("sha256"))
    with pytest.raises(SealError, match=r"model\.safetensors: without a digest"):
        load_model(folder)
    monkeypatch.setenv("PISA_UNSEALED", "1")
    with pytest.warns(UserWarning, match="without a digest"):
        assert_identical(load_model(folder), finished[1])


def test_a_guard_of_an_earlier_version_is_left_out(folder: Path, finished: tuple[Path, TrainedModel]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_tensors(path, {**tensors, "source.guard": torch.tensor([0.1, 0.2, 0.3])})
    change(folder, lambda about: about.update(guard={"guard": 1, "calibration": 1}))
    assert_identical(load_model(folder), finished[1])


def test_an_edited_description_is_refused(folder: Path) -> None:
    path = folder / "model.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps({**about, "seed": about["seed"] + 1}))
    with pytest.raises(ModelError, match=r"model\.json: not a model description .*it was changed"):
        load_model(folder)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"schema": ' + "9" * 400 + "}", '{"schema": 1, "seed": ' + "[" * 99 + "]" * 99 + "}"]
)
def test_a_description_without_bounds_is_refused(folder: Path, text: str) -> None:
    (folder / "model.json").write_text(text)
    with pytest.raises(ModelError, match=r"model\.json: not a model description .*(deep|64)"):
        load_model(folder)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", *(json.dumps(sealed(values)) for values in ({"schema": 1}, {"schema": 1, "devices": 3})), "\x00"],
)
def test_a_foreign_description_is_refused(folder: Path, text: str) -> None:
    (folder / "model.json").write_text(text)
    with pytest.raises(ModelError, match=r"model\.json: not a model description"):
        load_model(folder)


def test_a_description_of_another_class_set_is_refused(folder: Path) -> None:
    change(folder, lambda about: about["devices"].append("D3"))
    with pytest.raises(ModelError, match=r"model\.classifier\.bias is \(1, 2\), expected \(1, 3\)"):
        load_model(folder)


def test_a_description_of_another_encoder_is_refused(folder: Path) -> None:
    change(folder, lambda about: about.update(encoder="resnet"))
    with pytest.raises(ModelError, match=r"does not fit model\.json"):
        load_model(folder)


def test_another_schema_is_refused(folder: Path) -> None:
    change(folder, lambda about: about.update(schema=99))
    with pytest.raises(ModelError, match="schema 99; this version reads 1"):
        load_model(folder)


def test_a_folder_without_a_model_says_what_it_holds(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds the runs run: name one of them"):
        load_model(folder.parent)
    with pytest.raises(ModelError, match=r"holds no model\.json"):
        load_model(tmp_path / "nowhere")


def test_a_model_that_cannot_be_written_says_so(finished: tuple[Path, TrainedModel], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        finished[1].save(tmp_path / "file")


def test_frames_of_another_kind_are_refused(finished: tuple[Path, TrainedModel]) -> None:
    trained = finished[1]
    with pytest.raises(ModelError, match="trained for 2 antennas, these frames have 3"):
        embed(trained, small_frames(2, 1, 4, antennas=3).unlabelled())
    with pytest.raises(ModelError, match=r"reads 32 samples .* hold 16"):
        embed(trained, small_frames(2, 1, 4, samples=16).unlabelled())
    with pytest.raises(ModelError, match=r"trained at 2e\+07 samples/s, these frames have 1e\+06"):
        embed(trained, replace(small_frames(2, 1, 4), sample_rate_hz=1e6).unlabelled())


def test_embedding_does_not_depend_on_the_batch(finished: tuple[Path, TrainedModel]) -> None:
    target = runs(FRAMES)[0].split.target
    whole, pieces = embed(finished[1], target), embed(finished[1], target, batch=7)
    np.testing.assert_allclose(pieces.logits, whole.logits, rtol=1e-4, atol=1e-5)
    assert whole.embedding.shape == (len(target), 64)


def test_embedding_is_saved_without_labels(finished: tuple[Path, TrainedModel], tmp_path: Path) -> None:
    target = runs(FRAMES)[0].split.target
    scores = embed(finished[1], target)
    scores.save(tmp_path / "deep" / "scores.npz")
    with np.load(tmp_path / "deep" / "scores.npz") as found:
        names = {n for n in found.files if not n.startswith("source_")}
        assert names == {"embedding", "logits", "capture", "environment", "frame", "cfo_hz", "devices"}
        assert found["devices"].tolist() == list(finished[1].devices)  # what classes are called, not who sent
        assert {"source_mean", "source_class_mean", "source_weight", "source_confusion"} <= set(found.files)
        assert set(found["capture"].tolist()) == {"E1/L1"}
        assert set(found["environment"].tolist()) == {"E1"}
        np.testing.assert_array_equal(found["frame"], target.frame)
        np.testing.assert_array_equal(found["cfo_hz"], target.cfo_hz.mean(axis=1))
    with pytest.raises(DataError, match="cannot be written"):
        scores.save(tmp_path / "deep" / "scores.npz" / "below.npz")


def test_no_frequency_offset_is_saved_where_none_was_recorded(
    finished: tuple[Path, TrainedModel], tmp_path: Path
) -> None:
    target = runs(FRAMES)[0].split.target
    unrecorded = replace(target, source=replace(target.source, cfo_hz=None))
    embed(finished[1], unrecorded).save(tmp_path / "scores.npz")
    with np.load(tmp_path / "scores.npz") as found:
        assert "cfo_hz" not in found.files


def test_a_model_computes_on_missing_antennas(finished: tuple[Path, TrainedModel]) -> None:
    iq = torch.randn(3, 2, 32, 2)
    mask = torch.tensor([[True, False]] * 3)
    assert torch.isfinite(finished[1].model(iq, None, mask).logits).all()


def test_a_model_predicts_names_probabilities_and_a_score(finished: tuple[Path, TrainedModel]) -> None:
    _, trained = finished
    part = runs(FRAMES, (3, 4))[0].split
    probability = trained.predict_proba(part.target)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    names = trained.predict(part.target)
    assert names.tolist() == [trained.devices[k] for k in probability.argmax(axis=1)]
    right = np.array(FRAMES.devices)[part.validation.device] == trained.predict(part.validation)
    assert trained.score(part.validation) == right.mean()
    with pytest.raises(DataError, match="no device column"):
        trained.score(part.target)  # type: ignore[arg-type]
    assert repr(trained) == "TrainedModel(pisa with cnn, split3-seed4, trained in E2, 2 devices)"
