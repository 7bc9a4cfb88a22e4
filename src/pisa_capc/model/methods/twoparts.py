"""A network with two embeddings: who sends, and where."""

from __future__ import annotations

from torch import Tensor

from pisa_capc.model.encoders import WIDTH
from pisa_capc.model.networks import Single
from pisa_capc.model.networks.suppression import Projection
from pisa_capc.model.stacked import Linear


class TwoParts(Single):
    """Single, whose embedding is the identity part, and beside it a part for the environment with its own classifier.

    Both parts come from one encoder through projections of the same make, so the identity path is Single's in size.
    """

    def __init__(
        self, classes: int, antennas: int, encoder: str, embedding: int, runs: int, *, environments: int
    ) -> None:
        super().__init__(classes, antennas, encoder, embedding, runs)
        self.project_environment = Projection(WIDTH, embedding, runs)
        self.environment_classifier = Linear(embedding, environments, runs)

    def parts(self, iq: Tensor) -> tuple[Tensor, Tensor]:
        """Identity and environment embeddings, (R, B, D) each."""
        feature = self.feature(iq)
        return self.project(feature), self.project_environment(feature)
