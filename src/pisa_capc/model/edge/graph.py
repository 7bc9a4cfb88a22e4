"""A trained model as a graph of real numbers, from the samples as received to the scores."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from pisa_capc.core.errors import ModelError
from pisa_capc.model.edge.closed_form import RealClosedForm
from pisa_capc.model.edge.fronts import real_front
from pisa_capc.model.edge.phases import InPhases, has_long_kernels
from pisa_capc.model.edge.recurrence import Recurrent
from pisa_capc.model.inference import TrainedModel
from pisa_capc.model.methods.closed_form import FlawsInClosedForm
from pisa_capc.model.networks import PISA, Single
from pisa_capc.model.networks.modules import DynamicsModulator, StreamModulation, unmodulated
from pisa_capc.model.stacked import GRU


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
    if not isinstance(network, PISA | Single):
        raise ModelError(
            f"method {method}: its network is none of PISA, Single and the closed form, which alone can be written as "
            "ONNX. Use the run itself, or train another method."
        )
    if isinstance(network, PISA):
        network.modulator = WhereKnown(network.modulator)  # type: ignore[assignment]
    if (front := getattr(network, "front", None)) is not None:
        if (real := real_front(front, trained.run.samples)) is None:
            raise ModelError(
                f"method {method}: what it does before its network ({type(front).__name__}) cannot be exported. "
                "Train a method that equalises or aligns, or none of both."
            )
        network.front = real
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, GRU):
                setattr(module, name, Recurrent(child))
            elif has_long_kernels(child):
                setattr(module, name, InPhases(child))
    return network
