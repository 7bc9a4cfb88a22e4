"""The closed form is a method like any other: trained, kept, used, changed; and honest where it cannot measure."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pisa_capc.core.errors import ConfigError, DataError, ModelError
from pisa_capc.data.frames import Frames, load
from pisa_capc.data.protocol import split
from pisa_capc.data.scores import openset_score
from pisa_capc.decide.calibration import OpenSet
from pisa_capc.decide.calibration.peers import Direct
from pisa_capc.decide.calibration.policy import usual
from pisa_capc.decide.enrolment import enrol, remove, update
from pisa_capc.decide.enrolment.change import observed_of
from pisa_capc.decide.enrolment.following import FARTHEST, moved
from pisa_capc.decide.identification import Identified
from pisa_capc.decide.identification.explain import Explainer, _apart
from pisa_capc.evidence.evaluation import infer
from pisa_capc.live.listen.claims import Tests
from pisa_capc.live.listen.recognise import Recognised
from pisa_capc.live.listen.senders import Sender
from pisa_capc.live.listen.verifier import Verifier
from pisa_capc.model.inference import TrainedModel, embed, load_model
from pisa_capc.model.methods.recommend import recommended
from pisa_capc.model.runs import NO_ENCODER
from pisa_capc.model.training import Run, fit
from pisa_capc.model.training.fitting import setup_for
from pisa_capc.signal.detection import Identity
from pisa_capc.signal.measurement.quantities import Quantity
from pisa_capc.signal.simulation.generate import generate
from tests.model.training.tools import assert_identical
from tests.problems import runs, small_frames


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Frames:
    folder = tmp_path_factory.mktemp("wifi")
    generate("wifi", folder, scale=0.03, workers=1, show_progress=False)
    return load(folder)


def run_of(frames: Frames) -> Run:
    return Run(split(frames, ["E2", "E3"], "E1", seed=2026), seed=2026)


def trained_on(frames: Frames, **options: object) -> TrainedModel:
    [trained] = fit(run_of(frames), method="closed-form", device="cpu", show=False, **options)  # type: ignore[arg-type]
    return trained


@pytest.fixture(scope="module")
def trained(frames: Frames) -> TrainedModel:
    return trained_on(frames)


def test_it_tells_devices_apart_in_a_place_never_seen(frames: Frames, trained: TrainedModel) -> None:
    [(_, found)] = infer([trained], [run_of(frames).split], {}, torch.device("cpu"))
    assert found.scores()["direct"].macro_f1 > 0.96
    assert trained.run.metrics.validation_f1 > 0.96
    assert trained.run.encoder == NO_ENCODER
    assert trained.run.history == ()


def test_it_is_the_same_from_disk_and_is_not_made_twice(frames: Frames, tmp_path: Path) -> None:
    first = trained_on(frames, out=tmp_path)
    written = (tmp_path / "model.json").stat().st_mtime_ns
    assert_identical(first, load_model(tmp_path))
    assert_identical(first, trained_on(frames, out=tmp_path))
    assert (tmp_path / "model.json").stat().st_mtime_ns == written


def test_the_number_of_frames_at_a_time_does_not_matter(frames: Frames, trained: TrainedModel) -> None:
    some = frames.where(environment="E1").select(np.arange(40))
    whole = embed(trained, some, "cpu")
    pieces = [embed(trained, some.select(rows), "cpu") for rows in (np.arange(7), np.arange(7, 40))]
    np.testing.assert_allclose(np.concatenate([one.logits for one in pieces]), whole.logits, rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(np.concatenate([one.embedding for one in pieces]), whole.embedding, atol=1e-3)


def test_a_silent_antenna_is_one_that_is_named_as_missing(frames: Frames, trained: TrainedModel) -> None:
    some = frames.where(environment="E1").select(np.arange(30))
    named = embed(trained, some, "cpu", missing=[1])
    silent = some.iq.copy()
    silent[:, 1] = 0
    names = [np.array(getattr(some, f"{kind}s"))[getattr(some, kind)] for kind in ("device", "environment", "capture")]
    quiet = Frames.from_arrays(silent, *names, frame=some.frame, cfo_hz=some.cfo_hz, geometry=some.geometry)
    np.testing.assert_allclose(embed(trained, quiet, "cpu").logits, named.logits, rtol=1e-4, atol=1e-3)
    assert np.mean(named.logits.argmax(axis=1) == some.device) > 0.85


def test_what_the_model_does_not_explain_makes_a_decision_less_certain(frames: Frames, trained: TrainedModel) -> None:
    """An offset beyond what is looked for: most such decisions are wrong, and none may be sure."""
    some = frames.where(environment="E1").select(np.arange(0, 700, 7))
    turned = some.iq * np.exp(2j * np.pi * np.arange(some.samples) / 16)
    spun = Frames.from_arrays(turned.astype(np.complex64), "D01", "E9", sample_rate_hz=20e6)
    sure, unsure = (embed(trained, each, "cpu").logits for each in (some, spun))
    assert np.median(np.ptp(unsure, axis=1)) < 0.05 * np.median(np.ptp(sure, axis=1))


def test_a_file_that_holds_no_covariances_is_refused(trained: TrainedModel, tmp_path: Path) -> None:
    for name, value in (("place", -1.0), ("frame", np.nan), ("whiten", np.inf), ("mean", np.nan)):
        broken = deepcopy(trained)
        getattr(broken.model, name)[:] = value if value != -1 else -torch.eye(6, dtype=torch.float64)
        broken.save(tmp_path / name)
        with pytest.raises(ModelError, match="no covariances"):
            load_model(tmp_path / name)


def test_a_device_without_source_frames_is_never_named(frames: Frames) -> None:
    """Networks have a row for it that nothing was learnt for; so has this."""
    model = trained_on(frames.select(np.flatnonzero(frames.device != 3)))
    found = embed(model, frames.where(environment="E1"), "cpu").logits
    assert not np.any(found.argmax(axis=1) == 3)
    assert np.isfinite(found).all()


def test_a_frame_without_the_waveform_is_nobody_in_particular(frames: Frames, trained: TrainedModel) -> None:
    """Its error bars are so wide that no device is far likelier than the others."""
    noise = np.random.default_rng(0).normal(size=(50, 4, 320, 2)) @ [1, 1j]
    strange = Frames.from_arrays(noise.astype(np.complex64), "D01", "E9", sample_rate_hz=20e6)
    logits = embed(trained, strange, "cpu").logits
    known = embed(trained, frames.where(environment="E1"), "cpu").logits
    assert np.median(np.ptp(logits, axis=1)) < 0.05 * np.median(np.ptp(known, axis=1))


def test_three_frames_enrol_a_device_without_a_change_for_the_others(frames: Frames) -> None:
    left = remove(trained_on(frames.select(np.flatnonzero(frames.device != 9))), "D10")
    three = frames.where(environment="E2", device="D10").select([0, 9, 18]).unlabelled()
    larger = enrol(left, "new", three)
    assert larger.devices == (*(f"D{i:02d}" for i in range(1, 10)), "new")
    target = frames.where(environment="E1")
    before, after = embed(left, target, "cpu").logits, embed(larger, target, "cpu").logits
    np.testing.assert_array_equal(after[:, :9], before)
    mine = target.device == 9
    assert np.mean(after[mine].argmax(axis=1) == 9) > 0.85
    assert np.mean(after[~mine].argmax(axis=1) == target.device[~mine]) > 0.95


@pytest.mark.filterwarnings("ignore:closed form. the frames of")
def test_what_it_needs_is_said(frames: Frames) -> None:
    [small] = runs(small_frames(frames=20))
    with pytest.raises(DataError, match=r"32 samples .* too few to measure a transmitter in"):
        fit(small, method="closed-form", settings={"waveform": "wifi"}, device="cpu", show=False)
    with pytest.raises(ConfigError, match=r"closed form: LoRa is known at 1e\+06 samples/s, the frames have 2e\+07"):
        fit(run_of(frames), method="closed-form", settings={"waveform": "lora"}, device="cpu", show=False)
    noise = np.random.default_rng(0).normal(size=(60, 4, 320, 2)) @ [1, 1j]
    lot = Frames.from_arrays(
        noise.astype(np.complex64), device=["D1", "D2"] * 30, environment=np.repeat(["E1", "E2"], 30), capture="L1"
    )
    with pytest.raises(DataError, match="closed form: the frames of E2 do not seem to begin with the preamble"):
        fit(Run(split(lot, "E2", "E1", 1), 1), method="closed-form", device="cpu", show=False)
    channels = run_of(replace(frames, domain="subcarriers"))
    with pytest.raises(ConfigError, match=r"these frames do not say which subcarriers they hold. Import them again"):
        fit(channels, method="closed-form", device="cpu", show=False)
    with pytest.raises(ConfigError, match="subcarriers of a channel and hold no preamble"):
        fit(channels, method="closed-form", settings={"waveform": "wifi"}, device="cpu", show=False)


def test_it_is_recommended_where_frames_begin_with_a_known_preamble(frames: Frames) -> None:
    """A network is what somebody wants who names its encoder; short frames hold too little of the preamble."""
    part = split(frames, ["E2", "E3"], "E1", seed=2026)
    method, why = recommended(part.train, setup_for(part, "cnn", 320))
    assert method == "closed-form"
    assert "begin with the preamble of Wi-Fi" in why
    assert recommended(part.train, setup_for(part, "cnn", 320), network=True).method == "pisa-equalised"
    assert recommended(part.train.segment(90), setup_for(part, "cnn", 90)).method == "pisa-equalised"


def test_what_the_model_says_of_itself_is_plain_json(trained: TrainedModel, tmp_path: Path) -> None:
    trained.save(tmp_path)
    about = json.loads((tmp_path / "model.json").read_text())
    assert about["method"] == "closed-form"
    assert about["settings"] == {"waveform": "auto"}


def test_reports_do_not_list_what_it_does_not_use(trained: TrainedModel) -> None:
    assert repr(trained).startswith("TrainedModel(closed-form, split")
    shown = trained.run.shown()
    assert shown["method"] == "closed-form"
    assert not {"encoder", "training", "precision"} & shown.keys()
    assert trained.run.to_json()["training"]["epochs"] == 30  # which files keep, as they did


def test_strangers_are_told_by_the_error_bars_of_each_frame(frames: Frames, tmp_path: Path) -> None:
    strange = np.isin(frames.device, [0, 4, 8])
    trained = trained_on(frames.select(np.flatnonzero(~strange)))
    assert usual(trained.statistics).rejection == "gaussian"
    target = frames.where(environment="E1")
    scores = embed(trained, target, "cpu")
    known = ~np.isin(target.device, [0, 4, 8])
    for sender, least in ((None, 0.97), (target.device, 0.999)):  # frame by frame, and all of a sender together
        found = OpenSet(Direct(), "gaussian").calibrate(
            scores.embedding, scores.logits, scores.capture, scores.statistics, error=scores.error, sender=sender
        )
        accepted = np.asarray(found.known)
        outcome = openset_score(found.unknown_score[known], accepted[known], found.unknown_score[~known])
        assert outcome.auroc > least
        assert accepted[known].mean() > 0.9
        assert accepted[~known].mean() < 0.1
    scores.save(tmp_path / "scores.npz")
    with np.load(tmp_path / "scores.npz") as kept:
        np.testing.assert_array_equal(kept["error"], scores.error)
    with pytest.raises(DataError, match="gaussian needs the error of every embedding"):
        OpenSet(Direct(), "gaussian").calibrate(scores.embedding, scores.logits, source=scores.statistics)


def test_a_frame_that_cannot_be_measured_is_of_no_device(trained: TrainedModel, frames: Frames) -> None:
    scores = embed(trained, frames.where(environment="E1").select(np.arange(20)), "cpu")
    error = scores.error.copy()
    error[3] = np.inf
    found = OpenSet(Direct(), "gaussian").calibrate(
        scores.embedding, scores.logits, source=scores.statistics, error=error
    )
    assert found.prediction[3] == -1
    assert np.isfinite(found.unknown_score).all()


def test_statistics_and_model_agree_on_every_device(trained: TrainedModel, frames: Frames) -> None:
    left = remove(trained, "D10")
    larger = enrol(left, "new", frames.where(environment="E2", device="D10").unlabelled())
    for model in (trained, left, larger):
        for name, value in model.model.gaussians().items():
            np.testing.assert_allclose(getattr(model.statistics, name), value, rtol=1e-6, atol=1e-9, err_msg=name)


def test_frames_of_two_senders_are_not_enrolled_as_one(frames: Frames) -> None:
    left = remove(trained_on(frames.select(np.flatnonzero(frames.device != 8))), "D10")
    room = frames.where(environment="E2")
    one, other = (np.flatnonzero(room.device == number)[:count] for number, count in ((9, 30), (8, 8)))
    mixed = room.select(np.concatenate([one, other])).unlabelled()
    with pytest.raises(DataError, match=r"new: [789] of 38 frames are not of the sender .* \(numbers 30, 31"):
        enrol(left, "new", mixed, device="cpu")
    assert "new" in enrol(left, "new", mixed, anyway=True, device="cpu").devices
    with pytest.raises(DataError, match=r"sound like D01, which is enrolled: .* as far from its first with a chance"):
        enrol(left, "new", room.select(np.flatnonzero(room.device == 0)).unlabelled(), device="cpu")


def test_a_decision_is_explained_in_quantities_of_the_hardware(trained: TrainedModel, frames: Frames) -> None:
    room = frames.where(environment="E1", device="D04")
    scores, explainer = embed(trained, room, "cpu"), Explainer(trained)
    assert set(explainer.devices) == set(frames.devices)
    together = explainer.measured(scores.embedding, scores.error)
    one = explainer.measured(scores.embedding[:1], scores.error[:1])
    for name, quantity in together.items():
        assert quantity.high - quantity.low < one[name].high - one[name].low
    image, own = together["image rejection"], explainer.devices["D04"]["image rejection"]
    assert abs(image.value - own.value) < 1.0
    reason = explainer.reason(scores.embedding[:1], scores.error[:1], "D04", "D01")
    assert re.fullmatch(r"[\w /]+ .+ ± .+; D04 has .+ ± .+, D01 has .+ ± .+", reason)
    assert re.fullmatch(r"[\w /]+ .+; D01 has .+", explainer.reason(scores.embedding, scores.error, "D01"))
    assert explainer.reason(scores.embedding[:1], np.full_like(scores.error[:1], np.inf), "D01") is None


def test_a_reason_names_the_quantity_that_differs_most(trained: TrainedModel, frames: Frames) -> None:
    scores, explainer = embed(trained, frames.where(environment="E1", device="D04"), "cpu"), Explainer(trained)
    own, other = explainer.measured(scores.embedding[:1], scores.error[:1]), explainer.devices["D01"]

    def apart(name: str) -> float:
        off, turn = abs(own[name].value - other[name].value), own[name].unit == "°"
        half = np.hypot(own[name].high - own[name].low, other[name].high - other[name].low) / 2
        return float((min(off, 360 - off) if turn else off) / half)

    farthest = max((name for name in own if np.isfinite(apart(name))), key=apart)
    assert explainer.reason(scores.embedding[:1], scores.error[:1], "D01").startswith(f"{farthest} ")
    near, far = (Quantity("image angle", "°", value, value - 1, value + 1) for value in (179.0, -179.0))
    assert _apart(near, far) < 2  # two degrees, not 358

    who = SimpleNamespace(scores=scores, devices=trained.devices, explainer=explainer)
    second = trained.devices[int(scores.logits[0].argsort()[-2])]
    known = Identified.reason(who, 0, Identity("D04", "D04", 1.0))  # type: ignore[arg-type]
    assert re.search(rf"; D04 has .+, {second} has ", str(known))
    unknown = Identified.reason(who, 0, Identity(None, "D01", 1.0))  # type: ignore[arg-type]
    assert str(unknown).count(" has ") == 1


def test_a_listener_judges_claims_and_strangers_by_error_bars(frames: Frames) -> None:
    trained = trained_on(frames.select(np.flatnonzero(frames.device != 8)))
    room = frames.where(environment="E1")
    scores, address = embed(trained, room, "cpu"), "02:00:00:00:00:01"

    def heard(device: int) -> list[tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]]:
        rows = np.flatnonzero(room.device == device)[:20]
        return [(scores.logits[i].astype(np.float64), (scores.embedding[i], scores.error[i])) for i in rows]

    verdicts = {}
    for device in (0, 3):
        tests, sender = Tests(trained, np.empty(0), {address: "D01"}), Sender(7, address, np.empty((0, 4)), 0.0)
        verdicts[device] = [tests.claimed(sender, time, *one) for time, one in enumerate(heard(device))][-1]
        arrays, about = tests.state()
        again = Tests(trained, np.empty(0), {address: "D01"})
        again.resume(arrays, about)
        assert again.claims[address].verdict == verdicts[device][0]
    assert verdicts == {0: ("genuine", None), 3: ("not the device", "not the device")}
    assert any(tests.stranger(1, 0.0, measured) for _, measured in heard(8))
    assert not any(tests.stranger(2, 0.0, measured) for _, measured in heard(3))

    asked = list[object]()
    stub = SimpleNamespace(device_of=lambda address: None, stranger=lambda *given: asked.append(given[2]), changed=bool)
    got = Recognised(
        scores.logits[:1].astype(np.float64), np.zeros(1, bool), np.zeros(1), scores.logits[:1].astype(np.float64),
        scores.embedding[:1], scores.error[:1],
    )  # fmt: skip
    verifier = Verifier(SimpleNamespace(trained=trained), stub)  # type: ignore[arg-type]
    for claimed in (None, address):  # frames without an address may be of several senders
        verifier.tested(Sender(1, claimed, np.empty((0, 4)), 0.0), 0.0, got, 0)
    assert asked[0] is None
    assert asked[1] is not None


def test_an_updated_device_follows_its_frames_and_no_others(
    trained: TrainedModel, frames: Frames, tmp_path: Path
) -> None:
    there = frames.where(environment="E1", capture="L1")
    own = there.where(device="D03").unlabelled()
    after = update(trained, "D03", own, origin=[{"dataset": "E1"}], device="cpu")
    assert after.devices == (*(name for name in trained.devices if name != "D03"), "D03")
    k, last = trained.devices.index("D03"), len(after.devices) - 1
    before, now = (np.asarray(model.statistics.device_mean) for model in (trained, after))
    heard = embed(trained, own, "cpu").embedding.mean(axis=0)
    assert np.linalg.norm(now[last] - heard) < np.linalg.norm(before[k] - heard)
    np.testing.assert_allclose(np.delete(now, last, 0), np.delete(before, k, 0), atol=1e-9)
    assert after.run.changes[-1]["step"] == pytest.approx((now[last] - before[k]).tolist())
    assert after.score(there, "cpu") >= trained.score(there, "cpu")
    after.save(tmp_path)
    np.testing.assert_allclose(np.asarray(load_model(tmp_path).statistics.device_mean), now, atol=1e-9)
    other = there.where(device="D04").unlabelled()
    with pytest.raises(DataError, match="farther from it than a second recording would be"):
        update(trained, "D03", other, device="cpu")
    with pytest.raises(DataError, match="frames are not of the sender of the others"):
        update(trained, "D03", there.where(device=["D03", "D04"]).unlabelled(), device="cpu")
    with pytest.raises(ConfigError, match="unknown device 'D99'"):
        update(trained, "D99", own, device="cpu")


def test_a_few_frames_of_another_sender_are_reported_and_left_out_of_an_enrolment(
    trained: TrainedModel, frames: Frames
) -> None:
    smaller, room = remove(trained, "D10"), frames.where(environment="E2")
    own, foreign = (np.flatnonzero(room.device == number)[:count] for number, count in ((9, 30), (8, 2)))
    poison = room.select(np.concatenate([own, foreign])).unlabelled()
    clean = enrol(smaller, "new", room.select(own).unlabelled(), device="cpu")
    with pytest.warns(UserWarning, match=r"new: 2 of 32 frames are not of .*\(numbers 30, 31\) and are left out"):
        poisoned = enrol(smaller, "new", poison, device="cpu")
    forced = enrol(smaller, "new", poison, device="cpu", anyway=True)
    means = [np.asarray(model.statistics.device_mean)[-1] for model in (clean, poisoned, forced)]
    np.testing.assert_allclose(means[1], means[0], atol=1e-6)
    assert np.linalg.norm(means[2] - means[0]) > 0.1


def test_no_series_of_updates_leads_to_another_device(trained: TrainedModel, frames: Frames) -> None:
    backend = trained.statistics.backend()
    other = frames.where(environment="E1", capture="L1", device="D04").unlabelled()
    observed, measured = observed_of(backend, trained.statistics, embed(trained, other, "cpu"))
    number, place = str(trained.devices.index("D03")), other.capture_key[measured]
    total, spread, far = np.zeros(len(backend.frame)), backend.population[1], [0.0]
    said = ""
    while not said and len(far) < 100:
        old = backend.devices[number]
        try:
            learnt = moved(backend, number, observed, place, total, "D03", anyway=True)
        except DataError as error:
            said = str(error)
            continue
        step = learnt.mean - old.mean
        assert step @ np.linalg.solve(backend.after_ageing(number), step) <= len(step) * (1 + 1e-9)
        total, backend = total + step, replace(backend, devices=backend.devices | {number: learnt})
        far.append(float(np.sqrt(total @ np.linalg.solve(spread, total))))
    assert "standard deviations of the devices since it was enrolled" in said
    assert far == sorted(far)
    assert far[-1] <= FARTHEST


def test_a_network_has_no_error_bars_to_follow_a_device_by(trained: TrainedModel, frames: Frames) -> None:
    without = replace(trained, statistics=replace(trained.statistics, device_mean=None))
    with pytest.raises(ModelError, match="no error bars"):
        update(without, "D03", frames.where(device="D03").unlabelled(), device="cpu")
