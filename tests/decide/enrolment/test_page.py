"""The figures on the page about enrolment are those of the committed record, and what was chosen is what is used."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import typer
from benchmarks.report import read
from pages import enrolment
from studies.enrolment import CHOSEN, FRAMES, ROWS, choose, draw, summary

from pisa_capc.cli import app
from pisa_capc.cli import enrol as _registered  # noqa: F401
from pisa_capc.decide.enrolment.alike import ALIKE
from pisa_capc.decide.enrolment.change import FEWEST, enrol
from pisa_capc.decide.enrolment.row import STRENGTH, within_ridge

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/enrolment.md").read_text(encoding="utf-8")
RECORD: dict[str, Any] = json.loads((ROOT / "results/studies/enrolment-2core.json").read_text(encoding="utf-8"))


def test_the_page_quotes_the_record() -> None:
    source, target = RECORD["source"], RECORD["target"]
    for row in ROWS:
        own = target["rows"][row]
        cells = [source["rows"][row]["mean"]["all"], own["mean"]["all"]]
        cells += [own[str(n)][part] for part in ("new", "kept") for n in FRAMES]
        assert f"| {row} | {' | '.join(f'{value:.3f}' for value in cells)} |" in PAGE
    anew, before = target["anew"], target["before"]
    assert f"| {source['anew']['all']:.3f} | {anew['all']:.3f} | {anew['new']:.3f} | | | {before:.3f} | | |" in PAGE
    for part in (source, target):
        shares = [f"{100 * part['alike'][kind]:.0f} %" for kind in ("known", "new")]
        assert " | ".join(shares) in PAGE


def test_the_means_are_those_of_the_cells() -> None:
    target = [cell for cell in RECORD["cells"] if cell["target"] == "E1"]
    source = [cell for cell in RECORD["cells"] if cell["target"] != "E1"]
    assert json.loads(json.dumps(summary(target))) == RECORD["target"]
    assert json.loads(json.dumps(summary(source))) == RECORD["source"]


def test_what_makes_the_row_was_chosen_on_the_source() -> None:
    assert RECORD["chosen"] == choose(RECORD["source"]) == CHOSEN
    assert enrol.__kwdefaults__["row"] is within_ridge
    assert within_ridge.__defaults__ == (STRENGTH,)


def test_the_page_has_the_settings_of_the_code() -> None:
    assert f"λ = {STRENGTH:g}" in PAGE
    assert f"at least {FEWEST} frames" in PAGE
    assert f"mean rank is above {ALIKE:g}" in PAGE


def test_the_options_on_the_page_exist() -> None:
    command = typer.main.get_command(app).commands["enrol"]  # type: ignore[attr-defined]
    known = {name for option in command.params for name in option.opts}
    shown = set(re.findall(r"--[a-z][a-z-]+", PAGE.split("## Results")[0]))
    assert shown <= known
    assert known >= {"--device-name", "--remove", "--address", "--anyway", "--environment"}


def test_the_picture_is_drawn_from_the_record(tmp_path: Path) -> None:
    draw(tmp_path / "enrolment.png", RECORD["target"])
    assert (tmp_path / "enrolment.png").stat().st_size > 1000
    assert (ROOT / "docs/enrolment.png").is_file()
    assert "(enrolment.png)" in PAGE


def test_the_page_says_how_many_mixed_enrolments_are_refused() -> None:
    assert enrolment.mixed() in PAGE
    found = read(enrolment.MIXED)["found"]
    for name, one in found.items():
        share = float(name.rpartition(", ")[2])
        assert one["refused"] <= 0.05 if share == 0 else share < 0.2 or one["refused"] > 0.7
