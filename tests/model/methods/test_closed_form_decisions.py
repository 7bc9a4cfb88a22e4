"""What decisions of the closed form say beside a name: whether a frame fits, what a sender's frames tell together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import Frames, load
from pisa_capc.data.protocol import split
from pisa_capc.decide.calibration.peers import Direct
from pisa_capc.decide.enrolment import enrol, remove
from pisa_capc.decide.identification import Choices, predict
from pisa_capc.decide.identification.likelihood import pooled_scores
from pisa_capc.evidence.evaluation import infer
from pisa_capc.evidence.figures.measured import decided_picture
from pisa_capc.evidence.reports.page import Page
from pisa_capc.evidence.reports.run import _hardware
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.training import Run, fit
from pisa_capc.signal.measurement.fit import GoodnessOfFit
from pisa_capc.signal.measurement.senders import measure
from pisa_capc.signal.simulation.generate import generate
from pisa_capc.signal.waveforms import WAVEFORMS
from tests.signal.measurement.frames import white

CHOICES = Choices(Direct(), reject=None)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Frames:
    folder = tmp_path_factory.mktemp("wifi")
    generate("wifi", folder, scale=0.02, workers=1, show_progress=False)
    return load(folder)


@pytest.fixture(scope="module")
def trained(frames: Frames) -> TrainedModel:
    run = Run(split(frames, ["E2", "E3"], "E1", seed=2026), seed=2026)
    [trained] = fit(run, method="closed-form", device="cpu", show=False)
    return trained


def test_the_flag_of_a_decision_is_the_goodness_of_fit_of_pisa_measure(trained: TrainedModel, frames: Frames) -> None:
    room = frames.where(environment="E1")
    who = predict(trained, room.unlabelled(), CHOICES, "cpu")
    by_hand = GoodnessOfFit(WAVEFORMS["wifi"], 320).chance(room.iq)
    np.testing.assert_allclose(who.scores.fit, by_hand, rtol=0.02, atol=1e-6)
    assert who.misfits is not None
    assert who.misfits <= 0.02 * len(room)
    assert not any("does not fit" in str(one.reason) for one in who.identities if one.fit > 0.01)


def test_a_frame_with_another_signal_in_it_is_said_not_to_fit(trained: TrainedModel, frames: Frames) -> None:
    room = frames.where(environment="E1").select(np.arange(40))
    tone = 0.3 * np.exp(2j * np.pi * 0.11 * np.arange(320))
    disturbed = Frames.from_arrays(
        (room.iq + tone * np.sqrt(np.mean(np.abs(room.iq) ** 2))).astype(np.complex64), device="D01", environment="E1",
        geometry=frames.geometry,
    )  # fmt: skip
    who = predict(trained, disturbed.unlabelled(), CHOICES, "cpu")
    assert who.misfits is not None
    assert who.misfits > 36
    assert "does not fit the waveform (p " in str(who.identities[0].reason)


def test_frames_of_a_sender_are_pooled_with_what_their_place_adds_to_all(trained: TrainedModel, frames: Frames) -> None:
    room = frames.where(environment="E1", device="D03").select(np.arange(12))
    scores, group = embed(trained, room, "cpu"), np.repeat([0, 1], 6)
    who = predict(trained, room.unlabelled(), CHOICES, "cpu", group=group)
    backend = trained.statistics.backend()
    together = backend.evidence(scores.embedding.astype(float), scores.error).pooled(group)
    expected = softmax(backend.log_likelihood(together), axis=1)
    np.testing.assert_allclose(who.probability, np.repeat(expected, 6, axis=0), atol=1e-4)

    # A frame many times is not many frames of many places: its error falls to that of the place and no further.
    own = {name: np.repeat(getattr(scores, name)[:1], 4000, axis=0) for name in ("embedding", "error", "logits")}
    pooled = pooled_scores(replace(scores, **own), np.zeros(4000, dtype=np.int64))
    assert pooled is not None
    known = backend.evidence(scores.embedding[:1].astype(float), np.zeros_like(scores.error[:1]) - backend.frame)
    np.testing.assert_allclose(pooled.logits[0], backend.log_likelihood(known)[0], rtol=0.02)


def test_a_frame_that_cannot_be_measured_goes_with_its_group(trained: TrainedModel, frames: Frames) -> None:
    scores = embed(trained, frames.where(environment="E1").select(np.arange(6)), "cpu")
    error = scores.error.copy()
    error[[1, 5]] = np.inf
    pooled = pooled_scores(replace(scores, error=error), np.array([0, 0, 0, 1, 1, 2]))
    assert pooled is not None
    np.testing.assert_array_equal(pooled.logits[1], pooled.logits[0])
    np.testing.assert_array_equal(pooled.logits[5], scores.logits[5])
    assert np.isinf(pooled.error[5]).all()


def test_a_report_shows_the_hardware_of_each_device(trained: TrainedModel, frames: Frames, tmp_path: Path) -> None:
    [(_, run)] = infer([trained], [split(frames, ["E2", "E3"], "E1", seed=2026)], {})
    page = Page("A run")
    _hardware(page, run)
    text = page.html()
    assert "What decides" in text
    for name in frames.devices:
        assert f"<td>{name}</td>" in text
    assert "image rejection (dB)" in text
    picture = decided_picture(run, tmp_path / "flaws.png")
    assert picture is not None
    assert picture.path.stat().st_size > 10_000


def made(room: Frames, iq: np.ndarray) -> Frames:
    names = np.array(room.devices)[room.device]
    return Frames.from_arrays(iq.astype(np.complex64), device=names, environment="E1", geometry=room.geometry)


def test_frames_of_another_waveform_are_neither_measured_nor_enrolled(trained: TrainedModel, frames: Frames) -> None:
    """Nor such of another sample rate than they say: no confident wrong number."""
    room, random = frames.where(environment="E1", device="D01"), np.random.default_rng(3)
    chirps = np.tile(WAVEFORMS["lora"].preamble()[:320], (len(room), 4, 1)) + 0.1 * white(random, *room.iq.shape)
    slower = np.repeat(room.iq[..., :160], 2, axis=-1)
    others = remove(trained, "D01")
    for wrong in (made(room, chirps), made(room, slower)):
        with pytest.raises(DataError, match="do not seem to begin with the preamble of Wi-Fi"):
            measure(wrong)
        with pytest.raises(DataError, match="do not seem to begin with the preamble of Wi-Fi"):
            enrol(others, "new", wrong.unlabelled(), device="cpu")
        who = predict(trained, wrong.unlabelled(), Choices(Direct()), "cpu")
        assert who.misfits == len(room)
        assert set(who.device) == {None}
    with pytest.warns(UserWarning, match="do not seem to begin"):  # who names the waveform knows better
        assert np.nanmean(measure(made(room, chirps), "wifi").suspicion < 0.01) == 1


def test_clipped_frames_are_enrolled_with_a_warning(trained: TrainedModel, frames: Frames) -> None:
    room = frames.where(environment="E1", device="D01")
    most = np.sqrt(np.mean(np.abs(room.iq) ** 2, axis=-1, keepdims=True))
    clipped = np.clip(room.iq.real, -most, most) + 1j * np.clip(room.iq.imag, -most, most)
    with pytest.warns(UserWarning, match=r"new: 100% of its frames do not fit the waveform"):
        enrol(remove(trained, "D01"), "new", made(room, clipped).unlabelled(), anyway=True, device="cpu")


def test_frames_without_noise_are_measured(frames: Frames) -> None:
    """Bars are as small as float32 and the few taps of a channel allow, and hold the truth."""
    room = frames.where(environment="E1", device="D01").select(np.arange(20))
    image = 0.03 - 0.02j
    sent = WAVEFORMS["wifi"].preamble()[:320]
    gain = white(np.random.default_rng(4), 20, 4, 1)
    found = measure(made(room, gain * (sent + image * sent.conj()))).measurement
    off = np.abs(found.value[:, found.flaws.index("image")] - image)
    assert np.all(off < 1e-3)
    assert np.isfinite(found.covariance).all()
