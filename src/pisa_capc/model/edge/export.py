"""A trained model as an ONNX file that needs nothing of this package, checked against the model."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from pisa_capc.core import revisions
from pisa_capc.core.errors import MissingExtraError, ModelError
from pisa_capc.core.randomness import generator
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.data.store.files import atomic
from pisa_capc.model.edge import recurrence
from pisa_capc.model.edge.closed_form import RealClosedForm
from pisa_capc.model.edge.engine import Session, weights_digest
from pisa_capc.model.edge.fronts import real_front
from pisa_capc.model.edge.phases import InPhases, has_long_kernels
from pisa_capc.model.edge.recurrence import Recurrent
from pisa_capc.model.inference import TrainedModel, embed
from pisa_capc.model.methods.closed_form import ClosedForm, FlawsInClosedForm
from pisa_capc.model.networks import PISA, Single
from pisa_capc.model.networks.modules import DynamicsModulator, StreamModulation, unmodulated
from pisa_capc.model.stacked import GRU

if TYPE_CHECKING:
    import onnx


class Graph(nn.Module):
    """Embedding (N, D) and logits (N, C) of frames as `embed` has them, with what `embed` does before the network.

    iq: (N, A, T, 2) as received, at any power. present: (N, A) antennas that are there, or (1, A) for all frames; one
    whose samples are all zero is absent anyway. descriptor: (N, 4), or (1, 4) for all; NaN where there is none.
    A network that measures the error of its embedding gives it too, (N, D, D).
    A frame without an antenna, or with NaN in it, gives NaN.
    """

    def __init__(self, trained: TrainedModel) -> None:
        super().__init__()
        self.network = expressible(trained)

    @property
    def outputs(self) -> list[str]:
        return ["embedding", "logits"] + ["error"] * isinstance(self.network, RealClosedForm)

    def forward(self, iq: Tensor, present: Tensor, descriptor: Tensor) -> tuple[Tensor, ...]:
        peak = iq.abs().amax((2, 3))
        there = of_each("And", peak != 0, present)
        descriptor = of_each("Add", torch.zeros_like(peak[:, :1]), descriptor)
        iq, power = unit_power(iq, torch.where(there, peak, 0.0))
        output = self.network.infer(iq[None], descriptor[None], there[None])
        usable = (power > 0)[:, None]
        found = [torch.where(usable, part[0], torch.nan) for part in (output.embedding, output.logits)]
        if output.error is not None:
            found.append(torch.where(usable[:, :, None], output.error[0], torch.inf))
        return tuple(found)


def of_each(operator: str, own: Tensor, given: Tensor) -> Tensor:
    """own (N, …) and given (N or 1, C) → (N, C). In ONNX's own words: PyTorch would take the two for equally long."""
    shape = own.shape[0], given.shape[1]
    return torch.onnx.ops.symbolic(operator, (own, given), dtype=own.dtype, shape=shape)


def unit_power(iq: Tensor, peak: Tensor) -> tuple[Tensor, Tensor]:
    """Frames whose antennas that are there have a mean power of one, and what it was, in squares of the largest sample.

    peak: (N, A) largest sample, zero of absent antennas. The largest of all is made one first: squares of very small or
    large numbers would leave float32.
    """
    there, largest = peak != 0, peak.amax(1)
    iq = torch.where(there[..., None, None], iq / largest[:, None, None, None], 0.0)
    power = iq.square().sum((1, 2, 3)) / (there.sum(1) * iq.shape[2])
    return iq * torch.rsqrt(power)[:, None, None, None], power


class WhereKnown(nn.Module):
    """ψ where there is a descriptor; a frame without one is not modulated."""

    def __init__(self, modulator: DynamicsModulator) -> None:
        super().__init__()
        self.modulator = modulator

    def forward(self, descriptor: Tensor) -> StreamModulation:
        unknown = descriptor.isnan().any(-1)
        found = self.modulator(torch.where(unknown[..., None], 0.0, descriptor))
        pairs = zip(unmodulated(descriptor), found, strict=True)
        return StreamModulation(*(torch.where(unknown, none, value) for none, value in pairs))


def expressible(trained: TrainedModel) -> Any:
    """A copy of the network in which whatever ONNX has not, or has better, is its equal that ONNX has."""
    method, network = trained.run.method, deepcopy(trained.model).cpu().eval().requires_grad_(False)
    if isinstance(network, FlawsInClosedForm):
        return RealClosedForm(network)
    if isinstance(network, ClosedForm):
        raise ModelError(
            f"method {method}: measuring {network.measures} cannot be written as ONNX, only "
            f"{FlawsInClosedForm.measures}. Use the run itself."
        )
    if not isinstance(network, PISA | Single):
        raise ModelError(
            f"method {method}: only PISA, Single and the closed form can be written as ONNX. Use the run itself, or "
            "train another method."
        )
    if isinstance(network, PISA):
        network.modulator = WhereKnown(network.modulator)  # type: ignore[assignment]
    if (front := getattr(network, "front", None)) is not None:
        if (real := real_front(front, trained.run.samples)) is None:
            raise ModelError(
                f"method {method}: its preprocessing ({type(front).__name__}) cannot be exported. "
                "Train a method that equalises or aligns, or one without preprocessing."
            )
        network.front = real
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, GRU):
                setattr(module, name, Recurrent(child))
            elif has_long_kernels(child):
                setattr(module, name, InPhases(child))
    return network


