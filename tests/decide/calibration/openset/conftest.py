"""What a test draws does not depend on which ones its process ran before."""

from __future__ import annotations

import pytest

from pisa_capc.core.randomness import generator
from tests.decide.calibration.openset import test_carrier, test_session


@pytest.fixture(autouse=True)
def _draws_of_its_own(request: pytest.FixtureRequest) -> None:
    for radios in (test_session.RADIOS, test_carrier.RADIOS):
        radios.draw = generator(7, "radios", request.node.name)
