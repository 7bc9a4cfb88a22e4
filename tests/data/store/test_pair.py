"""Pairs of arrays and description: one generation is readable at every moment, and what was changed is refused."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import DataError, ModelError, SealError
from pisa_capc.data.store import pair
from pisa_capc.data.store.dataset import Dataset
from pisa_capc.data.store.native import fingerprint
from pisa_capc.data.store.pair import read_pair, write_pair
from pisa_capc.data.store.seal import sealed, unsealed
from tests.datasets import random_dataset, write_random


def write(folder: Path, number: int) -> None:
    write_pair(folder, "stream", 1, {"counts": np.full(3, number)}, {"eta": number})


def read(folder: Path) -> int:
    arrays, about = read_pair(folder, "stream", 1, "save")
    assert (arrays["counts"] == about["eta"]).all()
    return int(about["eta"])


class Killed(BaseException):
    pass


def test_killed_at_any_moment_the_old_pair_or_the_new_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every renaming and every removal in turn is the last thing that a writer does, or the first that it does not."""
    replace, unlink = os.replace, Path.unlink
    for moment in range(12):
        folder = tmp_path / str(moment)
        write(folder, 1)
        if moment % 2:
            write(folder, 2)
        done = []

        def then(act, *arguments, moment=moment, done=done, **options):  # type: ignore[no-untyped-def]
            if len(done) == moment // 2:
                raise Killed
            done.append(act(*arguments, **options))

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", lambda *a, then=then: then(replace, *a))
            patch.setattr(Path, "unlink", lambda *a, then=then, **o: then(unlink, *a, **o))
            with suppress(Killed):
                write(folder, 3)
        assert read(folder) in (1 + moment % 2, 3)
        write(folder, 4)
        assert read(folder) == 4
        left = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
        assert left in ({"stream.json", "stream.safetensors"}, {"stream.json", "stream.2.safetensors"})


@pytest.mark.filterwarnings("ignore:.* without a digest")
def test_a_pair_of_an_earlier_version_is_read_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PISA_UNSEALED", "1")
    write(tmp_path, 1)
    about = json.loads((tmp_path / "stream.json").read_text())
    for key in ("arrays", "digest"):
        del about[key]
    (tmp_path / "stream.json").write_text(json.dumps(about))
    assert read(tmp_path) == 1
    write(tmp_path, 2)
    assert read(tmp_path) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stream.2.safetensors", "stream.json"]


def test_a_reader_who_is_overtaken_by_a_writer_reads_the_next_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1)
    described = pair._description

    def overtaken(*arguments):  # type: ignore[no-untyped-def]
        found = described(*arguments)
        monkeypatch.setattr(pair, "_description", described)
        write(tmp_path, 2)
        return found

    monkeypatch.setattr(pair, "_description", overtaken)
    assert read(tmp_path) == 2


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", 3, None])
def test_a_description_names_no_file_but_its_own(name: object, tmp_path: Path) -> None:
    write(tmp_path, 1)
    about = json.loads((tmp_path / "stream.json").read_text())
    (tmp_path / "stream.json").write_text(json.dumps(sealed(about | {"arrays": name})))
    with pytest.raises(ModelError, match=r"stream.json: damaged \(ValueError: its arrays are in"):
        read(tmp_path)


class TestSeals:
    def test_an_edited_description_is_refused(self, tmp_path: Path) -> None:
        write(tmp_path, 1)
        path = tmp_path / "stream.json"
        path.write_text(path.read_text().replace('"eta": 1', '"eta": 2'))
        with pytest.raises(ModelError, match=r"stream.json: damaged .*it was changed"):
            read(tmp_path)

    @pytest.mark.filterwarnings("ignore:.* without a digest")
    def test_an_edited_dataset_is_refused_and_so_is_one_without_a_digest_unless_it_is_asked_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = write_random(tmp_path / "set")
        path, named = folder / "dataset.json", fingerprint(folder)
        described = json.loads(path.read_text())
        path.write_text(json.dumps({**described, "carrier_hz": 1e9}))
        with pytest.raises(DataError, match=r"dataset.json: cannot be read .*it was changed"):
            Dataset.read(folder)
        del described["digest"]
        path.write_text(json.dumps(described))
        with pytest.raises(SealError, match=r"dataset.json: without a digest, .*`pisa sign FOLDER`, .*--unsealed"):
            Dataset.read(folder)
        monkeypatch.setenv("PISA_UNSEALED", "1")
        with pytest.warns(UserWarning, match=r"dataset.json: without a digest, .* would not be noticed"):
            assert fingerprint(folder) == named
        random_dataset().create(folder)  # goes on with it

    def test_what_is_sealed_is_read_as_it_was(self) -> None:
        values = {"b": (1, 2.5e-300, float("inf")), "a": {"ü": None}, 3: True}
        assert unsealed(json.loads(json.dumps(sealed(values))), Path("a.json")) == {
            "b": [1, 2.5e-300, float("inf")],
            "a": {"ü": None},
            "3": True,
        }
        assert sealed(sealed(values)) == sealed(values)
        assert unsealed([], Path("a.json")) == []
