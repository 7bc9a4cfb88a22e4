from __future__ import annotations

import pytest

from tests.cli.test_model_commands import Command, call


@pytest.fixture
def pisa(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command line in this process: exit code, standard output, standard error."""
    return lambda *arguments: call(capsys, *arguments)
