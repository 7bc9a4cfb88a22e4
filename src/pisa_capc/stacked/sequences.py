"""The two halves of a Transformer layer, in training on a CPU, some sequences at a time.

A block of sequences goes through everything that can be done with it while it is in the cache of a core. Dropout only
sets zeros here: what makes up for it, 1/(1 − p), is in the weights before it, where there is least to multiply. Each
block is one thread's, and what comes of the blocks is summed in their order: no bit depends on how many threads there
are. What a thread does with a block are scripts: it would wait for the interpreter between operations.

In mixed precision the products with weights are taken in bfloat16. Attention is in float32 all the same: its products
are so small that they would gain little, and what is between them would take longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from pisa_capc.stacked.noise import fill_hashed, own_site_key, shifted_places, signed_threshold
from pisa_capc.stacked.precision import at_least_float32, full_precision, product_dtype
from pisa_capc.stacked.runs import apart, together
from pisa_capc.stacked.scripting import scripted
from pisa_capc.threads import all_in_threads, block_sizes

if TYPE_CHECKING:
    from pisa_capc.stacked.layers import Dropout, LayerNorm, Linear

BLOCK = 2**19  # elements of what is wide that are worked on together

T = TypeVar("T")
# As TorchScript writes them:
Number = Union[int, float, complex]  # noqa: UP007
_Hash = Optional[tuple[Tensor, int, int]]  # noqa: UP045  (places, key and threshold of a dropout)


class Drop:
    """Dropout of one run at one place: what `Dropout` does, in pieces."""

    def __init__(self, dropout: Dropout, run: int) -> None:
        probability = dropout.probability if dropout.training else 0.0
        self.inflate = 1 / (1 - probability)
        self.hashed: _Hash = None
        if probability:
            assert dropout.key is not None
            own = own_site_key(int(dropout.key[run]), dropout.site)
            self.hashed = shifted_places(), own, signed_threshold(probability)


# What scripts are made of ---------------------------------------------------------------------------------------------


def _kept(like: Tensor, hashed: _Hash, first: int) -> Tensor:
    """1 where an element stays, else 0, in the shape of `like`, from element `first` of the whole on."""
    kept = torch.empty_like(like)
    if hashed is not None:
        places, own, threshold = hashed
        fill_hashed(kept.view(-1), places, own, threshold, first)
    return kept


if torch.backends.mkldnn.is_available():

    def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x Wᵀ + b of rows: oneDNN takes half as long for it as MKL on some processors."""
        if x.dtype == torch.float64:
            return F.linear(x, weight, bias)
        settings = torch.jit.annotate(list[Optional[Number]], [])  # noqa: UP045
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", settings, "")
else:

    def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)


def _weight_gradient(g: Tensor, x: Tensor) -> Tensor:
    """gᵀ x of rows (M, a) and (M, b), at least float32."""
    if g.dtype == torch.bfloat16:
        return torch.mm(g.t(), x).float()
    if g.shape[1] == x.shape[1]:  # where oneDNN is not quicker
        return torch.mm(g.t(), x)
    return _product(g.t(), x.t(), None) if g.shape[1] < x.shape[1] else _product(x.t(), g.t(), None).t()


