"""pisa encoders, methods, train, embed and evaluate, as they are called."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pisa_capc.cli import main
from pisa_capc.data.frames import Frames, load
from pisa_capc.data.geometry import linear
from pisa_capc.data.protocol import split
from pisa_capc.data.store.dataset import UNLABELLED
from pisa_capc.data.store.seal import sealed
from pisa_capc.decide.calibration import Careful
from pisa_capc.model.inference import devices
from pisa_capc.model.inference.devices import has_bfloat16
from pisa_capc.signal.simulation.generate import generate
from tests.problems import write_small

QUICK = ("--encoder", "cnn", "--epochs", "1", "--batch", "16", "--device", "cpu")


class Result(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Result]


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> Result:
    before, sys.argv = sys.argv, ["pisa", *map(str, arguments)]
    try:
        with pytest.raises(SystemExit) as stop:
            main()
    finally:
        sys.argv = before
    printed = capsys.readouterr()
    return Result(int(stop.value.code or 0), printed.out, printed.err)


@pytest.fixture
def pisa(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command line in this process: exit code, standard output, standard error."""

    def run(*arguments: object) -> Result:
        return call(capsys, *arguments)

    return run


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("data") / "wifi", frames=20)


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs `one` and `several`."""
    folder = tmp_path_factory.mktemp("trained")
    before = sys.argv
    for out, seeds in (("one", "3"), ("several", "3,4")):
        sys.argv = ["pisa", "train", str(data), "--source", "E2,E3", "--target", "E1", *QUICK, "--seed", seeds,
                    "--out", str(folder / out)]  # fmt: skip
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
    sys.argv = before
    return folder


def train(data: Path, out: Path, *more: object) -> list[object]:
    return ["train", data, "--source", "E2,E3", "--target", "E1", "--out", out, *QUICK, *more]


def refused(result: Result, *parts: str) -> None:
    assert result.code == 2
    assert result.out == ""
    assert "Traceback" not in result.err
    text = " ".join(result.err.split())
    for part in parts:
        assert part in text, text


def test_encoders_prints_the_ten_class_sizes(pisa: Command) -> None:
    found = pisa("encoders", "--json")
    assert found.code == 0
    paper = {
        "cnn": 39551, "mscnn": 63839, "resnet": 52735, "tcn": 64895, "cvcnn": 35519, "cldnn": 47423,
        "transformer": 86527,
    }  # fmt: skip
    assert json.loads(found.out) | paper == json.loads(found.out)
    table = pisa("encoders").out
    assert "30,112" in table
    assert "86,527" in table


def test_methods_lists_name_citation_and_needs(pisa: Command) -> None:
    found = pisa("methods", "--json")
    assert found.code == 0
    methods = {entry["name"]: entry for entry in json.loads(found.out)}
    assert "TMLR 2022" in methods["difex"]["citation"]
    assert methods["difex"]["source_environments"] == 2
    assert "preamble" in methods["eada"]["needs"][0]
    assert methods["mixup"]["settings"]["alpha"] == 0.2
    table = pisa("methods").out
    assert all(name in table for name in methods)


def test_train_writes_one_run_into_the_folder_itself(trained: Path) -> None:
    assert {path.name for path in (trained / "one").iterdir()} == {"model.json", "model.safetensors"}


def test_train_writes_several_runs_into_subfolders(trained: Path) -> None:
    names = {path.name for path in (trained / "several").iterdir()}
    assert names == {"split2026-seed3", "split2026-seed4"}
    runs = sorted(names)
    about = [json.loads((trained / "several" / name / "model.json").read_text()) for name in runs]
    assert [a["seed"] for a in about] == [3, 4]
    assert about[0]["dataset"]
    assert about[0]["training"]["epochs"] == 1


def test_train_again_keeps_what_is_finished(pisa: Command, data: Path, trained: Path) -> None:
    before = (trained / "several" / "split2026-seed3" / "model.safetensors").stat().st_mtime_ns
    found = pisa(*train(data, trained / "several", "--seed", "3,4", "--json"))
    assert found.code == 0
    rows = json.loads(found.out)
    assert [row["run"] for row in rows] == ["split2026-seed3", "split2026-seed4"]
    assert set(rows[0]) == {"run", "best_epoch", "validation_f1", "seconds", "folder"}
    assert (trained / "several" / "split2026-seed3" / "model.safetensors").stat().st_mtime_ns == before
    assert "training and" in found.err


def test_train_takes_every_setting(pisa: Command, data: Path, tmp_path: Path) -> None:
    settings = ("--set", "model.beta=0.5", "--set", "training.learning_rate=3e-4", "--set", "objective.graph=0")
    found = pisa(*train(data, tmp_path / "run", *settings, "--split-seed", "7", "--samples", "24"))
    assert found.code == 0
    assert "split7-seed2026" in found.out
    about = json.loads((tmp_path / "run" / "model.json").read_text())
    assert about["settings"]["model"]["beta"] == 0.5
    assert about["settings"]["objective"]["graph"] == 0
    assert about["training"]["learning_rate"] == 3e-4
    assert about["samples"] == 24


def test_an_interrupted_training_goes_on(
    pisa: Command, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pisa_capc.model.training.stack import Stack

    train_epoch = Stack.train_epoch

    def interrupt(self: Stack, epoch: int, after_step: Callable[[], None], *rest: Any) -> object:
        if epoch == 1:
            raise KeyboardInterrupt
        return train_epoch(self, epoch, after_step, *rest)

    assert pisa(*train(data, tmp_path / "whole", "--epochs", "2")).code == 0
    with monkeypatch.context() as patch:
        patch.setattr(Stack, "train_epoch", interrupt)
        stopped = pisa(*train(data, tmp_path / "run", "--epochs", "2"))
        assert stopped.code == 130
        assert "the same command goes on from there" in stopped.err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["checkpoint.safetensors"]
    refused(pisa("evaluate", tmp_path / "run", data, "--target", "E1"), "unfinished training: run `pisa train` again")
    resumed = pisa(*train(data, tmp_path / "run", "--epochs", "2"))
    assert resumed.code == 0
    assert "Going on after epoch 1 of 2" in resumed.err
    whole, again = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run"))
    assert whole == again


def test_a_log_says_how_far_it_is_and_how_long_it_will_take(pisa: Command, data: Path, tmp_path: Path) -> None:
    found = pisa(*train(data, tmp_path / "run", "--epochs", "2", "--method", "single"))
    lines = [line for line in found.err.splitlines() if "epoch" in line]
    assert len(lines) == 2
    for number, line in enumerate(lines, 1):
        assert re.search(rf"epoch {number}/2 loss .* val F1 .* frames/s, \d+:\d\d:\d\d left", line), line
    assert lines[-1].endswith(" 0:00:00 left")


def test_an_equaliser_without_its_preamble_is_refused_or_doubted(pisa: Command, data: Path, tmp_path: Path) -> None:
    arguments = train(data, tmp_path / "run", "--method", "equalised")
    refused(pisa(*arguments), "do not seem to begin with the preamble of wifi", "Set waveform", "another method")
    found = pisa(*arguments, "--set", "waveform=wifi")
    assert found.code == 0
    assert " ".join(found.err.split()).count("note: equaliser: the frames of E2 do not seem to begin") == 1
    assert "UserWarning" not in found.err


def test_train_single_and_variants(pisa: Command, data: Path, tmp_path: Path) -> None:
    assert pisa(*train(data, tmp_path / "a", "--method", "single")).code == 0
    assert pisa(*train(data, tmp_path / "b", "--variant", "topology-only")).code == 0
    about = json.loads((tmp_path / "b" / "model.json").read_text())
    assert about["settings"]["model"]["pathway"] == "topology"


def test_a_comparison_method_goes_through_every_command(pisa: Command, data: Path, tmp_path: Path) -> None:
    run, scores = tmp_path / "run", tmp_path / "scores.npz"
    assert pisa(*train(data, run, "--method", "dann", "--set", "weight=0.5")).code == 0
    assert json.loads((run / "model.json").read_text())["settings"]["weight"] == 0.5
    assert pisa("evaluate", run, data, "--target", "E1").code == 0
    assert pisa("embed", run, data, "--environment", "E1", "--out", scores).code == 0
    assert pisa("calibrate", scores, "--out", tmp_path / "calibrated.npz").code == 0


def test_embed_rows_of_the_target_are_those_that_evaluate_scores(
    pisa: Command, data: Path, trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "scores.npz"
    found = pisa("embed", trained / "one", data, "--environment", "E1", "--out", out, "--device", "cpu")
    assert found.code == 0
    parts = split(load(data), ["E2", "E3"], "E1", 2026)
    assert f"{len(parts.target)} frames of E1, 30 left out" in found.out
    with np.load(out) as arrays:
        assert "device" not in arrays.files
        np.testing.assert_array_equal(arrays["frame"], parts.target.frame)
        np.testing.assert_array_equal(arrays["capture"], parts.target.capture_key)
        direct = parts.evaluator.score(arrays["logits"])
    scored = json.loads(pisa("evaluate", trained / "one", data, "--target", "E1", "--json", "--device", "cpu").out)
    assert scored["runs"][0]["stages"]["direct"] == json.loads(json.dumps(direct.to_json()))


def test_embedded_frames_can_be_calibrated(pisa: Command, data: Path, trained: Path, tmp_path: Path) -> None:
    scores, out = tmp_path / "scores.npz", tmp_path / "calibrated.npz"
    pisa("embed", trained / "one", data, "--environment", "E1", "--out", scores)
    assert pisa("calibrate", scores, "--out", out).code == 0
    with np.load(scores) as before, np.load(out) as after:
        assert after["probability"].shape == before["logits"].shape
        np.testing.assert_array_equal(after["capture"], before["capture"])


def test_embed_takes_all_frames_of_other_environments_and_when_asked(
    pisa: Command, data: Path, trained: Path, tmp_path: Path
) -> None:
    for arguments, frames in ((["E2"], 120), (["E1", "--all-frames"], 120), (["E1,E2"], 210)):
        out = tmp_path / f"{arguments[0]}.npz"
        found = pisa("embed", trained / "one", data, "--out", out, "--environment", *arguments)
        assert f"{frames} frames" in found.out, found.err
        with np.load(out) as arrays:
            assert len(arrays["logits"]) == frames
    again = ("embed", trained / "one", data, "--out", out, "--environment", "E1")
    refused(pisa(*again), "exists already", "--force")
    assert json.loads(pisa(*again, "--force", "--json").out)["frames"] == 90


def test_antennas_can_be_left_out(pisa: Command, data: Path, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.npz"
    arguments = ("embed", trained / "one", data, "--environment", "E1", "--device", "cpu", "--out", out)
    assert pisa(*arguments, "--missing-antenna", "1").code == 0
    target = split(load(data), ["E2", "E3"], "E1", 2026)
    with np.load(out) as arrays:
        logits = arrays["logits"]
        np.testing.assert_array_equal(arrays["cfo_hz"], target.target.cfo_hz[:, 0])
    scored = pisa("evaluate", trained / "one", data, "--target", "E1", "--device", "cpu", "--missing-antenna", "1",
                  "--json")  # fmt: skip
    direct = json.loads(scored.out)["runs"][0]["stages"]["direct"]
    assert direct == json.loads(json.dumps(target.evaluator.score(logits).to_json()))
    again = (*arguments, "--force", "--missing-antenna")
    refused(pisa(*again, "2"), "missing antenna 2: expected 0 to 1")
    refused(pisa(*again, "0", "--missing-antenna", "1"), "all 2 are named")


def test_embed_in_bfloat16_is_near_float32_where_the_processor_has_it(
    pisa: Command, trained: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = ("embed", trained / "one", data, "--environment", "E1", "--device", "cpu")
    assert pisa(*embed, "--out", tmp_path / "whole.npz").code == 0
    if has_bfloat16():
        assert pisa(*embed, "--out", tmp_path / "half.npz", "--precision", "bfloat16").code == 0
        with np.load(tmp_path / "whole.npz") as whole, np.load(tmp_path / "half.npz") as half:
            assert not np.array_equal(whole["logits"], half["logits"])
            np.testing.assert_allclose(half["logits"], whole["logits"], atol=0.05 * np.abs(whole["logits"]).max())
    monkeypatch.setattr(devices, "has_bfloat16", lambda: False)
    refused = pisa(*embed, "--out", tmp_path / "none.npz", "--precision", "bfloat16")
    assert refused.code == 2
    assert "this one lacks" in refused.err
    both = pisa(*embed, "--out", tmp_path / "none.npz", "--precision", "bfloat16", "--engine", "onnx")
    assert both.code == 2
    assert "Leave one of them out" in both.err
    assert not (tmp_path / "none.npz").exists()


def test_evaluate_prints_all_metrics_of_one_run(pisa: Command, data: Path, trained: Path, tmp_path: Path) -> None:
    found = pisa("evaluate", trained / "one", data, "--target", "E1", "--plot", tmp_path / "c.png", "--device", "cpu")
    assert found.code == 0
    measures = ("Macro-F1", "accuracy (rank-1)", "balanced accuracy", "Macro-AUROC", "EER of claims", "Cllr of claims")
    for word in (*measures, "E1/L1", "E1/L2", "D3", "direct", "split2026-seed3"):
        assert word in found.out
    assert "±" not in found.out
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_evaluate_says_where_the_published_calibration_does_not_fit(
    pisa: Command, data: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = ("evaluate", trained / "one", data, "--target", "E1", "--device", "cpu")
    monkeypatch.setattr(Careful, "believed", lambda self, found: 1.0)
    assert "unevenly" not in pisa(*evaluate).err
    monkeypatch.setattr(Careful, "believed", lambda self, found: 0.0)
    assert "devices seem to send unevenly in E1/L1" in pisa(*evaluate).err


def test_evaluate_prints_several_runs_side_by_side(pisa: Command, data: Path, trained: Path, tmp_path: Path) -> None:
    one, several = trained / "one", trained / "several"
    how = (data, "--target", "E1", "--device", "cpu")
    alone, together = (json.loads(pisa("evaluate", run, *how, "--json").out) for run in (one, several))
    assert json.loads(pisa("evaluate", one, several, *how, "--json").out) == [alone, together]
    shown = pisa("evaluate", one, several, *how).out
    [row] = [line for line in shown.splitlines() if "Macro-F1" in line and "direct" in line]
    for found in (alone, together):
        assert f"{found['summary']['direct']['macro_f1']['mean']:.4f}" in row
    refused(
        pisa("evaluate", one, several, *how, "--plot", tmp_path / "c.png"), "--plot: shows the confusions of one run"
    )


def test_evaluate_gives_mean_and_spread_of_several_runs(
    pisa: Command, data: Path, trained: Path, tmp_path: Path
) -> None:
    plot = tmp_path / "c.svg"
    arguments = ("evaluate", trained / "several", data, "--target", "E1", "--device", "cpu")
    found = json.loads(pisa(*arguments, "--json", "--plot", plot).out)
    values = [run["stages"]["direct"]["macro_f1"] for run in found["runs"]]
    assert len(values) == 2
    assert found["summary"]["direct"]["macro_f1"]["mean"] == pytest.approx(np.mean(values))
    assert found["summary"]["direct"]["macro_f1"]["std"] == pytest.approx(np.std(values, ddof=1))
    assert plot.exists()
    assert "±" in pisa(*arguments).out
    det = tmp_path / "det.svg"
    assert pisa(*arguments, "--det", det).code == 0
    assert "split2026-seed4, direct (EER " in det.read_text()


def test_bad_choices_are_refused_with_the_nearest_name(pisa: Command, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    refused(pisa(*train(data, out, "--encoder", "transfomer")), "unknown encoder 'transfomer'", "'transformer'?")
    refused(pisa(*train(data, out, "--method", "pissa")), "Did you mean 'pisa'?")
    refused(pisa(*train(data, out, "--method", "coral", "--source", "E2")), "coral", "needs 2 or more, found 1")
    refused(pisa(*train(data, out, "--variant", "no-topology")), "Did you mean 'no-topology-prior'?")
    refused(pisa(*train(data, out, "--set", "model.betta=1")), "pisa.model.betta", "Did you mean 'beta'?")
    refused(pisa(*train(data, out, "--set", "training.epoch=1")), "Did you mean 'epochs'?")
    refused(pisa(*train(data, out, "--set", "beta")), "expected name=value")
    refused(pisa(*train(data, out, "--seed", "one")), "--seed: expected whole numbers", "'one'")
    refused(pisa(*train(data, out, "--device", "tpu9000")), "expected auto, cpu or cuda")
    refused(pisa(*train(data, out, "--target", "E2")), "'E2' is both source and target")
    refused(pisa(*train(data, out, "--target", "E9")), "unknown environment 'E9'")
    refused(pisa(*train(tmp_path / "nothing", out)), "nothing")
    assert not out.exists()


def test_too_few_frames_for_the_split_are_refused(pisa: Command, tmp_path: Path) -> None:
    small = write_small(tmp_path / "small", frames=2)
    refused(pisa(*train(small, tmp_path / "run")), "too few frames for the split", "expected at least 3")


def test_a_run_folder_of_another_dataset_is_refused(pisa: Command, data: Path, trained: Path, tmp_path: Path) -> None:
    other = write_small(tmp_path / "other", frames=14)
    embed = ["embed", trained / "one", other, "--environment", "E1", "--out", tmp_path / "s.npz"]
    refused(pisa(*embed), "trained on the dataset with fingerprint", "Use the dataset the run was trained on")
    refused(pisa(*train(other, trained / "one", "--seed", "3")), "already holds another model", "dataset", "--out")
    refused(pisa(*train(data, trained / "one", "--seed", "5")), "already holds another model (seed: 3 there, 5 here)")
    found = pisa("embed", trained / "one", other, "--environment", "E1", "--out", tmp_path / "s.npz", "--other-dataset")
    assert "84 frames of E1" in found.out


def test_frames_without_labels_are_embedded_and_never_scored(
    pisa: Command, data: Path, trained: Path, tmp_path: Path
) -> None:
    frames = load(data).where(environment="E1", device="D1")
    nobody = Frames.from_arrays(frames.iq, UNLABELLED, "E7", cfo_hz=frames.cfo_hz, geometry=frames.geometry)
    nobody.save(tmp_path / "set")
    found = pisa("embed", trained / "one", tmp_path / "set", "--environment", "E7", "--out", tmp_path / "s.npz")
    assert f"{len(nobody)} frames of E7" in found.out, found.err
    for command in (
        ["evaluate", trained / "one", tmp_path / "set", "--target", "E7"],
        train(tmp_path / "set", tmp_path / "run"),
    ):
        assert pisa(*command).code == 2


def test_a_run_of_another_class_set_or_array_is_refused(pisa: Command, trained: Path, tmp_path: Path) -> None:
    more = write_small(tmp_path / "more", devices=4, frames=4)
    array = write_small(tmp_path / "array", antennas=3, frames=4)
    short = write_small(tmp_path / "short", samples=16, frames=4)
    run = trained / "one"
    embed = pisa("embed", run, more, "--environment", "E1", "--out", tmp_path / "s.npz")
    refused(embed, "tell apart 3 devices (D1, D2, D3)", "holds 4 devices")
    refused(pisa("evaluate", run, array, "--target", "E1"), "trained for 2 antennas, these frames have 3")
    refused(pisa("evaluate", run, short, "--target", "E1"), "reads 32 samples", "these frames hold 16")


def test_later_recordings_are_scored_by_the_names_of_the_devices(
    pisa: Command, data: Path, trained: Path, tmp_path: Path
) -> None:
    """D2 is not there any more, D9 is new, and the room has another name."""
    frames = load(data).where(environment="E1", device=["D1", "D3"])
    names = np.array(["D1", "", "D3"])[frames.device]
    stranger = frames.iq[:8] + 1
    later = Frames.from_arrays(
        np.concatenate([frames.iq, stranger]),
        [*names, *["D9"] * 8],
        "E8",
        cfo_hz=np.concatenate([frames.cfo_hz, frames.cfo_hz[:8]]),
        geometry=frames.geometry,
    )
    later.save(tmp_path / "later")
    found = pisa("evaluate", trained / "one", tmp_path / "later", "--json")
    assert found.code == 0, found.err
    assert "Unknown to the run, and scored as unknown devices: D9" in found.err
    assert "Not there: D2" in found.err
    scores = json.loads(found.out)
    [one] = scores["runs"]
    assert scores["target"] == ["E8"]
    assert list(one["stages"]["direct"]["per_device"]) == ["D1", "D3"]
    assert np.sum(one["stages"]["direct"]["confusion"]) == len(frames)
    strangers = one["strangers"]
    assert (strangers["score"], strangers["frames"]) == ("session", 8)
    assert strangers["auroc"] == 1  # frames with a leakage of one are like nobody's
    assert (strangers["eer"], strangers["accepted"]) == (0, 0)
    assert "Unknown devices, 8 frames, by session" in pisa("evaluate", trained / "one", tmp_path / "later").out
    same = pisa("evaluate", trained / "one", data, "--json")
    kept = json.loads(same.out)["runs"][0]["stages"]["direct"]["confusion"]
    # The split leaves out a quarter of each recording; the others are decided as they are there.
    assert (np.array(kept)[[0, 2]] <= np.array(one["stages"]["direct"]["confusion"])[[0, 2]]).all()


def test_frames_that_are_not_as_the_model_knows_them_need_a_word(
    pisa: Command, data: Path, trained: Path, tmp_path: Path
) -> None:
    frames = load(data).where(environment="E1")
    names = np.array(frames.devices)[frames.device]
    Frames.from_arrays(frames.iq, names, "E8", geometry=linear(2, 0.7)).save(tmp_path / "other")
    command = ["evaluate", trained / "one", tmp_path / "other"]
    refused(pisa(*command), "their array is another one", "they have no frequency offsets", "Give --anyway")
    found = pisa(*command, "--anyway")
    assert found.code == 0
    assert "note: their array is another one" in found.err
    Frames.from_arrays(frames.iq, names, "E2", cfo_hz=frames.cfo_hz, geometry=frames.geometry).save(tmp_path / "seen")
    refused(pisa("evaluate", trained / "one", tmp_path / "seen"), "E2 is a source of the run")


def test_a_score_at_chance_is_said(pisa: Command, data: Path, tmp_path: Path) -> None:
    """Frames of noise have no devices in them."""
    frames, rng = load(data), np.random.default_rng(0)
    noise = (rng.normal(size=(*frames.iq.shape, 2)) @ [1, 1j]).astype(np.complex64)
    names = np.array(frames.devices)[frames.device]
    places = np.array(frames.environments)[frames.environment]
    Frames.from_arrays(noise, names, places, geometry=frames.geometry).save(tmp_path / "noise")
    found = pisa(*train(tmp_path / "noise", tmp_path / "run"))
    assert "the source validation is not told from chance" in found.err
    assert "It has not learnt its source. Try more epochs" in found.err
    found = pisa("evaluate", tmp_path / "run", tmp_path / "noise")
    assert "direct is not told from chance" in found.err
    assert "guessing gives 0.333" in found.err
    pisa("embed", tmp_path / "run", tmp_path / "noise", "--environment", "E1", "--out", tmp_path / "s.npz")
    found = pisa("calibrate", tmp_path / "s.npz", "--out", tmp_path / "c.npz")
    assert "the classifier on held-out frames of its own source is not told from chance" in found.err
    with np.load(tmp_path / "c.npz") as calibrated:
        assert (calibrated["device"] == calibrated["devices"][calibrated["prediction"]]).all()
        assert calibrated["devices"].tolist() == ["D1", "D2", "D3"]


def test_a_model_that_has_learnt_is_not_doubted(pisa: Command, data: Path, tmp_path: Path) -> None:
    found = pisa(*train(data, tmp_path / "run", "--method", "single", "--epochs", "8"))
    assert found.code == 0
    assert "chance" not in found.err


def test_the_method_is_chosen_by_what_frames_begin_with(pisa: Command, data: Path, tmp_path: Path) -> None:
    found = pisa(*train(data, tmp_path / "run"))
    assert "Method pisa: " in found.err
    assert "do not begin with the preamble of Wi-Fi" in found.err
    assert json.loads((tmp_path / "run/model.json").read_text())["method"] == "pisa"


def test_the_closed_form_is_taken_unless_a_network_is_asked_for(pisa: Command, tmp_path: Path) -> None:
    generate("wifi", tmp_path / "set", scale=0.02, workers=1, show_progress=False)
    asked = ("train", tmp_path / "set", "--source", "E2,E3", "--target", "E1", "--out")
    found = pisa(*asked, tmp_path / "run")
    assert found.code == 0
    assert "Method closed-form: the frames begin with the preamble of Wi-Fi" in found.err
    assert "1 run of closed-form." in found.err
    assert pisa("evaluate", tmp_path / "run", tmp_path / "set").code == 0
    network = pisa(*asked, tmp_path / "network", "--epochs", "1", "--encoder", "cnn")
    assert "Method pisa-equalised: " in network.err


@pytest.mark.parametrize("option", ["--guard", "--no-guard"])
def test_there_is_no_guard_any_more(option: str, pisa: Command, data: Path, tmp_path: Path) -> None:
    told = pisa(*train(data, tmp_path / "told", option))
    assert told.code == 0
    assert f"note: {option} goes with the next version; there is no guard any more" in told.err
    assert not (tmp_path / "told" / "left-out").exists()


def test_a_source_environment_is_no_target(pisa: Command, data: Path, trained: Path) -> None:
    refused(pisa("evaluate", trained / "one", data, "--target", "E2"), "'E2' is both source and target")


def test_damaged_and_foreign_runs_are_refused(pisa: Command, data: Path, trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained / "one", tmp_path / "run"))
    path = run / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    refused(pisa("evaluate", run, data, "--target", "E1"), "model.safetensors: damaged", "remove it and train again")
    refused(pisa("evaluate", tmp_path / "nowhere", data, "--target", "E1"), "holds no model.json")
    embed = ("embed", trained / "several", data, "--environment", "E1", "--out", tmp_path / "s.npz")
    refused(pisa(*embed), "holds the runs split2026-seed3, split2026-seed4: name one of them")


def test_runs_of_different_experiments_are_not_averaged(
    pisa: Command, data: Path, trained: Path, tmp_path: Path
) -> None:
    several = Path(shutil.copytree(trained / "several", tmp_path / "several"))
    path = several / "split2026-seed4" / "model.json"
    about = json.loads(path.read_text())
    about["training"]["epochs"] = 7
    path.write_text(json.dumps(sealed(about)))
    refused(pisa("evaluate", several, data, "--target", "E1"), "runs of different experiments", "training.epochs: 1 in")


@pytest.mark.parametrize("command", ["encoders", "methods", "train", "embed", "evaluate"])
def test_commands_explain_themselves(pisa: Command, command: str) -> None:
    assert pisa(command, "--help").code == 0
