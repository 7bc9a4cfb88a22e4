"""What a check says, and the list of them.

To add one: a function in one of the files beside this with `@register_check("name")`, which takes the evidence and
returns a finding. Table, JSON, report and exit code follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pisa_capc.core.registry import Registry

if TYPE_CHECKING:
    from pisa_capc.evidence.checks.evidence import Evidence


class Verdict(StrEnum):
    """fault: what is learnt from this set will be wrong or cannot be tested. note: know it when you read scores."""

    FINE = "fine"
    NOTE = "worth knowing"
    FAULT = "fault"


@dataclass(frozen=True)
class Finding:
    """found: a sentence with the numbers. advice: what to do about it, empty where there is nothing to do."""

    verdict: Verdict
    found: str
    advice: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


CheckFunction = Callable[["Evidence"], Finding]
CHECKS: Registry[CheckFunction] = Registry("check")


def register_check(name: str) -> Callable[[CheckFunction], CheckFunction]:
    """Make a check known under `name`: a function that takes the evidence and returns a finding."""
    return CHECKS.register(name)


def named(names: list[str], most: int = 4) -> str:
    """'E1/L1, E2/L1, … (9 in all)'."""
    listed = ", ".join(names[:most])
    return listed if len(names) <= most else f"{listed}, … ({len(names)} in all)"
