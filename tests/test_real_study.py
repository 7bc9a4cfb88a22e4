"""The study of real cards: the same frames for every method, a page whose words follow its record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import real as page
from studies import real

from pisa_capc.data.frames import Frames
from tests.channels import channel_frames


@pytest.fixture(scope="module")
def frames() -> Frames:
    return channel_frames(devices=3, places=3, frames=40)


def test_each_place_is_the_only_source_and_the_only_target_once(frames: Frames) -> None:
    plan = real.cells(frames.environments)
    assert [cell.source for cell in plan[:3]] == [("E1",), ("E2",), ("E3",)]
    assert [cell.target for cell in plan[3:]] == [("E1",), ("E2",), ("E3",)]
    assert all(not set(cell.source) & set(cell.target) for cell in plan)


def test_frames_are_spread_evenly_over_places_and_devices(frames: Frames) -> None:
    some = real.evenly(frames, ("E1", "E3"), 20)
    counts = np.bincount(some.environment * 3 + some.device, minlength=9).tolist()
    assert counts == [10, 10, 10, 0, 0, 0, 10, 10, 10]
    assert some.frame.max() > 35


def test_the_closed_form_and_lda_are_scored_in_every_kind_of_capture(frames: Frames) -> None:
    one, others = real.cells(frames.environments)[0], real.cells(frames.environments)[3]
    found = real.closed_form(frames, one)
    assert list(found) == ["closed form", "LDA", "LDA, shrunk", "claims"]
    claims = found["claims"]["closed form"]
    assert claims["eer"] < 0.1
    assert claims["min_cllr"] <= claims["cllr"]
    assert np.all(np.diff(claims["miss"]) <= 0)
    assert list(found["closed form"]) == ["E2", "E3"]
    assert list(found["closed form"]["E2"]) == list(real.CAPTURES) == list(page.KINDS)
    assert found["closed form"]["E2"]["balanced"]["direct"] > 0.9
    strangers = real.closed_form(frames, others)["strangers"]
    assert 0 <= strangers["auroc"] <= 1
    assert 0 <= strangers["ratio"]["eer"] <= 1


def test_networks_of_a_record_are_taken_as_computed(tmp_path: Path) -> None:
    found = {title: {"E2": {"balanced": {"direct": 0.5}}} for title in real.NETWORKS}
    record = {"sets": {"a set": {"cells": {"one/E1": found}}}, "made": {"time": "then"}, "machine": {"cores": 2}}
    assert real.keep_networks(record, tmp_path) == {"made": {"time": "then"}, "machine": {"cores": 2}}
    for title, own in found.items():
        path = real.path_of(tmp_path, "a set", "one/E1", title)
        assert real.kept(path, dict) == {title: own}


def test_a_device_alone_is_alone_and_draws_are_the_same_for_all(frames: Frames) -> None:
    here = np.flatnonzero(frames.environment == 0)

    def draw(kind: str) -> list[list[int]]:
        how = real.CAPTURES[kind]
        return [rows.tolist() for rows in real.drawn(here, frames.device[here], 3, how, "a")]

    assert draw("one alone") == draw("one alone")
    assert all(len(set(frames.device[rows])) == 1 for rows in draw("one alone"))
    assert draw("balanced") == [here.tolist()]


def test_what_was_computed_is_kept(tmp_path: Path) -> None:
    assert real.kept(tmp_path / "a" / "b.json", lambda: {"x": 1}) == {"x": 1}
    assert real.kept(tmp_path / "a" / "b.json", dict) == {"x": 1}


def test_phones_are_read_as_they_are_published(tmp_path: Path) -> None:
    row = ",".join(f"{n / 8} {'-' if n % 2 else '+'} {n / 16}i" for n in range(1, 57))
    for name in ("A_s1", "B_s1"):
        (tmp_path / f"{name}.csv").write_text("\n".join([row] * 10))
    frames = real.phones(tmp_path)
    assert frames.environments == ("A early", "A late", "B early", "B late")
    assert np.bincount(frames.environment).tolist() == [7, 3, 7, 3]
    np.testing.assert_allclose(frames.iq[0, 0, :2], [1 / 8 - 1j / 16, 2 / 8 + 2j / 16])


def test_the_first_sentence_of_the_page_follows_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    own: dict[str, Any] = json.loads(json.dumps(page.record()))
    monkeypatch.setattr(page, "record", lambda: own)
    before = page._what_they_show()
    for one in own["sets"].values():
        for cell in one["cells"].values():
            for place in cell["pisa, antenna"].values():
                place["balanced"]["direct"] = 1.0
            for place in cell["closed form"].values():
                place["balanced"]["direct"] = 0.5
    after = page._what_they_show()
    assert "neither linear algebra nor the network always leads" in after
    assert "closed form 0.500 and 0.500, PISA 1.000 and 1.000" in after
    assert "linear algebra beats the network" in before
