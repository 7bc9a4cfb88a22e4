"""A trained model whose network is computed by onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pisa_capc.core.errors import MissingExtraError, ModelError
from pisa_capc.core.threads import OwnThreads
from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.inference.tensors import digest
from pisa_capc.model.networks.pisa import Output


class Given(NamedTuple):
    """What a graph gives, in the order of its outputs."""

    embedding: NDArray[np.float32]
    logits: NDArray[np.float32]
    error: NDArray[np.float32] | None = None


class Session:
    """The graph of an ONNX file or of its content; see `export_model`."""

    def __init__(self, content: str | bytes, threads: int = 1) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError("onnxruntime", "onnx", "--engine onnx") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    @classmethod
    def open(cls, path: Path, threads: int = 1) -> Session:
        """The session of a file; one that cannot be used is named."""
        if not path.is_file():
            raise ModelError(f"{path}: is not there. Write it with `pisa export-model {path.parent}`.")
        try:
            return cls(str(path), threads)
        except MissingExtraError:
            raise
        except Exception as error:  # whatever its reader of untrusted files raises
            raise ModelError(f"{path}: not an ONNX model that can be used ({error}). Export it again.") from error

    @property
    def outputs(self) -> list[str]:
        return [output.name for output in self._session.get_outputs()]

    @property
    def metadata(self) -> dict[str, str]:
        found: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        return found

    def run(
        self,
        iq: NDArray[np.float32],
        present: NDArray[np.bool_] | None = None,
        descriptor: NDArray[np.float32] | None = None,
    ) -> Given:
        """Embedding (N, D) and logits (N, C) of frames (N, A, T, 2), and what else the graph gives."""
        outputs = self._session.get_outputs()
        if len(iq) == 0:  # some graphs end the process
            return Given(*(np.empty((0, *output.shape[1:]), np.float32) for output in outputs))
        given: dict[str, Any] = {"iq": iq, "present": present, "descriptor": descriptor}
        known = {name: value for name, value in given.items() if value is not None}
        return Given(*self._session.run(self.outputs, known))


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
    if trained.statistics.frame_error is not None and "error" not in session.outputs:
        raise ModelError(
            f"{path}: does not give the error bars of embeddings; an earlier version wrote it. Write it again with "
            f"`pisa export-model {run} --force`."
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
