"""What a record says it was made with."""

from __future__ import annotations

import subprocess
from datetime import datetime
from pathlib import Path

from pisa_capc.core.provenance import commit, made, processor


def test_a_processor_is_told_with_the_numbers_that_tell_it_from_others_of_its_name(tmp_path: Path) -> None:
    core = "processor\t: {}\nvendor_id\t: Some\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: Some EPYC\n"
    path = tmp_path / "cpuinfo"
    path.write_text("\n".join([core.format(0), core.format(1)]))
    assert processor(path) == "Some EPYC, family 26, model 2"


def test_where_nothing_names_the_processor_nothing_is_said(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    assert processor(path) is None
    path.write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")
    assert processor(path) is None


def test_code_in_a_repository_has_its_commit(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        own = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", "-C", tmp_path, *own, *words], capture_output=True, text=True, check=True).stdout

    folder = tmp_path / "package" / "core"
    folder.mkdir(parents=True)
    (folder / "code.py").write_text("1")
    assert commit.__wrapped__(folder) is None
    git("init", "-q")
    assert commit.__wrapped__(folder) is None  # a repository around an installed package
    git("add", ".")
    git("commit", "-qm", "first")
    first = git("rev-parse", "HEAD").strip()
    assert commit.__wrapped__(folder) == first
    (folder / "code.py").write_text("2")
    assert commit.__wrapped__(folder) == f"{first}+"


def test_a_result_says_when_it_was_made() -> None:
    assert datetime.fromisoformat(made()["time"]).utcoffset() is not None