def _heads_forth(
    x: Tensor, weight: Tensor, bias: Tensor, heads: int, hashed: _Hash, start: int, exponent: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    """See `Heads`: of sequences from `start` on, and what `_heads_back` needs. exponent: (n, L, L)."""
    count, length, width = x.shape
    qkv = torch.baddbmm(bias, weight.expand(count, -1, -1), x.to(weight.dtype).mT).to(x.dtype)
    q, k, v = qkv.view(count * heads, -1, length).chunk(3, 1)
    scores = torch.bmm(q.mT, k)
    if exponent is not None:
        scores.view(count, heads, length, length).add_(exponent[:, None])
    a = torch.softmax(scores, -1)
    dropped = a
    if hashed is not None:
        dropped = _kept(a, hashed, start * heads * length * length).mul_(a)
    mixed = torch.bmm(v, dropped.mT)
    return mixed.view(count, width, length).mT, [qkv, a, dropped, mixed]


def _heads_back(
    x: Tensor, turned: Tensor, heads: int, kept: list[Tensor], dout: Tensor, dmean: Tensor | None
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Of x, of weight and bias, and of the scores of all heads. dmean: of their mean attention (n, L, L)."""
    count, length, width = x.shape
    qkv, a, dropped, mixed = kept
    q, k, v = qkv.view(count * heads, -1, length).chunk(3, 1)
    dmixed = dout.view_as(x).to(x.dtype).mT.reshape(count * heads, -1, length)
    # Σ_j a_j da_j, with what was dropped: over a head's features, Σ mixed · dmixed
    along = (mixed * dmixed).sum(1)[:, :, None]
    dscore = torch.bmm(dmixed.mT, v).mul_(dropped)
    if dmean is not None:
        beside = (a.view(count, heads, length, length) * (dmean / heads)[:, None]).view_as(a)
        along += beside.sum(-1, keepdim=True)
        dscore += beside
    dscore.addcmul_(a, along, value=-1)
    dqkv = torch.cat([torch.bmm(k, dscore.mT), torch.bmm(q, dscore), torch.bmm(dmixed, dropped)], 1)
    flat = dqkv.view(count, 3 * width, length).mT.reshape(-1, 3 * width)
    low = flat.to(turned.dtype)
    dweight = _weight_gradient(low, x.flatten(0, 1).to(turned.dtype))
    dx = _product(low, turned, None).to(x.dtype).view_as(x)
    return dx, [dweight, flat.sum(0)], dscore.view(count, heads, length, length)


def _hidden_forth(x: Tensor, weight: Tensor, bias: Tensor, hashed: _Hash, start: int) -> tuple[Tensor, list[Tensor]]:
    """See `_Hidden`: of sequences from `start` on, and what `_hidden_back` needs."""
    hidden = _product(x.flatten(0, 1).to(weight.dtype), weight, bias).relu_()
    if hashed is not None:
        hidden = _kept(hidden, hashed, start * x.shape[1] * len(weight)).mul_(hidden)
    return hidden, [hidden]


def _hidden_back(x: Tensor, turned: Tensor, kept: list[Tensor], dout: Tensor) -> tuple[Tensor, list[Tensor]]:
    # zero are the elements that the ReLU cut off and those that were dropped
    dhidden = torch.ops.aten.threshold_backward(dout, kept[0], 0)
    dweight = _weight_gradient(dhidden, x.flatten(0, 1).to(turned.dtype))
    return _product(dhidden, turned, None).to(x.dtype).view_as(x), [dweight, dhidden.sum(0, dtype=x.dtype)]


def _close_forth(
    x: Tensor, wide: Tensor, parameters: list[Tensor], eps: float, hashed: _Hash, start: int
) -> tuple[Tensor, list[Tensor]]:
    """LN(x + dropout(W wide + b)), and what `_close_back` needs. parameters: W, b, γ, β."""
    weight, bias, gamma, beta = parameters
    _, length, width = x.shape
    given = wide.reshape(-1, weight.shape[1]).to(weight.dtype)
    update = _product(given, weight, bias)
    kept = update
    if hashed is not None:
        kept = _kept(update, hashed, start * length * width)
        update.mul_(kept)
    total = x + update.view_as(x)
    y, mean, rstd = torch.native_layer_norm(total, [width], gamma, beta, eps)
    return y, [given, kept, total, mean, rstd]


def _close_back(
    dout: Tensor, turned: Tensor, gamma: Tensor, beta: Tensor, kept: list[Tensor], drops: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Of x, of `wide`, and of the parameters."""
    given, stays, total, mean, rstd = kept
    dtotal, dgamma, dbeta = torch.ops.aten.native_layer_norm_backward(
        dout, total, [total.shape[-1]], mean, rstd, gamma, beta, [True, True, True]
    )
    dupdate = dtotal.flatten(0, 1)
    if drops:
        dupdate = dupdate * stays
    low = dupdate.to(turned.dtype)
    gradients = [_weight_gradient(low, given), dupdate.sum(0), dgamma, dbeta]
    return dtotal, _product(low, turned, None), gradients


# Blocks of sequences --------------------------------------------------------------------------------------------------


class Heads:
    """dropout(softmax(QKᵀ/√d + exponent)) V of all heads of one run: (n, L, W) → (n, L, W).

    Queries, keys and values are (n, heads, 3, d, L): products with a side of d elements are several times quicker when
    that side comes first.
    """

    def __init__(self, weight: Tensor, bias: Tensor, heads: int, drop: Drop, dtype: torch.dtype) -> None:
        self.heads, self.hashed, self.width = heads, drop.hashed, weight.shape[1]
        self.scales = weight.new_tensor([math.sqrt(heads / self.width), 1.0, drop.inflate])[:, None, None, None]
        both = torch.cat([weight, bias[:, None]], 1).view(3, heads, -1, self.width + 1) * self.scales
        both = both.transpose(0, 1).reshape(3 * self.width, -1).to(dtype)
        self.weight, self.bias = both[:, :-1].contiguous(), both[:, -1:].contiguous()
        self.turned = self.weight.t().contiguous()

    def elements(self, length: int) -> int:
        """Of what is wide, for each sequence."""
        return self.heads * length**2

    def forward(self, x: Tensor, start: int, exponent: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        found: Any = scripted(_heads_forth)(x, self.weight, self.bias, self.heads, self.hashed, start, exponent)
        return found

    def backward(self, x: Tensor, kept: list[Tensor], dout: Tensor, dmean: Tensor | None = None) -> Any:
        return scripted(_heads_back)(x, self.turned, self.heads, kept, dout, dmean)

    def gradients(self, dweight: Tensor, dbias: Tensor) -> Sequence[Tensor]:
        """Those of weight and bias, as the layer has them."""
        both = torch.cat([dweight, dbias[:, None]], 1).view(self.heads, 3, -1, self.width + 1).transpose(0, 1)
        both = (both * self.scales).reshape(3 * self.width, -1)
        return both[:, :-1], both[:, -1]


class _Hidden:
    """dropout(ReLU(W x + b)) of one run: (n, L, W) → (n, L, wide)."""

    def __init__(self, weight: Tensor, bias: Tensor, drop: Drop, dtype: torch.dtype) -> None:
        self.hashed, self.inflate = drop.hashed, drop.inflate
        self.weight, self.bias = ((part * drop.inflate).to(dtype) for part in (weight, bias))
        self.turned = self.weight.t().contiguous()

    def elements(self, length: int) -> int:
        return length * len(self.weight)

    def forward(self, x: Tensor, start: int) -> tuple[Tensor, list[Tensor]]:
        found: Any = scripted(_hidden_forth)(x, self.weight, self.bias, self.hashed, start)
        return found

    def backward(self, x: Tensor, kept: list[Tensor], dout: Tensor) -> Any:
        return scripted(_hidden_back)(x, self.turned, kept, dout)

    def gradients(self, dweight: Tensor, dbias: Tensor) -> Sequence[Tensor]:
        return dweight * self.inflate, dbias * self.inflate


def each_block(count: int, elements: int, work: Callable[[slice], T]) -> list[T]:
    """What is made of each block of sequences, of so many elements each."""
    ends = accumulate(block_sizes(count, BLOCK // elements), initial=0)
    return all_in_threads(work, [slice(*pair) for pair in pairwise(ends)])


def sums(parts: Iterable[Sequence[Tensor]]) -> list[Tensor]:
    """Of what comes of each block, in their order."""
    return [torch.stack(own).sum(0) for own in zip(*parts, strict=True)]


class _Half(torch.autograd.Function):
    """LN(x + dropout(W wide(x) + b)) of one run: (N, L, width), of wide = `Heads` or `_Hidden`.

    parameters: two for `wide`, then W, b, γ and β.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, make: Callable[..., Heads | _Hidden], drop: Drop, eps: float, *parameters: Tensor
    ) -> Tensor:
        wide, out = make(*parameters[:2]), torch.empty_like(x)
        own = [*((part * drop.inflate).to(wide.weight.dtype) for part in parameters[2:4]), *parameters[4:]]
        close = scripted(_close_forth)

        def forth(rows: slice) -> tuple[slice, list[Tensor], list[Tensor]]:
            made, of_wide = wide.forward(x[rows], rows.start)
            out[rows], kept = close(x[rows], made, own, eps, drop.hashed, rows.start)
            return rows, of_wide, kept

        ctx.save_for_backward(x, own[0].t().contiguous(), *parameters[4:])
        ctx.wide, ctx.drop, ctx.blocks = wide, drop, each_block(len(x), wide.elements(x.shape[1]), forth)
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        x, turned, gamma, beta = ctx.saved_tensors
        dx, drop, blocks, close = torch.empty_like(x), ctx.drop, ctx.blocks, scripted(_close_back)

        def back(number: int) -> Sequence[Tensor]:
            (rows, of_wide, kept), blocks[number] = blocks[number], None  # whose memory is free behind this
            dtotal, dwide, of_last = close(dout[rows], turned, gamma, beta, kept, drop.hashed is not None)
            further, of_parameters, *_ = ctx.wide.backward(x[rows], of_wide, dwide)
            torch.add(dtotal, further, out=dx[rows])
            return *of_parameters, *of_last

        *first, dweight, dbias, dgamma, dbeta = sums(all_in_threads(back, range(len(blocks))))
        last = (dweight * drop.inflate, dbias * drop.inflate, dgamma, dbeta)
        return dx, None, None, None, *ctx.wide.gradients(*first), *last


def _half(
    x: Tensor, wide: Callable[..., Any], inner: Dropout, outer: Dropout, parts: Sequence[Any], eps: float
) -> Tensor:
    """LN(x + dropout(W wide(x) + b)) for each run. parts: the layer of `wide`, the one behind it, and the norm."""
    dtype = product_dtype(x)
    parameters = [parameter for part in parts for parameter in (part.weight, part.bias)]
    with full_precision(x):
        runs = [
            _Half.apply(
                at_least_float32(own), partial(wide, drop=Drop(inner, run), dtype=dtype), Drop(outer, run), eps, *of_run
            )
            for run, (own, *of_run) in enumerate(zip(*map(apart, (x, *parameters)), strict=True))
        ]
        return together(runs)


def attention(
    x: Tensor, qkv: Linear, project: Linear, norm: LayerNorm, heads: int, weights: Dropout, out: Dropout
) -> Tensor:
    """See `layers.attention`."""
    return _half(x, partial(Heads, heads=heads), weights, out, (qkv, project, norm), norm.eps)


def feed_forward(x: Tensor, up: Linear, down: Linear, norm: LayerNorm, hidden: Dropout, out: Dropout) -> Tensor:
    """See `layers.feed_forward`."""
    return _half(x, _Hidden, hidden, out, (up, down, norm), norm.eps)
