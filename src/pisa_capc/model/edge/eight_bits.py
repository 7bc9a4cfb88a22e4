"""An exported graph with convolutions of eight bits, and what that costs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ModelError
from pisa_capc.data.protocol import Split
from pisa_capc.data.scores import macro_f1
from pisa_capc.model.edge.engine import OnnxNetwork, Session
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.inference.inputs import model_input
from pisa_capc.model.inference.statistics import BANK

if TYPE_CHECKING:
    import onnx

COST = 0.005  # of Macro-F1 on held-out source frames that eight bits may have
CHANNELS = 16  # inputs of a convolution from which it gains by them
BLOCK = 64  # frames whose ranges are looked at together


@dataclass(frozen=True)
class Cost:
    """Macro-F1 on the held-out frames of the source, of the model and with eight bits.

    portable: whether any processor computes it right. Weights have seven bits then. Of eight, sums of sixteen bits
    overflow on x86 processors without VNNI (most from before 2019 to 2021).
    """

    before: float
    after: float
    portable: bool

    @property
    def of_eight_bits(self) -> float:
        return self.before - self.after

    @property
    def is_little(self) -> bool:
        return self.of_eight_bits < COST


def quantised(model: onnx.ModelProto, iq: NDArray[np.float32], portable: bool) -> onnx.ModelProto:
    """The graph with its wide convolutions in eight bits, whose ranges are those of frames iq (N, A, T, 2).

    Only those: products of an equaliser would no longer be a Fourier transform, and few channels gain nothing.
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with TemporaryDirectory() as folder:
        given, plain, small = (Path(folder) / f"{name}.onnx" for name in ("given", "plain", "small"))
        onnx.save(model, given)
        with _quiet():
            quant_pre_process(given, plain, skip_symbolic_shape=True)  # weights must be constants to become integers
        wide = _wide_convolutions(onnx.load(plain).graph)
        if not wide:
            raise ModelError(
                f"--int8: the model has no convolution of {CHANNELS} or more channels, so that eight bits would change "
                "nothing. Export it without."
            )
        with _quiet():
            quantize_static(
                str(plain),
                str(small),
                _Ranges(iq),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=["Conv"],
                nodes_to_quantize=wide,
                per_channel=True,
                reduce_range=portable,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
        found = onnx.load(small)
    # What may be left out, and does nothing in this model, it has left out.
    lost = {value.name for value in model.graph.input} - {value.name for value in found.graph.input}
    found.graph.input.extend(value for value in model.graph.input if value.name in lost)
    kept = {value.name for value in found.graph.initializer}
    found.graph.initializer.extend(v for v in model.graph.initializer if v.name in lost and v.name not in kept)
    said = {entry.key: entry.value for entry in model.metadata_props}
    onnx.helper.set_model_props(found, said | {"eight_bits": json.dumps({"portable": portable})})
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the quantiser's advice: what it advises was done, or would take away inputs that may be left out."""
    import onnxruntime

    level = logging.root.level
    logging.root.setLevel(logging.ERROR)
    onnxruntime.set_default_logger_severity(3)
    try:
        yield
    finally:
        logging.root.setLevel(level)
        onnxruntime.set_default_logger_severity(2)  # as it begins


def _wide_convolutions(graph: onnx.GraphProto) -> list[str]:
    """Names of the convolutions of many channels, whose weights are constants."""
    sizes = {value.name: value.dims for value in graph.initializer}
    convolutions = [node for node in graph.node if node.op_type == "Conv" and node.input[1] in sizes]
    return [node.name for node in convolutions if sizes[node.input[1]][1] >= CHANNELS]


class _Ranges:
    """Frames as the quantiser reads them, some at a time."""

    def __init__(self, iq: NDArray[np.float32]) -> None:
        self._parts: Iterator[Any] = iter(np.array_split(iq, max(1, len(iq) // BLOCK)))

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        part = next(self._parts, None)
        return None if part is None else {"iq": part}


def cheapest(trained: TrainedModel, model: onnx.ModelProto, part: Split) -> tuple[bytes, Cost]:
    """The model's graph in eight bits, and what they cost: portable unless that costs too much."""
    some = np.linspace(0, len(part.train) - 1, BANK * len(trained.devices)).astype(int)
    iq = model_input(part.train.select(some))  # from all over the source: they say how large activations become
    before = held_out_f1(trained, part)
    for portable in (True, False):
        content = quantised(model, iq, portable).SerializeToString()
        network = OnnxNetwork(trained.model, Session(content))
        cost = Cost(before, held_out_f1(replace(trained, model=network), part), portable)
        if cost.is_little:
            break
    return content, cost


def held_out_f1(trained: TrainedModel, part: Split) -> float:
    """Macro-F1 on the frames of the source that were held out."""
    said = embed(trained, part.validation, "cpu").logits.argmax(axis=1)
    return macro_f1(part.validation.device, said, len(trained.devices))
