"""An exported model at work, by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import MissingExtraError, ModelError


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
        return Given(*self._session.run([output.name for output in outputs], known))
