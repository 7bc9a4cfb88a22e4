"""A trained model whose network is computed by onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pisa_capc.core.errors import ModelError
from pisa_capc.core.threads import OwnThreads
from pisa_capc.model.edge.session import Session
from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.inference.tensors import digest
from pisa_capc.model.networks.pisa import Output

FILE = "model.onnx"  # in the folder of a run


def on_onnx(trained: TrainedModel, run: Path) -> TrainedModel:
    """The model of a run, computed by the file that `pisa export-model` wrote into its folder."""
    path = run / FILE
    session = Session.open(path, torch.get_num_threads())
    if session.metadata.get("sha256") != f'"{weights_digest(trained)}"':
        raise ModelError(
            f"{path}: is of other weights than {run / 'model.json'}. "
            f"Write it again with `pisa export-model {run} --force`."
        )
    return replace(trained, model=OnnxNetwork(trained.model, session))


def weights_digest(trained: TrainedModel) -> str:
    """As `model.json` has it: of another training it is another."""
    return digest({f"model.{name}": value for name, value in trained.model.state_dict().items()})


class OnnxNetwork(OwnThreads):
    """Stands for `network`, whose weights it has: what `enrol` makes from them is computed by PyTorch again."""

    def __init__(self, network: nn.Module, session: Session) -> None:
        super().__init__()
        self.network, self.session = network, session

    @property
    def classifier(self) -> Any:
        return self.network.classifier

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.network.state_dict(*args, **kwargs)

    def forward(self, iq: Tensor, descriptor: Tensor | None = None, mask: Tensor | None = None) -> Output:
        """iq: (N, A, T, 2). descriptor: (N, 4). mask: (N, A). On a CPU."""
        given = (None if value is None else np.asarray(value) for value in (iq, mask, descriptor))
        found = self.session.run(*given)  # type: ignore[arg-type]
        embedding, logits = torch.from_numpy(found.embedding), torch.from_numpy(found.logits)
        error = None if found.error is None else torch.from_numpy(found.error)
        return Output(embedding, logits, torch.zeros(len(iq)), error=error)
