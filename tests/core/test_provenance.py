"""What a record says it was made with."""

from __future__ import annotations

from pathlib import Path

from pisa_capc.core.provenance import processor


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
