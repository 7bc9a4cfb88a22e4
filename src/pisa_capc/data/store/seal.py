"""Descriptions in JSON that say whether they are as they were written.

Damage and edits are recognised by a digest over everything else in the description. Descriptions of earlier versions
have none: they are refused until `pisa sign` has given them one, or read with a warning where PISA_UNSEALED is set, as
`--unsealed` does.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pisa_capc.core.errors import SealError

KEY = "digest"
VARIABLE = "PISA_UNSEALED"  # set where files without a digest are read all the same


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The description with its digest."""
    plain = json.loads(json.dumps({key: value for key, value in values.items() if key != KEY}))  # as it will be read
    return {**plain, KEY: _digest(plain)}


def unsealed(values: Any, where: Path) -> Any:
    """The description without its digest; ValueError where that is not its own. where: the file, for messages."""
    if not isinstance(values, dict):
        return values  # no description at all, as who reads it will see
    plain = {key: value for key, value in values.items() if key != KEY}
    if KEY not in values:
        refuse_unsealed(str(where))
    elif values[KEY] != (found := _digest(plain)):
        raise ValueError(f"its content has the digest {found} and says {values[KEY]}: it was changed")
    return plain


def refuse_unsealed(what: str) -> None:
    """Refuse a file that has no digest, which deleting it would give too; warn where such files are to be read."""
    if not os.environ.get(VARIABLE):
        raise SealError(
            f"{what}: without a digest, as earlier versions wrote it, or as a forger leaves it. "
            "If you know that it is right, seal it with `pisa sign FOLDER`, or read it with --unsealed."
        )
    warn_unsealed(what)


def warn_unsealed(what: str) -> None:
    """Warn that a file has no digest, so damage cannot be detected."""
    warnings.warn(
        f"{what}: without a digest, as earlier versions wrote it: a change in it would not be noticed. It has one when "
        "it is made again.",
        stacklevel=4,
    )


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]
