"""Single: the reference without structure, one encoder on the stacked antennas."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pisa_capc.core.errors import DataError
from pisa_capc.model.encoders import WIDTH, build_encoder
from pisa_capc.model.networks.modules import Projection
from pisa_capc.model.networks.pisa import Output, first_run
from pisa_capc.model.stacked import Linear


class Single(nn.Module):
    """Antennas as channels (2A inputs), one encoder, mean pooling, a 32 → 64 → 64 head and the classifier.

    >>> import torch
    >>> from pisa_capc.model.networks import Single
    >>> Single(classes=10, antennas=4, encoder="cnn").eval()(torch.randn(2, 4, 320, 2)).logits.shape
    torch.Size([2, 10])
    """

    def __init__(
        self, classes: int, antennas: int = 4, encoder: str = "transformer", embedding: int = 64, runs: int = 1
    ) -> None:
        super().__init__()
        self.antennas = antennas
        self.encoder = build_encoder(encoder, antennas, runs)
        self.project = Projection(WIDTH, embedding, runs)
        self.classifier = Linear(embedding, classes, runs)

    def forward(
        self, iq: Tensor, descriptor: Tensor | None = None, mask: Tensor | None = None, details: bool = False
    ) -> Output:
        """iq: (B, A, T, 2) or (R, B, A, T, 2). An absent antenna is a channel of zeros; the descriptor is not used."""
        stacked = iq.ndim == 5
        if not stacked:
            iq, mask = iq[None], None if mask is None else mask[None]
        if iq.ndim != 5 or iq.shape[2] != self.antennas or iq.shape[4] != 2:
            raise DataError(
                f"iq: expected (frames, {self.antennas} antennas, samples, 2), found {tuple(iq.shape[1:])}."
            )
        output = self.infer(iq, descriptor, mask)
        return output if stacked else first_run(output)

    def infer(self, iq: Tensor, descriptor: Tensor | None, mask: Tensor | None) -> Output:
        """As `forward` of a stack, of frames that are as they should be."""
        return self.head(self.feature(iq, mask))

    def feature(self, iq: Tensor, mask: Tensor | None = None) -> Tensor:
        """The pooled output of the encoder: (R, N, A, T, 2) → (R, N, WIDTH)."""
        if mask is not None:
            iq = iq.masked_fill(~mask[..., None, None], 0)
        channels = iq.permute(0, 1, 3, 4, 2).flatten(-2)  # (R, N, T, [I of all antennas, Q of all antennas])
        y: Tensor = self.encoder(channels, 1).squeeze(2)
        return y

    def head(self, feature: Tensor) -> Output:
        embedding = self.project(feature)
        none = torch.zeros(feature.shape[:2], device=feature.device)
        return Output(embedding, self.classifier(embedding), none)
