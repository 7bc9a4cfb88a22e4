"""What a result says of the machine it was made on."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from pisa_capc.provenance import machine, processor


def test_a_record_names_the_processor_but_not_the_machine() -> None:
    found = machine()
    assert found["processor"] == processor()
    assert platform.node() not in map(str, found.values())


def test_a_system_that_does_not_tell_its_processor_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "flags : fpu\n")
    assert processor() == platform.processor()
