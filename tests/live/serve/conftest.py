from __future__ import annotations

from tests.decide.identification.conftest import trained  # noqa: F401  (fixtures)
from tests.live.listen.conftest import toy  # noqa: F401
