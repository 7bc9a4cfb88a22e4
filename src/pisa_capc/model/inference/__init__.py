"""A frozen model on frames: the model and its files, its input, and its embeddings."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pisa_capc.model.inference.embedding import Embedding, embed, embed_many
    from pisa_capc.model.inference.model import TrainedModel, load_model
    from pisa_capc.model.inference.statistics import SourceStatistics

__all__ = ["Embedding", "SourceStatistics", "TrainedModel", "embed", "embed_many", "load_model"]

# Imported when they are first asked for: a calibration needs the statistics, and no network.
_HOME = {"Embedding": "embedding", "embed": "embedding", "embed_many": "embedding", "SourceStatistics": "statistics"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'model')}"), name)
