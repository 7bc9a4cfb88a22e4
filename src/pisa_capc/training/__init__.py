"""Source training: views, objective, and one `fit` for one run or a stack of them."""

from pisa_capc.training.checkpoint import TrainedModel, load_model
from pisa_capc.training.embed import Embedding, embed, embed_many
from pisa_capc.training.fit import fit
from pisa_capc.training.runs import Run, TrainingConfig

__all__ = ["Embedding", "Run", "TrainedModel", "TrainingConfig", "embed", "embed_many", "fit", "load_model"]
