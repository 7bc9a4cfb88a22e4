"""Decisions as rows for other tools: of a dataset, of recordings and of channel state alike."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import Frames, load
from pisa_capc.decide.calibration import OpenSet
from pisa_capc.decide.calibration.openset.reject import p_values
from pisa_capc.decide.identification import Choices, predict
from pisa_capc.decide.identification.write import by_device, flat, of_device, records, summary, write
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.training import Run, fit
from pisa_capc.signal.formats import ImportOptions, import_dataset, read_frames
from tests.cli.test_model_commands import Command, refused
from tests.decide.identification.test_commands import PLAIN, room, run  # noqa: F401  (fixtures)
from tests.problems import small_frames, tones, write_small
from tests.signal.formats.csi_files import intel_record, whole

COLUMNS = ("device", "like", "probability", "unknown", "unknown_score", "p_value", "evidence", "fit", "reason")


@pytest.fixture(scope="module")
def radio_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("sets") / "later", environments=("E1",), frames=15)


def test_frames_are_decided_as_a_calibration_decides_their_scores(trained: TrainedModel) -> None:
    frames, choices = small_frames().unlabelled(), Choices()
    who, scores = predict(trained, frames, choices, "cpu"), embed(trained, frames, "cpu")
    decider = choices.decider(trained.statistics)
    assert isinstance(decider, OpenSet)
    by_hand = decider.calibrate(scores.embedding, scores.logits, scores.capture, scores.statistics)
    np.testing.assert_array_equal(who.decision, by_hand.prediction)
    np.testing.assert_array_equal(who.probability, by_hand.probability)
    assert [row["device"] for row in records(who)] == who.device
    assert "180 frames" in repr(who)
    assert len(repr(who)) < 100


def test_a_summary_has_every_frame_once_by_its_device(trained: TrainedModel) -> None:
    who = predict(trained, small_frames().unlabelled(), Choices(reject="knn", alpha=0.5), "cpu")
    found = dict(by_device(who))
    assert [*found][-1] is None  # unknown devices come last
    np.testing.assert_array_equal(np.sort(np.concatenate([*found.values()])), np.arange(len(who)))
    rows = {row.pop("device"): row for row in summary(who)["devices"]}
    assert rows == {name: of_device(who, members) for name, members in found.items()}
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)


def test_labels_are_not_read(trained: TrainedModel) -> None:
    frames = small_frames()
    renamed = replace(frames, device=np.zeros(len(frames), dtype=np.int64), devices=("all",))
    assert records(predict(trained, frames, device="cpu")) == records(predict(trained, renamed, device="cpu"))


def test_a_p_value_is_the_share_of_known_frames_that_are_as_strange() -> None:
    import torch

    reference = np.array([3.0, 1.0, 2.0, 2.0])
    found = p_values(torch.tensor([0.5, 2.0, 2.5, 9.0], dtype=torch.float64), reference)
    np.testing.assert_allclose(found, [5 / 5, 4 / 5, 2 / 5, 1 / 5])


def test_unknown_frames_have_small_p_values_and_known_ones_evidence(trained: TrainedModel) -> None:
    frames = small_frames(environments=1, frames=40)
    strange = 5 * np.random.default_rng(1).normal(size=(40, *frames.iq.shape[1:], 2)) @ [1, 1j]
    others = Frames.from_arrays(
        np.concatenate([tones(d, 1, 40) for d in range(3)] + [strange.astype(np.complex64)]),
        device=np.repeat(["D1", "D2", "D3", "none"], 40),
        environment="E2",
        cfo_hz=np.zeros((160, 2)),
        geometry=frames.geometry,
    )
    who = predict(trained, others.unlabelled(), Choices(alpha=0.05), "cpu")
    rows = records(who)
    assert all(row["unknown"] == (row["device"] is None) for row in rows)
    # The threshold is a rank of the very scores that p-values are ranks among.
    assert all(row["unknown"] == (row["p_value"] <= 0.05) for row in rows)
    known, unknown = rows[:120], rows[120:]
    assert np.mean([row["p_value"] < 0.05 for row in unknown]) > 0.9
    assert np.mean([row["p_value"] > 0.05 for row in known]) > 0.8
    own = [row for row, label in zip(known, np.repeat(["D1", "D2", "D3"], 40), strict=True) if row["like"] == label]
    assert np.median([row["evidence"] for row in own]) > 0.5


def test_rows_name_the_frames_of_a_dataset(pisa: Command, run: Path, radio_set: Path, tmp_path: Path) -> None:  # noqa: F811
    done = pisa("predict", run, radio_set, "--csv", tmp_path / "rows.csv", "--device", "cpu")
    assert done.code == 0, done.err
    assert "E1/L1, E1/L2: 90 frames" in done.out
    with (tmp_path / "rows.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert tuple(table[0]) == ("row", "environment", "capture", "frame", "cfo_hz", *COLUMNS)
    assert [int(row["row"]) for row in table] == list(range(90))
    frames = load(radio_set)
    assert [row["capture"] for row in table] == [frames.captures[c] for c in frames.capture.tolist()]
    printed = pisa("predict", run, radio_set, "--csv", "-", "--device", "cpu")
    assert list(csv.DictReader(io.StringIO(printed.out))) == table
    said = json.loads(pisa("predict", run, radio_set, "--json", "--environment", "E1", "--device", "cpu").out)
    assert [row["device"] or "" for row in said["frames"]] == [row["device"] for row in table]
    assert said["rejection"] == "session"
    refused(pisa("predict", run, radio_set, "--csv", tmp_path / "rows.csv", "--device", "cpu"), "exists already")
    refused(pisa("predict", run, radio_set, "--environment", "E7"), "unknown environment 'E7'")
    refused(pisa("predict", run, radio_set, radio_set), "expected one dataset")


def test_rows_of_a_recording_are_those_of_identify(
    pisa: Command,
    run: Path,  # noqa: F811
    room: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    assert pisa("identify", run, room, *PLAIN, "--out", tmp_path / "one.csv").code == 0
    assert pisa("predict", run, room, *PLAIN, "--csv", tmp_path / "two.csv").code == 0
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "two.csv").read_text()
    header = (tmp_path / "two.csv").read_text().splitlines()[0].split(",")
    assert set(COLUMNS) <= set(header)
    refused(pisa("predict", run, room, *PLAIN, "--environment", "E1"), "--environment")


def test_a_table_for_other_programs_has_plain_columns(
    trained: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is handed to pyarrow, by a stand-in; and the file, where it is installed."""
    who = predict(trained, small_frames().unlabelled(), device="cpu")
    handed: dict[str, list[object]] = {}
    fake, parquet = ModuleType("pyarrow"), ModuleType("pyarrow.parquet")
    fake.table = lambda columns: handed.update(columns)  # type: ignore[attr-defined]
    parquet.write_table = lambda _, path: Path(path).write_text("whole")  # type: ignore[attr-defined]
    fake.parquet = parquet  # type: ignore[attr-defined]
    fake.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "pyarrow", fake)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    write(tmp_path / "rows.parquet", who)
    assert (tmp_path / "rows.parquet").read_text() == "whole"
    assert handed == {name: [row[name] for row in flat(who)] for name in flat(who)[0]}


