"""Source training: one `fit` for one run or a stack of them."""

from pisa_capc.model.runs import Run, TrainingConfig
from pisa_capc.model.training.fitting import fit

__all__ = ["Run", "TrainingConfig", "fit"]
