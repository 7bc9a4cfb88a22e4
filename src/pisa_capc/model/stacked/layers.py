"""The layers: plain PyTorch, the kernels of `fused/` on a GPU that has Triton, and in training on a CPU the blocks of
`blocks.py`, `sequences.py`, `graph.py` and `gru.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pisa_capc.model.stacked import frozen
from pisa_capc.model.stacked.counts import Counts
from pisa_capc.model.stacked.noise import keep_factor, keep_mask
from pisa_capc.model.stacked.precision import at_least_float32, full_precision
from pisa_capc.model.stacked.runs import join_runs, split_runs

_fused_allowed = True


@contextmanager
def plain_layers() -> Iterator[None]:
    """Compute with plain PyTorch operations even where the fused kernels could run: for comparison and tests."""
    global _fused_allowed
    before, _fused_allowed = _fused_allowed, False
    try:
        yield
    finally:
        _fused_allowed = before


def in_kernels(x: Tensor) -> bool:
    """Whether the kernels of `fused/` compute layers of x."""
    if not (_fused_allowed and x.is_cuda):
        return False
    from pisa_capc.model.stacked import fused

    return fused.AVAILABLE


def in_blocks(x: Tensor) -> bool:
    """Whether layers that train on x take some frames at a time."""
    return _fused_allowed and x.device.type == "cpu"


def is_quick(x: Tensor) -> bool:
    """Whether layers that train on x have better ways than plain PyTorch."""
    return in_blocks(x) or in_kernels(x)


def is_frozen(x: Tensor) -> bool:
    """Whether x of a module in inference may take the quick ways of `frozen.py`: one run, on a CPU, no gradients."""
    return in_blocks(x) and len(x) == 1 and frozen.nothing_is_learnt()


class Linear(nn.Module):
    """y = x Wᵀ + b for each run: (R, …, inputs) → (R, …, outputs)."""

    def __init__(self, inputs: int, outputs: int, runs: int = 1) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(runs, outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(runs, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        if len(self.weight) == 1:
            return F.linear(x, self.weight[0], self.bias[0])
        # Not baddbmm: it would first write the bias over the whole output.
        y = torch.bmm(x.flatten(1, -2), self.weight.transpose(1, 2))
        return (y + self.bias[:, None].to(y.dtype)).unflatten(1, x.shape[1:-1])


class LayerNorm(nn.Module):
    """Layer normalisation of the last axis, affine per run."""

    eps = 1e-5

    def __init__(self, width: int, runs: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(runs, width))
        self.bias = nn.Parameter(torch.zeros(runs, width))

    def forward(self, x: Tensor) -> Tensor:
        if len(self.weight) == 1:
            return F.layer_norm(x, x.shape[-1:], self.weight[0], self.bias[0], self.eps)
        shape = (len(self.weight),) + (1,) * (x.ndim - 2) + x.shape[-1:]
        return F.layer_norm(x, x.shape[-1:], eps=self.eps) * self.weight.view(shape) + self.bias.view(shape)


class BatchNorm(nn.Module):
    """Parameters and running statistics of batch normalisation over (N, T), affine per run and channel."""

    momentum = 0.1
    eps = 1e-5
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, runs: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(runs, width))
        self.bias = nn.Parameter(torch.zeros(runs, width))
        self.register_buffer("running_mean", torch.zeros(runs, width))
        self.register_buffer("running_var", torch.ones(runs, width))

    def forward(self, y: Tensor, counts: Counts | None = None) -> Tensor:
        """(N, R, C, T) → the same, the layout in which PyTorch convolves: runs are channels of one normalisation."""
        if counts is not None and self.training:
            return self._counted(y, counts)
        normed = F.batch_norm(
            y.flatten(1, 2),
            self.running_mean.view(-1),
            self.running_var.view(-1),
            self.weight.view(-1),
            self.bias.view(-1),
            self.training,
            self.momentum,
            self.eps,
        )
        return normed.view_as(y)

    def _counted(self, y: Tensor, counts: Counts) -> Tensor:
        """As `forward` in training, of frames that stand for several."""
        values = counts.total * y.shape[3]
        full = at_least_float32(y)
        share = (counts.each.t().to(full.dtype) / values)[:, :, None, None]
        mean = (share * full).sum((0, 3))
        centred = full - mean[:, :, None]
        variance = (share * centred**2).sum((0, 3))
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * (values / max(values - 1, 1)), self.momentum)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (centred * scale[:, :, None] + self.bias[:, :, None]).to(y.dtype)


class Convolution(NamedTuple):
    """One convolution of a chain: weights and biases of its branches, as `conv_norm` takes them, and its norm."""

    weights: Sequence[Tensor]
    biases: Sequence[Tensor]
    norm: BatchNorm
    dilation: int = 1
    residual: bool = False  # what the convolution before it read is added before the ReLU


def _whole_chain(
    x: Tensor, convolutions: Sequence[Convolution]
) -> Callable[[Tensor, Sequence[Convolution], int, Counts | None], Tensor] | None:
    """What does all convolutions at once, where something can."""
    modes = {c.norm.training for c in convolutions}
    if modes == {True} and in_blocks(x):
        from pisa_capc.model.stacked import blocks

        return blocks.conv_chain
    if (modes == {True} or (modes == {False} and not torch.is_grad_enabled())) and in_kernels(x):
        from pisa_capc.model.stacked.fused import chains

        return chains.conv_chain if chains.takes(x, convolutions) else None
    return None


def conv_chain(
    x: Tensor, convolutions: Sequence[Convolution], tokens: int | None = None, counts: Counts | None = None
) -> Tensor:
    """`conv_norm` after `conv_norm`; tokens: average what the last one gives over that many spans of time."""
    at_once = _whole_chain(x, convolutions)
    if at_once is not None:
        whole = tokens is not None and x.shape[2] % tokens == 0
        y = at_once(x, convolutions, tokens if tokens and whole else 0, counts)
        return y if whole or tokens is None else adaptive_tokens(y, tokens)
    before = x
    for i, c in enumerate(convolutions, 1):
        pooled = tokens if i == len(convolutions) else None
        skip = before if c.residual else None
        y = conv_norm(x, c.weights, c.biases, c.norm, dilation=c.dilation, skip=skip, tokens=pooled, counts=counts)
        before, x = x, y
    return x


def conv_norm(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    norm: BatchNorm,
    *,
    dilation: int = 1,
    skip: Tensor | None = None,
    relu: bool = True,
    tokens: int | None = None,
    counts: Counts | None = None,
) -> Tensor:
    """ReLU(BatchNorm(conv(x)) + skip), the step every convolutional encoder is made of.

    x: (R, N, T, C_in). weights: one or more branches (R, C_out, C_in, k) with odd k, whose outputs are concatenated;
    the padding keeps T. biases: (R, C_out) each; batch statistics cancel them, so in training they get no gradient
    (what rounding leaves of it would otherwise be blown up to full steps by Adam). tokens: average the result over
    that many spans of time. counts: how often each frame counts in the batch statistics.
    """
    if norm.training:
        biases = [b.detach() for b in biases]
    if in_kernels(x) and (norm.training or not torch.is_grad_enabled()):
        from pisa_capc.model.stacked import fused

        whole = tokens is not None and x.shape[2] % tokens == 0
        y = fused.conv_norm(x, weights, biases, norm, dilation, skip, relu, tokens if tokens and whole else 0, counts)
        return y if whole or tokens is None else adaptive_tokens(y, tokens)
    if not norm.training:
        return frozen.conv_norm(x, weights, biases, norm, dilation, skip, relu, tokens)
    y = _conv_norm(x, weights, biases, norm, dilation, counts)
    y = y if skip is None else y + skip
    y = F.relu(y) if relu else y
    return y if tokens is None else adaptive_tokens(y, tokens)


def _conv_norm(
    x: Tensor,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    norm: BatchNorm,
    dilation: int,
    counts: Counts | None,
) -> Tensor:
    """BatchNorm(conv(x)) with the statistics of this batch."""
    runs = len(x)
    columns = x.permute(1, 0, 3, 2).flatten(1, 2)  # (N, R·C_in, T)
    branches = [
        F.conv1d(
            columns, w.flatten(0, 1), b.flatten(), padding=dilation * (w.shape[-1] // 2), dilation=dilation, groups=runs
        ).unflatten(1, (runs, -1))
        for w, b in zip(weights, biases, strict=True)
    ]
    y = torch.cat(branches, dim=2) if len(branches) > 1 else branches[0]  # (N, R, C_out, T)
    normed: Tensor = norm(y, counts)
    return normed.permute(1, 0, 3, 2)


def adaptive_tokens(features: Tensor, tokens: int) -> Tensor:
    """Adaptive average pooling over time: (R, N, T, d) → (R, N, tokens, d)."""
    length = features.shape[2]
    if length % tokens == 0:
        return features.unflatten(2, (tokens, length // tokens)).mean(3)
    pooled = F.adaptive_avg_pool1d(features.flatten(0, 1).transpose(1, 2), tokens)
    return pooled.transpose(1, 2).unflatten(0, features.shape[:2])


def conv_parameters(inputs: int, outputs: int, kernel: int, runs: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Weight (R, outputs, inputs, kernel) and bias (R, outputs) of a convolution, drawn uniformly in ±1/√fan-in."""
    bound = 1 / math.sqrt(inputs * kernel)
    return (
        nn.Parameter(torch.empty(runs, outputs, inputs, kernel).uniform_(-bound, bound)),
        nn.Parameter(torch.empty(runs, outputs).uniform_(-bound, bound)),
    )


