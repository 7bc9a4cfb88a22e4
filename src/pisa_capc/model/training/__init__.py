"""Source training: one `fit` for one run or a stack of them."""

from pisa_capc.model.training.fitting import fit
from pisa_capc.model.training.runs import Run, TrainingConfig

__all__ = ["Run", "TrainingConfig", "fit"]
