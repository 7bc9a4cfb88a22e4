"""The source objective (Section III-F): its terms, and the perturbed views that some of them compare."""

from pisa_capc.model.objective.losses import (
    cross_entropy,
    frame_cross_entropy,
    prediction_consistency,
    supervised_contrastive,
)

__all__ = ["cross_entropy", "frame_cross_entropy", "prediction_consistency", "supervised_contrastive"]
