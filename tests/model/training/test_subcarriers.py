"""Frames of subcarriers: trained on as samples are, and never taken for a waveform, or for samples in time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pisa_capc import load
from pisa_capc.core.errors import ConfigError, DataError, ModelError
from pisa_capc.data.frames import Frames
from pisa_capc.data.store.dataset import SUBCARRIERS, TIME, Dataset, Subcarriers
from pisa_capc.data.store.native import summarise
from pisa_capc.evidence.figures.dataset import dataset_picture
from pisa_capc.model.encoders import ENCODERS
from pisa_capc.model.inference import load_model
from pisa_capc.model.training import fit
from pisa_capc.signal.formats import export_dataset, import_dataset
from pisa_capc.signal.measurement.front_end import front_end_for, through
from tests.channels import NUMBERS, channel_frames
from tests.model.training.tools import FAST
from tests.problems import runs, small_frames


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many subcarriers as an Intel 5300 tells of, at a Wi-Fi sample rate."""
    path = tmp_path_factory.mktemp("csi") / "set"
    replace(small_frames(samples=30), domain=SUBCARRIERS).save(path)
    return path


@pytest.mark.parametrize("encoder", ENCODERS)
def test_every_encoder_trains_on_thirty_subcarriers(encoder: str, folder: Path) -> None:
    [model] = fit(runs(load(folder)), **{**FAST, "encoder": encoder})
    assert np.isfinite(model.predict_proba(load(folder))).all()


@pytest.mark.parametrize("settings", [{}, {"waveform": "wifi"}])
@pytest.mark.parametrize("method", ["eada", "equalised", "pisa-equalised"])
def test_methods_behind_an_equaliser_refuse(method: str, settings: dict[str, str], folder: Path) -> None:
    with pytest.raises(ConfigError, match="the frames are subcarriers of a channel and hold no preamble"):
        fit(runs(load(folder)), method=method, settings=settings, **FAST)


def test_a_model_keeps_what_it_was_trained_on(folder: Path, tmp_path: Path) -> None:
    [model] = fit(runs(load(folder)), **FAST)
    model.save(tmp_path)
    found = load_model(tmp_path)
    found.check_frames(load(folder))
    with pytest.raises(ModelError, match="trained on samples of subcarriers, these frames have samples of time"):
        found.check_frames(small_frames(samples=30))
    [other] = fit(runs(small_frames(samples=30)), **FAST)
    assert "domain" not in other.run.to_json()  # models of time are described as they were before there was a domain
    with pytest.raises(ModelError, match="trained on samples of time, these frames have samples of subcarriers"):
        other.check_frames(load(folder))


def test_a_dataset_says_it_and_others_are_described_as_before(folder: Path, tmp_path: Path) -> None:
    dataset = Dataset.read(folder)
    assert dataset.to_json()["domain"] == SUBCARRIERS == summarise(folder)["domain"]
    assert "domain" not in replace(dataset, domain=TIME).to_json()
    with pytest.raises(DataError, match="domain 'frequency': expected time or subcarriers"):
        replace(dataset, domain="frequency")
    with pytest.raises(DataError, match="concatenate: part 1 has domain subcarriers, part 0 has time"):
        Frames.concatenate([small_frames(samples=30), load(folder)])
    dataset_picture(folder, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 0


def test_the_front_end_is_part_of_the_model(tmp_path: Path) -> None:
    """Trained on what the card reports, it gives the same on frames that are sanitised already, if it can."""
    frames = channel_frames()
    [model] = fit(runs(frames), **FAST)
    assert model.run.to_json()["subcarriers"]["front"] == "antenna"
    assert model.run.samples == len(NUMBERS) - 2
    model.save(tmp_path / "run")
    found = load_model(tmp_path / "run")
    assert found.run.subcarriers == model.run.subcarriers
    sanitised = through(frames, front_end_for(frames.subcarriers, "common"))
    np.testing.assert_allclose(found.predict_proba(sanitised), found.predict_proba(frames), atol=1e-4)
    [plain] = fit(runs(frames), front="none", **FAST)
    with pytest.raises(ModelError, match="trained with front end 'none': these frames have lost one phase and slope"):
        plain.check_frames(sanitised)
    [common] = fit(runs(sanitised), **FAST)
    assert common.run.to_json()["subcarriers"]["front"] == "common"
    np.testing.assert_allclose(common.predict_proba(frames), common.predict_proba(sanitised), atol=1e-4)


def test_frames_and_models_that_do_not_say_their_front_end_are_not_mixed_with_others(folder: Path) -> None:
    """Those of earlier versions: among themselves they work as before."""
    old, new = load(folder), channel_frames()
    [before] = fit(runs(old), **FAST)
    [after] = fit(runs(new), **FAST)
    assert "subcarriers" not in before.run.to_json()
    wide = replace(old, sample_rate_hz=new.sample_rate_hz)
    with pytest.raises(ModelError, match=r"earlier version, which does not say what was taken off .* Train it again"):
        before.check_frames(replace(wide, subcarriers=Subcarriers(tuple(range(30)))))
    with pytest.raises(ModelError, match=r"these frames do not say what was taken off .* Import them again"):
        after.check_frames(wide)
    with pytest.raises(DataError, match="concatenate: one part was imported by an earlier version"):
        Frames.concatenate([new, replace(new, subcarriers=None)])
    with pytest.raises(DataError, match="front end 'none', the other with 'antenna'"):
        Frames.concatenate([new, through(new, front_end_for(replace(all_of(new), empty=()), "antenna"))])
    with pytest.raises(ConfigError, match="Import it again"):
        fit(runs(old), front="antenna", **FAST)


def test_a_dataset_keeps_what_its_values_stand_for(tmp_path: Path) -> None:
    frames = channel_frames(frames=4)
    frames.save(tmp_path / "set")
    assert load(tmp_path / "set").subcarriers == frames.subcarriers == all_of(frames)
    dataset = Dataset.read(tmp_path / "set")
    with pytest.raises(DataError, match="29 subcarriers are named for frames of 30 values"):
        replace(dataset, samples=30)
    with pytest.raises(DataError, match="different numbers in ascending order"):
        Subcarriers((1, 1))
    with pytest.raises(DataError, match="empty subcarriers 4: are not among the subcarriers"):
        Subcarriers((1, 2), (4,))
    with pytest.raises(DataError, match="front 'both': expected none, common, antenna"):
        Subcarriers((1, 2), front="both")
    export_dataset("npz", frames, tmp_path / "all.npz")
    import_dataset("npz", tmp_path / "all.npz", tmp_path / "again")
    assert load(tmp_path / "again").subcarriers == frames.subcarriers


def all_of(frames: Frames) -> Subcarriers:
    assert frames.subcarriers is not None
    return frames.subcarriers
