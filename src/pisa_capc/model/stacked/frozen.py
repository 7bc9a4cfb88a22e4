"""Layers whose weights stay as they are: inference.

What is derived from weights, as kernels that hold their normalisation, is kept beside them until they change. On a CPU
products with weights are oneDNN's: in float32 they take half as long as those of MKL on some processors. Attention has
a softmax of powers of two, which are several times quicker than those of e, with nothing taken off them first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pisa_capc.model.stacked.branches import joined
from pisa_capc.model.stacked.precision import at_least_float32, full_precision, product_dtype
from pisa_capc.model.stacked.scripting import scripted

if TYPE_CHECKING:
    from pisa_capc.model.stacked.layers import BatchNorm

Number = Union[int, float, complex]  # noqa: UP007  (TorchScript knows it so)
T = TypeVar("T")


def nothing_is_learnt() -> bool:
    """Whether neither gradients are asked for nor a graph is made for others: what is here is only for PyTorch."""
    return not (torch.is_grad_enabled() or torch.compiler.is_compiling())


@dataclass(frozen=True)
class _Kept:
    """What was made, and from what; a copy of its owner begins without."""

    how: Any
    sources: list[Tensor]
    value: Any

    def is_of(self, sources: Sequence[Tensor], how: Any) -> bool:
        return self.how == how and all(
            a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(self.sources, sources, strict=True)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def derived(owner: nn.Module, sources: Sequence[Tensor], how: Any, make: Callable[[], T]) -> T:
    """make(), kept on its `owner` until a value of the `sources` that it is made from is another.

    how: what else it depends on. Values are compared, which takes microseconds, because PyTorch's own count of changes
    misses those of an optimiser that updates all parameters at once.
    """
    if not nothing_is_learnt():
        return make()
    kept: _Kept | None = owner.__dict__.get("_derived")
    if kept is None or not kept.is_of(sources, how):
        kept = owner.__dict__["_derived"] = _Kept(how, [source.detach().clone() for source in sources], make())
    found: T = kept.value
    return found


def _scripted(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function; in a record of operations as a script, which decides anew what a record would hold fast."""
    return scripted(function) if torch._C._get_tracing_state() is not None else function


# Products -------------------------------------------------------------------------------------------------------------


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor, after: str) -> Tensor:
    if x.numel() < 400 * x.shape[-1]:  # rows, of which oneDNN's preparations take longer than it saves
        y = F.linear(x, weight, bias)
        return y.relu_() if after == "relu" else y
    settings = torch.jit.annotate(list[Optional[Number]], [])  # noqa: UP045  (as TorchScript writes it)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, after, settings, "")


def product(x: Tensor, weight: Tensor, bias: Tensor, relu: bool = False) -> Tensor:
    """x Wᵀ + b, and its ReLU: (…, inputs) → (…, outputs), on a CPU and without gradients; all of one type."""
    if x.dtype != torch.float64 and torch.backends.mkldnn.is_available():
        return _scripted(_by_onednn)(x, weight, bias, "relu" if relu else "none")
    y = F.linear(x, weight, bias)
    return y.relu_() if relu else y


def linear(x: Tensor, layer: Any, relu: bool = False) -> Tensor:
    """A `Linear` layer of one run, and its ReLU: (…, inputs) → (…, outputs)."""
    dtype = product_dtype(x)
    return product(x.to(dtype), layer.weight[0].to(dtype), layer.bias[0].to(dtype), relu)


# Attention ------------------------------------------------------------------------------------------------------------


