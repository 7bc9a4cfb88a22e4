"""A listener that is killed says nothing twice, and begins no alarm twice."""

from __future__ import annotations

import pytest
from benchmarks.listen import kills, trained


@pytest.mark.slow
def test_nothing_is_decided_twice_after_kills() -> None:
    found = kills(trained("", "closed-form"), 3)
    assert found["kills"] == 3
    assert found["numbers twice"] == found["frames twice"] == 0
    assert found["frames unsaid"] <= found["kills"]
    assert found["alarms"] > 0
    assert found["alarms begun twice"] == found["alarm numbers twice"] == 0
    assert found["state back"]