def test_parquet_can_be_read_again(trained: TrainedModel, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="an extra that is not installed")
    who = predict(trained, small_frames().unlabelled(), device="cpu")
    write(tmp_path / "rows.parquet", who)
    assert parquet.read_table(tmp_path / "rows.parquet").to_pylist() == flat(who)


def test_a_missing_package_is_said_before_anything_is_computed(
    pisa: Command,
    run: Path,  # noqa: F811
    radio_set: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pisa_capc.decide.identification.write.find_spec", lambda name: None)
    refused(pisa("predict", run, radio_set, "--parquet", tmp_path / "a.parquet"), "pip install 'pisa-capc[parquet]'")


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of two cards in two places: the subcarriers of each have a shape of its own."""
    folder = tmp_path_factory.mktemp("cards")
    for place in range(2):
        for card in range(2):
            shape = 40 * np.exp(2j * np.pi * (1 + card) * np.arange(30) / 30) * (1 + 0.5 * card)
            packets = [
                intel_record(np.rint(shape[:, None, None] + 0.1 * whole((30, 3, 1), 20, 1000 * place + 300 * card + i)))
                for i in range(120)
            ]
            path = folder / f"P{place}" / f"C{card}.dat"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"".join(packets))
    return folder


def test_a_log_of_channel_state_is_decided_as_it_is(pisa: Command, cards: Path, tmp_path: Path) -> None:
    options = ImportOptions(pattern="{environment}/{device}.dat")
    import_dataset("csi", cards, tmp_path / "set", options)
    from pisa_capc.data.protocol import split

    frames = load(tmp_path / "set")
    [model] = fit(Run(split(frames, ["P0"], "P1", 1), 1), method="closed-form", device="cpu", show=False)
    model.save(tmp_path / "run")
    log = cards / "P1" / "C1.dat"
    rows = json.loads(pisa("predict", tmp_path / "run", log, "--json").out)["frames"]
    assert {row["capture"] for row in rows} == {"C1.dat"}
    chosen = read_frames("csi", [log])
    assert [row["device"] for row in rows] == predict(model, chosen, device="cpu").device
    told = pisa("identify", tmp_path / "run", log, cards / "P1" / "C0.dat", "--out", tmp_path / "rows.jsonl")
    assert told.code == 0, told.err
    assert "recording/C0.dat, recording/C1.dat: 240 frames" in " ".join(told.out.split())
    refused(pisa("identify", tmp_path / "run", log, "--together"), "need recordings")
    refused(pisa("verify", tmp_path / "run", log), "the model is of subcarriers")
    refused(pisa("listen", f"file:{log}", "--run", tmp_path / "run"), "to `pisa identify` or `pisa predict`")
    refused(pisa("predict", tmp_path / "run", tmp_path / "run" / "model.json"), "does not begin as any card's file")
    refused(pisa("predict", tmp_path / "run", tmp_path / "none.dat"), "no such file")


def test_files_of_one_name_are_captures_of_their_own(cards: Path) -> None:
    found = read_frames("csi", [cards / "P0" / "C0.dat", cards / "P1" / "C0.dat"])
    assert len(np.unique(found.capture)) == 2


def test_frames_that_do_not_fit_in_memory_are_for_a_dataset(cards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pisa_capc.signal.formats.transfer.IN_MEMORY", 1000)
    with pytest.raises(DataError, match="Make a dataset of them with pisa import csi"):
        read_frames("csi", [cards / "P0" / "C0.dat"])
