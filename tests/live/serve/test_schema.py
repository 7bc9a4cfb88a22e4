"""The API is as its description says, whatever is asked: schemathesis makes up the questions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pisa_capc.live.serve.connections import Buckets
from pisa_capc.live.serve.gate import Rules
from pisa_capc.live.serve.keys import Keys, Token
from pisa_capc.live.serve.server import bound, serving, url_of
from tests.live.serve.fake import Air6, a_hub, an_app
from tests.live.serve.test_gate import TOKEN

pytestmark = pytest.mark.slow


def test_made_up_questions_have_answers_as_described(tmp_path: Path) -> None:
    pytest.importorskip("schemathesis")
    hub, at = a_hub(alarms=tmp_path / "alarms", state=tmp_path / "state"), bound("127.0.0.1", 0)
    air = Air6(hub, alarmed=True)
    air.past(60)
    much = Buckets(rate=1e9, burst=1e9)
    rules = Rules(keys=Keys([Token(TOKEN)]), requests=much, strangers=much, failures=much)
    with serving(an_app(hub, rules), at):
        program = Path(sys.executable).with_name("schemathesis")
        command = [program, "run", url_of(at) + "api/openapi.json", "--seed=1", "--no-color"]
        options = ["--checks=all", "--max-examples=50", "--header", f"Authorization: Bearer {TOKEN}"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
