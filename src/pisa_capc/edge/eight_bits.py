"""An exported graph with convolutions of eight bits, and what that costs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.descriptors import cfo_descriptors
from pisa_capc.edge.session import Session
from pisa_capc.errors import ModelError
from pisa_capc.inference import TrainedModel, embed
from pisa_capc.inference.inputs import model_input
from pisa_capc.inference.statistics import BANK
from pisa_capc.protocol import Split
from pisa_capc.scores import macro_f1

if TYPE_CHECKING:
    import onnx

COST = 0.005  # of Macro-F1 on held-out source frames that eight bits may have
CHANNELS = 16  # inputs of a convolution from which it gains by them
BLOCK = 64  # frames whose ranges are looked at together


@dataclass(frozen=True)
class Cost:
    """Macro-F1 on the held-out frames of the source, of the model and with eight bits."""

    before: float
    after: float

    @property
    def of_eight_bits(self) -> float:
        return self.before - self.after


def quantised(model: onnx.ModelProto, iq: NDArray[np.float32]) -> onnx.ModelProto:
    """The graph with its wide convolutions in eight bits, whose ranges are those of frames iq (N, A, T, 2).

    Only those: products of an equaliser would no longer be a Fourier transform, and few channels gain nothing.
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with TemporaryDirectory() as folder:
        plain, small = Path(folder) / "plain.onnx", Path(folder) / "small.onnx"
        quant_pre_process(model, plain, skip_symbolic_shape=True)  # weights must be constants to become integers
        sizes = {value.name: list(value.dims) for value in onnx.load(plain).graph.initializer}
        nodes = [node for node in onnx.load(plain).graph.node if node.op_type == "Conv"]
        wide = [node.name for node in nodes if sizes.get(node.input[1], [0, 0])[1] >= CHANNELS]
        if not wide:
            raise ModelError(
                f"eight bits: the model has no convolution of {CHANNELS} or more channels, so that they would change "
                "nothing. Export it without --int8."
            )
        level, log = logging.root.level, logging.root
        log.setLevel(logging.ERROR)  # it advises to do what was done above
        try:
            quantize_static(
                str(plain),
                str(small),
                _Ranges(iq),
                quant_format=QuantFormat.QDQ,
                nodes_to_quantize=wide,
                per_channel=True,
                reduce_range=True,  # or sums of sixteen bits overflow on processors without VNNI
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
        finally:
            log.setLevel(level)
        found = onnx.load(small)
    known = {value.name for value in found.graph.input}
    found.graph.input.extend(value for value in model.graph.input if value.name not in known)  # that may be left out
    onnx.helper.set_model_props(found, {entry.key: entry.value for entry in model.metadata_props})
    return found


class _Ranges:
    """Frames as the quantiser reads them, some at a time."""

    def __init__(self, iq: NDArray[np.float32]) -> None:
        self._parts: Iterator[Any] = iter(np.array_split(iq, max(1, len(iq) // BLOCK)))

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        part = next(self._parts, None)
        return None if part is None else {"iq": part}

    def __iter__(self) -> Iterator[dict[str, NDArray[np.float32]]]:
        return iter(self.get_next, None)


def some_of(trained: TrainedModel, part: Split) -> NDArray[np.float32]:
    """Training frames from all over the source, which say how large activations become."""
    some = np.linspace(0, len(part.train) - 1, BANK * len(trained.devices)).astype(int)
    return model_input(part.train.select(some))


def measured_cost(trained: TrainedModel, session: Session, part: Split) -> Cost:
    """What the graph of a session costs on the frames of the source that were held out."""
    frames, classes = part.validation, len(trained.devices)
    descriptor = cfo_descriptors(frames)
    found, start = [], 0
    for some in frames.batches(BLOCK):
        own = None if descriptor is None else descriptor[start : start + len(some)]
        found.append(session.run(model_input(some), descriptor=own)[1].argmax(axis=1))
        start += len(some)
    before = embed(trained, frames, "cpu").logits.argmax(axis=1)
    return Cost(*(macro_f1(frames.device, said, classes) for said in (before, np.concatenate(found))))
