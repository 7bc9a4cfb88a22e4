"""Frames of subcarriers: trained on as samples are, and never taken for a waveform, or for samples in time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pisa_capc import load
from pisa_capc.core.errors import ConfigError, DataError, ModelError
from pisa_capc.data.frames import Frames
from pisa_capc.data.store.dataset import SUBCARRIERS, TIME, Dataset
from pisa_capc.data.store.summary import summarise
from pisa_capc.evidence.figures.dataset import dataset_picture
from pisa_capc.model.encoders import ENCODERS
from pisa_capc.model.inference import load_model
from pisa_capc.model.training import fit
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
    assert "domain" not in other.about  # models of time are described as they were before there was a domain
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
