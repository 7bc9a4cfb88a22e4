"""The figures of docs/identify.md are those of the committed record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from pisa_capc.cli import app
from pisa_capc.cli import identify as _registered  # noqa: F401
from pisa_capc.decide.identification.evidence import BETS
from pisa_capc.decide.identification.verification import GENUINE, REFUTED, SEVERAL, UNDECIDED
from pisa_capc.model.inference.statistics import VALIDATION

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/identify.md").read_text(encoding="utf-8")
RECORD = json.loads((ROOT / "results/studies/identify-2core.json").read_text(encoding="utf-8"))
SHARED = json.loads((ROOT / "results/studies/shared.json").read_text(encoding="utf-8"))
CARRIERS = {"own": "", "jumps": ", its carrier jumps", "tuned": ", at the same carrier"}


def recording_lines(record: dict[str, Any]) -> Iterator[str]:
    lora = {f"LoRa, {capture}": rows for capture, rows in record["lora"]["recordings"].items()}
    for capture, rows in (record["recordings"] | lora).items():
        for how, row in rows.items():
            shares = (row["known right"], row["together"]["known right"])
            aside = (row["stranger set aside"], row["together"]["stranger set aside"])
            found = f"{row['found']:,} of {row['frames']:,}, {row['false']} false"
            own, spoofed, named = row["addresses"] - row["spoofed"], row["spoofed"], row["spoofer named"]
            yield (
                f"| {capture}, {how} | {found} | {shares[0]:.4f} ({shares[1]:.4f}) | {aside[0]:.3f} ({aside[1]:.3f}) | "
                f"{row['addresses right']} of {own} | {named} of {spoofed} | {row['found to be of several']} | "
                f"{row['false alarms']} |"
            )


def claim_lines(record: dict[str, Any]) -> Iterator[str]:
    tested = {name: record[name]["claims"] for name in ("pisa-equalised", "single")}
    tested["pisa-equalised, LoRa"] = record["lora"]["claims"]
    for method, claims in tested.items():
        for kind, row in claims.items():
            until = "–" if row["frames until"] is None else f"{row['frames until']:g}"
            yield (
                f"| {method}, {kind} | {row['false alarms']} of {row['genuine']} | {row['confirmed']} | "
                f"{row['alarms']} of {row['others']} | {until} | {row['wrongly confirmed']} |"
            )


def part_of(verdicts: dict[str, int], *names: str) -> float:
    return sum(verdicts.get(name, 0) for name in names) / sum(verdicts.values())


def shared_lines(record: dict[str, Any]) -> Iterator[str]:
    for model, found in record["models"].items():
        rows: dict[tuple[str, float], list[str]] = {}
        for cell in found["composed"]:
            shares = (part_of(cell["verdicts"], SEVERAL), part_of(cell["verdicts"], SEVERAL, REFUTED))
            row = rows.setdefault((cell["carrier"], cell["share"]), [])
            row.append(f"{shares[0]:.3f} ({shares[1]:.3f})")
        for (carrier, share), cells in rows.items():
            yield f"| {model} | {share:.0%}{CARRIERS[carrier]} | {' | '.join(cells)} |"


def recorded_lines(record: dict[str, Any]) -> Iterator[str]:
    verdicts = (SEVERAL, REFUTED, GENUINE, UNDECIDED)
    for model, found in record["models"].items():
        for whose, counts in found["recordings"].items():
            cells = [str(counts.get(verdict, 0)) for verdict in verdicts]
            yield f"| {model} | {whose} | {' | '.join(cells)} |"


def test_the_page_quotes_the_record() -> None:
    quoted = (*recording_lines(RECORD), *claim_lines(RECORD), *shared_lines(SHARED), *recorded_lines(SHARED))
    for line in quoted:
        assert line in PAGE, line


def test_one_device_is_taken_for_several_as_seldom_as_promised() -> None:
    """α over ten addresses: a hundredth of a tenth of those that one device uses."""
    alone = [
        cell["verdicts"] for found in SHARED["models"].values() for cell in found["composed"] if cell["share"] in (0, 1)
    ]
    assert sum(sum(one.values()) for one in alone) > 1000
    assert sum(one.get(SEVERAL, 0) for one in alone) <= 0.001 * sum(sum(one.values()) for one in alone)


def test_detection_costs_at_most_a_hundredth() -> None:
    for rows in RECORD["recordings"].values():
        assert rows["detected"]["known right"] >= rows["cut by the truth"]["known right"] - 0.01
    for rows in RECORD["lora"]["recordings"].values():
        assert rows["detected"]["known right"] > rows["cut by the truth"]["known right"]


def test_options_on_the_page_are_options() -> None:
    command = typer.main.get_command(app)
    known = {o for name in ("identify", "verify") for p in command.commands[name].params for o in p.opts}  # type: ignore[attr-defined]
    named = set(re.findall(r"`(--[a-z-]+)", PAGE)) | set(
        re.findall(r"^pisa (?:identify|verify).*?(--[a-z-]+)", PAGE, re.M)
    )
    assert named - {"--method", "--det"} <= known  # of `pisa train` and `pisa evaluate`


def test_the_page_says_what_the_code_does() -> None:
    assert len(BETS) == 5
    assert "five ε" in PAGE
    assert f"at most {VALIDATION};" in PAGE


def test_what_the_command_prints_is_what_it_printed() -> None:
    for command in ("identify", "verify"):
        printed = (ROOT / f"results/studies/{command}-console.txt").read_text(encoding="utf-8")
        assert f"```\n{printed}```" in PAGE