class ConvChain(nn.Module):
    """A module that is a chain of convolutions."""

    def convolutions(self) -> list[Convolution]:
        raise NotImplementedError

    def forward(self, x: Tensor, tokens: int | None = None, counts: Counts | None = None) -> Tensor:
        return conv_chain(x, self.convolutions(), tokens, counts)


class ConvNorm(nn.Module):
    """One convolution of `conv_norm` with its parameters."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, runs: int = 1, *, dilation: int = 1, relu: bool = True
    ) -> None:
        super().__init__()
        self.weight, self.bias = conv_parameters(inputs, outputs, kernel, runs)
        self.norm = BatchNorm(outputs, runs)
        self.dilation = dilation
        self.relu = relu

    def convolutions(self, residual: bool = False) -> list[Convolution]:
        """This one, for `conv_chain`."""
        return [Convolution([self.weight], [self.bias], self.norm, self.dilation, residual)]

    def forward(self, x: Tensor, skip: Tensor | None = None, tokens: int | None = None) -> Tensor:
        return conv_norm(
            x,
            [self.weight],
            [self.bias],
            self.norm,
            dilation=self.dilation,
            skip=skip,
            relu=self.relu,
            tokens=tokens,
        )


class GRU(nn.Module):
    """One-layer bidirectional GRU: (R, N, T, inputs) → (R, N, T, 2·hidden).

    Parameters have PyTorch's layout with a run axis in front; gates in the order reset, update, new.
    """

    def __init__(self, inputs: int, hidden: int, runs: int = 1) -> None:
        super().__init__()
        bound = 1 / math.sqrt(hidden)
        self.hidden = hidden

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(runs, 2, *shape).uniform_(-bound, bound))

        self.weight_input = parameter(3 * hidden, inputs)
        self.weight_hidden = parameter(3 * hidden, hidden)
        self.bias_input = parameter(3 * hidden)
        self.bias_hidden = parameter(3 * hidden)

    def forward(self, x: Tensor, tokens: int | None = None, counts: Counts | None = None) -> Tensor:
        """tokens: average the result over that many spans of time. counts: which frames may be left out."""
        whole = tokens is not None and x.shape[2] % tokens == 0
        if tokens is not None and not (whole and in_kernels(x)):
            return adaptive_tokens(self(x, counts=counts), tokens)
        parameters = (self.weight_input, self.weight_hidden, self.bias_input, self.bias_hidden)
        if in_kernels(x):
            from pisa_capc.model.stacked import fused

            return fused.gru(x, *parameters, tokens or 0, counts)
        if in_blocks(x) and self.training:
            from pisa_capc.model.stacked.gru import gru

            with full_precision(x):  # a step's products are too small to gain by it, and its sums too many
                runs = zip(*map(split_runs, (at_least_float32(x), *parameters)), strict=True)
                return join_runs([gru(*run) for run in runs])
        parts = []
        for r in range(len(x)):
            flat: list[Tensor] = []
            for direction in range(2):
                flat += [
                    self.weight_input[r, direction],
                    self.weight_hidden[r, direction],
                    self.bias_input[r, direction],
                    self.bias_hidden[r, direction],
                ]
            state = x.new_zeros(2, x.shape[1], self.hidden)
            parts.append(torch.gru(x[r], state, flat, True, 1, 0.0, self.training, True, True)[0])
        return torch.stack(parts)


class Dropout(nn.Module):
    """Dropout whose mask is a pure function of run seed, step and place, once `bind_noise` has given it a key.

    Without a key it is PyTorch's own dropout.
    """

    key: Tensor | None = None
    site: int = 0

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return x
        if self.key is None:
            return F.dropout(x, self.probability)
        if x.is_cuda:
            mask = keep_mask(self.key, self.site, x.shape, self.probability)
            return torch.where(mask, x * (1 / (1 - self.probability)), 0.0)
        return x * keep_factor(self.key, self.site, x.shape, self.probability, x.dtype)


def draws(*dropouts: Dropout) -> bool:
    """Whether masks can be drawn piece by piece, as the fused kernels and blocks do: that needs a key."""
    return all(d.key is not None or not d.training or d.probability == 0 for d in dropouts)


class Sublayer(NamedTuple):
    """LN(x + outer(last(wide(x)))), one of the two of a Transformer layer: (R, N, L, width) → the same.

    wide: with heads, inner(softmax(QKᵀ/√d)) V of the queries, keys and values that `first` gives, each with its heads
    side by side; without, inner(ReLU(first(x))).
    """

    first: Linear
    last: Linear
    norm: LayerNorm
    inner: Dropout
    outer: Dropout
    heads: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        if train_in_blocks(x, [self]):
            from pisa_capc.model.stacked import sequences

            return sequences.sublayer_chain(x, [self])
        if self.heads:
            return attention(x, self.first, self.last, self.norm, self.heads, self.inner, self.outer)
        return feed_forward(x, self.first, self.last, self.norm, self.inner, self.outer)


def train_in_blocks(x: Tensor, sublayers: Sequence[Sublayer]) -> bool:
    """Whether sublayers of a Transformer train on x some sequences at a time, see `sequences.sublayer_chain`."""
    may = in_blocks(x) and len(sublayers) > 0
    return may and all(sublayer.inner.training and draws(sublayer.inner, sublayer.outer) for sublayer in sublayers)


def sublayer_chain(
    x: Tensor, sublayers: Sequence[Sublayer], norm: LayerNorm, tokens: int | None, present: Tensor | None = None
) -> Tensor:
    """Sublayer after sublayer, the norm behind them, and its mean over `tokens` spans: where `train_in_blocks`.

    present: (R, N), false for sequences that are left out, of which the result is zero.
    """
    from pisa_capc.model.stacked import sequences

    whole = tokens is not None and x.shape[2] % tokens == 0
    y = sequences.sublayer_chain(x, sublayers, norm, tokens if tokens and whole else 0, present)
    return y if whole or tokens is None else adaptive_tokens(y, tokens)


def attention(
    x: Tensor, qkv: Linear, project: Linear, norm: LayerNorm, heads: int, weights: Dropout, out: Dropout
) -> Tensor:
    """LN(x + dropout(project(dropout(softmax(QKᵀ/√d)) V))), multi-head self-attention with its residual and norm.

    x: (R, N, L, width). qkv gives queries, keys and values, each with its heads side by side. weights, out: the inner
    and the outer dropout.
    """
    if in_kernels(x) and x.shape[2] <= 128 and draws(weights, out):  # the kernel holds a sequence in one tile
        from pisa_capc.model.stacked import fused

        return fused.attention(x, qkv, project, norm, heads, weights, out)
    if is_frozen(x) and not weights.training:
        mixed = frozen.attention_heads(x[0], qkv, [qkv], heads)
        result: Tensor = norm(x + frozen.linear(mixed, project))
        return result
    q, k, v = qkv(x).unflatten(-1, (3, heads, -1)).permute(3, 0, 1, 4, 2, 5)
    q = q / math.sqrt(q.shape[-1])  # here and not in the scores, of which there are many more
    a = torch.softmax(q @ k.transpose(-1, -2), dim=-1, dtype=torch.float32)
    mixed = weights(a).to(v.dtype) @ v  # (R, N, heads, L, d)
    y: Tensor = norm(x + out(project(mixed.transpose(2, 3).flatten(-2))))
    return y


def feed_forward(x: Tensor, up: Linear, down: Linear, norm: LayerNorm, hidden: Dropout, out: Dropout) -> Tensor:
    """LN(x + dropout(down(dropout(ReLU(up(x)))))): x (R, N, L, width). hidden, out: the inner and the outer dropout."""
    if in_kernels(x) and draws(hidden, out):
        from pisa_capc.model.stacked import fused

        return fused.feed_forward(x, up, down, norm, hidden, out)
    if is_frozen(x) and not hidden.training:
        update = frozen.linear(frozen.linear(x, up, relu=True), down)
    else:
        update = down(hidden(F.relu(up(x))))
    y: Tensor = norm(x + out(update))
    return y
