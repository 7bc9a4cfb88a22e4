from __future__ import annotations

from tests.live.listen.conftest import toy  # noqa: F401  (a fixture)
