"""Descriptions in JSON that say whether they are as they were written.

Damage and edits are recognised by a digest over everything else in the description. Descriptions of earlier versions
have none, and are read as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

KEY = "digest"


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The description with its digest."""
    plain = json.loads(json.dumps({key: value for key, value in values.items() if key != KEY}))  # as it will be read
    return {**plain, KEY: _digest(plain)}


def unsealed(values: Any) -> Any:
    """The description without its digest; ValueError where that is not its own."""
    if not isinstance(values, dict):
        return values  # no description at all, as who reads it will see
    plain = {key: value for key, value in values.items() if key != KEY}
    found = _digest(plain)
    if values.get(KEY, found) != found:
        raise ValueError(f"its content has the digest {found} and says {values[KEY]}: it was changed")
    return plain


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]