OPSET = 20
CHECKED, FEW = 64, 8  # frames; at once, and so many at a time
MOST = 1e-4  # difference of a logit, of the largest
ABOUT = (  # of `model.json`, what the file says of itself
    "devices", "geometry", "samples", "sample_rate_hz", "carrier_hz", "domain", "method", "variant", "encoder",
    "settings", "source", "target", "split_seed", "seed", "dataset", "code", "plugins", "changes",
)  # fmt: skip


@dataclass(frozen=True)
class Exported:
    """A file that was written. difference: of a logit from the model's, at most; largest: logit of these frames."""

    path: Path
    bytes: int
    difference: float
    largest: float


def export_model(trained: TrainedModel, out: str | Path) -> Exported:
    """Write the model with its preprocessing as ONNX; refuse where it does not give what the model gives.

    Inputs: iq (N, A, T, 2); if wanted present (N, A) and descriptor (N, 4). Outputs: embedding, logits,
    of the closed form also error. See `Graph`.
    """
    if trained.run.subcarriers is not None:
        raise ModelError(
            f"{out}: not written. The model sees channel state behind a front end ({trained.run.subcarriers.front}), "
            "which cannot be exported. Use the run itself."
        )
    content = to_onnx(trained).SerializeToString()
    difference, largest = compare(trained, Session(content))
    if not difference <= MOST * largest:
        raise ModelError(
            f"{out}: not written. Its logits would differ from the model's by up to {difference:.2g}; expected at most "
            f"{MOST:g} of the largest, {largest:.3g}. Use the run itself, and report its method and encoder."
        )
    out = Path(out)
    with atomic(out) as temporary:
        temporary.write_bytes(content)
    return Exported(out, len(content), difference, largest)


def to_onnx(trained: TrainedModel) -> onnx.ModelProto:
    """The graph with its metadata."""
    try:
        import onnx
        import onnxscript  # noqa: F401  (PyTorch exports with it)
    except ImportError as error:
        raise MissingExtraError(error.name or "onnx", "onnx", "exporting a model") from error
    antennas, samples = trained.geometry.antennas, trained.run.samples
    present, descriptor = np.ones((1, antennas), dtype=bool), np.full((1, 4), np.nan, dtype=np.float32)
    frames = torch.export.Dim("frames"), torch.export.Dim("masks"), torch.export.Dim("descriptors")
    example = torch.randn(3, antennas, samples, 2), torch.ones(3, antennas, dtype=torch.bool), torch.zeros(3, 4)
    graph = Graph(trained).eval()
    with quiet():
        program = torch.onnx.export(
            graph,
            example,
            input_names=["iq", "present", "descriptor"],
            output_names=graph.outputs,
            dynamic_shapes=tuple({0: one} for one in frames),
            opset_version=OPSET,
            dynamo=True,
        )
    assert program is not None
    model = program.model_proto
    called = {node.op_type for node in model.graph.node if node.domain == recurrence.DOMAIN}
    model.functions.extend(recurrence.function(name, OPSET) for name in sorted(called))
    for node in model.graph.node:
        del node.metadata_props[:]  # which line of which file here it comes from
    for name, value in (("present", present), ("descriptor", descriptor)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))  # what they are unless given
    onnx.helper.set_model_props(model, metadata(trained))
    return model


def metadata(trained: TrainedModel) -> dict[str, str]:
    """The metadata of the file: each value is JSON."""
    described = trained.run.to_json()
    about = {key: described[key] for key in ABOUT if key in described}
    made = {"version": revisions.PACKAGE, "sha256": weights_digest(trained)}
    return {key: json.dumps(value) for key, value in (about | made).items()}


def compare(trained: TrainedModel, session: Session) -> tuple[float, float]:
    """Largest difference of a logit between graph and model, and the largest logit.

    Of noise at all sorts of powers, in half of the frames without some antennas; with a descriptor and without; many
    frames at once and few.
    """
    frames = noise(trained)
    random = generator(2026, "descriptor").standard_normal((CHECKED, 4), dtype=np.float32)
    iq = frames.iq.view(np.float32).reshape(*frames.iq.shape, 2)
    differences, largest = [], []
    for descriptor in (None, np.abs(random)):
        expected = embed(trained, frames, "cpu", descriptor=descriptor).logits
        largest.append(np.abs(expected).max())
        for block in (CHECKED, FEW):  # a recurrent layer goes another way with many than with few
            for part in np.split(np.arange(CHECKED), CHECKED // block):
                found = session.run(iq[part], descriptor=None if descriptor is None else descriptor[part]).logits
                differences.append(np.abs(found - expected[part]).max())
    return float(np.max(differences)), float(np.max(largest))


def noise(trained: TrainedModel) -> UnlabelledFrames:
    """Noise as frames, for the comparison."""
    random, run = generator(2026, "noise"), trained.run
    antennas = trained.geometry.antennas
    parts = random.standard_normal((CHECKED, antennas, 2 * run.samples), dtype=np.float32)
    iq = parts.view(np.complex64) * 10 ** random.uniform(-3, 3, (CHECKED, 1, 1)).astype(np.float32)
    absent = random.random((CHECKED, antennas)) < 0.3
    absent[: CHECKED // 2] = False
    absent[absent.all(axis=1), 0] = False
    iq[absent] = 0
    frames = UnlabelledFrames.from_arrays(iq, geometry=trained.geometry, sample_rate_hz=run.sample_rate_hz)
    return replace(frames, domain=run.domain)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's own messages."""
    level = logging.root.manager.disable
    logging.disable()  # pytest and others let everything through
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
