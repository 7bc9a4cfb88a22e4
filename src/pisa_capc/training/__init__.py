"""Source training: views, objective, and one `fit` for one run or a stack of them."""

from pisa_capc.training.checkpoint import TrainedModel, load_model
from pisa_capc.training.embed import Embedding, embed
from pisa_capc.training.fit import fit
from pisa_capc.training.runs import Run, TrainingConfig

__all__ = ["Embedding", "Run", "TrainedModel", "TrainingConfig", "embed", "fit", "load_model"]
