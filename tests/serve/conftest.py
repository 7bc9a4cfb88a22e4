from __future__ import annotations

from tests.identify.conftest import trained  # noqa: F401  (fixtures)
from tests.listen.conftest import toy  # noqa: F401
