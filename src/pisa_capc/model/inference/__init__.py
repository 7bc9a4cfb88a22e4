"""A frozen model on frames: the model and its files, its input, and its embeddings."""

from pisa_capc.model.inference.embedding import Embedding, embed, embed_many
from pisa_capc.model.inference.model import TrainedModel, load_model
from pisa_capc.model.inference.statistics import SourceStatistics

__all__ = ["Embedding", "SourceStatistics", "TrainedModel", "embed", "embed_many", "load_model"]