def _rows_of_heads(weight: Tensor, bias: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Weight (3W, W) and bias (3W,) of queries, keys and values, of all heads each, with one head after the other.

    Queries are scaled by 1/√d, and for powers of two instead of e.
    """
    width = weight.shape[1]
    scale = weight.new_tensor([math.log2(math.e) * math.sqrt(heads / width), 1, 1])[:, None, None, None]
    rows = torch.cat([weight, bias[:, None]], dim=1).view(3, heads, -1, width + 1) * scale
    rows = rows.transpose(0, 1).reshape(-1, width + 1)
    return rows[:, :-1].contiguous(), rows[:, -1].contiguous()


def _mixed(values: Tensor, scores: Tensor) -> Tensor:
    """V softmax(scores · log 2), over the second of three axes: (N, d, L), (N, L, L) → (N, d, L)."""
    powers = torch.exp2(scores)
    sums = powers.sum(1, keepdim=True)
    least, most = torch.aminmax(sums)
    if bool(least > 2.0**-100) and bool(most < 2.0**100):  # none was lost or became infinite in float32
        return torch.bmm(values, powers).div_(sums)
    return torch.bmm(values, torch.softmax(scores * 0.6931471805599453, dim=1))


def attention_heads(
    x: Tensor, owner: nn.Module, layers: Sequence[Any], heads: int, exponent: Tensor | None = None
) -> Tensor:
    """softmax(QKᵀ/√d + exponent) V of one run, all heads side by side: (N, L, W) → (N, L, W).

    layers: those that give queries, keys and values, together or each; `owner` keeps what is made of them. exponent:
    (N, L, L). Between products with weights all is in float32 at least: the other products are too small to gain.
    """
    length, width = x.shape[1:]
    each, dtype = width // heads, product_dtype(x)
    weights, biases = [layer.weight[0] for layer in layers], [layer.bias[0] for layer in layers]

    def rows() -> list[Tensor]:
        return [part.to(dtype) for part in _rows_of_heads(torch.cat(weights), torch.cat(biases), heads)]

    weight, bias = derived(owner, [*weights, *biases], dtype, rows)
    own = product(x.to(dtype), weight, bias)
    with full_precision(x):
        own = at_least_float32(own).mT.contiguous().view(-1, 3 * each, length)
        queries, keys, values = own.split(each, dim=1)
        scores = torch.bmm(keys.mT, queries)  # with a side of d elements first: several times quicker
        if exponent is not None:
            scores.view(-1, heads, length, length).add_(exponent.mT[:, None], alpha=math.log2(math.e))
        return _scripted(_mixed)(values, scores).view(-1, width, length).mT


# Convolutions ---------------------------------------------------------------------------------------------------------


def folded(weights: Sequence[Tensor], biases: Sequence[Tensor], norm: BatchNorm) -> tuple[Tensor, Tensor]:
    """Kernel (R, C_out, C_in, 1, k) and bias (R, C_out) of a convolution with its normalisation in them."""
    weight = joined(weights)
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    bias = (torch.cat(list(biases), dim=1) - norm.running_mean) * scale + norm.bias
    weight = (weight * scale[..., None, None])[:, :, :, None]
    return torch.stack([w.contiguous(memory_format=torch.channels_last) for w in weight]), bias


def conv_norm(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    norm: BatchNorm,
    dilation: int,
    skip: Tensor | None,
    relu: bool,
    tokens: int | None,
) -> Tensor:
    """`layers.conv_norm` with running statistics, which are part of the weights then.

    Frames are pictures of one line, (N, C, 1, T), because PyTorch convolves those, and not series, in the layout that
    activations have here.
    """
    sources = [*weights, *biases, norm.weight, norm.bias, norm.running_mean, norm.running_var]
    dtype = product_dtype(x)
    kernels, shifts = derived(norm, sources, dtype, lambda: [part.to(dtype) for part in folded(weights, biases, norm)])
    border = dilation * (kernels.shape[-1] // 2)
    lines = _each_run(x), [None] * len(x) if skip is None else _each_run(skip)
    parts = []
    for own, add, kernel, shift in zip(*lines, kernels, shifts, strict=True):
        y = F.conv2d(own, kernel, shift, padding=(0, border), dilation=(1, dilation))
        y = y if add is None else y + add
        y = F.relu(y, inplace=True) if relu else y
        y = y if tokens is None else _line_tokens(y, tokens)
        parts.append(y.permute(2, 0, 3, 1))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _line_tokens(y: Tensor, tokens: int) -> Tensor:
    """`adaptive_tokens` of (N, C, 1, T)."""
    span, rest = divmod(int(y.shape[-1]), tokens)
    return F.adaptive_avg_pool2d(y, (1, tokens)) if rest else F.avg_pool2d(y, (1, span))


def _each_run(x: Tensor) -> list[Tensor]:
    """(R, N, T, C) → R times (N, C, 1, T)."""
    return [run.permute(1, 3, 0, 2) for run in ([x] if len(x) == 1 else x.split(1))]
