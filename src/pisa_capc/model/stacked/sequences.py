"""The sublayers of a Transformer, in training on a CPU, some sequences at a time.

A block of sequences goes through all of them while it is in the cache of a core, and back again. Dropout only sets
zeros here: what makes up for it, 1/(1 − p), is in the weights before it, where there is least to multiply. The softmax
is one of powers of two, as in `frozen.py`. Each block is one thread's, and what comes of the blocks is summed in their
order: no bit depends on how many threads there are. What a thread does with a block are scripts: it would wait for the
interpreter between operations.

In mixed precision the products with weights are taken in bfloat16. Attention is in float32 all the same: its products
are so small that they would gain little, and what is between them would take longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from pisa_capc.core.threads import all_in_threads, block_sizes
from pisa_capc.model.stacked.noise import fill_kept, mask_tables, own_site_key
from pisa_capc.model.stacked.precision import at_least_float32, full_precision, product_dtype, quick_float32
from pisa_capc.model.stacked.runs import join_runs, split_runs
from pisa_capc.model.stacked.scripting import scripted

if TYPE_CHECKING:
    from pisa_capc.model.stacked.layers import Dropout, LayerNorm, Sublayer

BLOCK = 2**19  # elements of what is wide that are worked on together

S = TypeVar("S")
T = TypeVar("T")
# As TorchScript writes them:
Number = Union[int, float, complex]  # noqa: UP007
_Tables = Optional[list[Tensor]]  # noqa: UP045  (of a dropout's mask)
# Where sequences stand: the number of the first, and, where some are left out, the numbers of all from there on.
_Where = tuple[int, Optional[Tensor]]  # noqa: UP045


class RunDropoutMask:
    """Dropout of one run at one place, where it meets so many elements: what `Dropout` does, in pieces."""

    def __init__(self, dropout: Dropout, run: int, elements: int) -> None:
        probability = dropout.probability if dropout.training else 0.0
        self.inflate = 1 / (1 - probability)
        self.tables: _Tables = None
        if probability:
            assert dropout.key is not None
            self.tables = mask_tables(own_site_key(int(dropout.key[run]), dropout.site), probability, elements)


# What scripts are made of ---------------------------------------------------------------------------------------------


def _kept(like: Tensor, count: int, tables: list[Tensor], where: _Where) -> Tensor:
    """1 where an element stays, else 0, in the shape of `like`, which is of so many sequences."""
    kept = torch.empty_like(like)
    own, (first, which) = kept.view(count, -1), where
    if which is None:
        fill_kept(kept.view(-1), tables, first * own.shape[1])
    else:
        all_between = like.new_empty([int(which[-1]) + 1, own.shape[1]])
        fill_kept(all_between.view(-1), tables, first * own.shape[1])
        torch.index_select(all_between, 0, which, out=own)
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
    product = torch.mm(g.t(), x)
    return product.float() if product.dtype == torch.bfloat16 else product


def _powers(queries: Tensor, keys: Tensor, heads: int, exponent: Tensor | None) -> tuple[Tensor, Tensor]:
    """Powers of two (n · heads, L, L) and one over their sums (n · heads, L, 1): a softmax is their product.

    exponent: see `_heads_forth`.
    """
    scores = torch.bmm(queries.mT, keys)
    if exponent is not None:
        shape = [len(exponent), heads, exponent.shape[1], exponent.shape[2]]
        scores.view(shape).add_(exponent[:, None], alpha=1.4426950408889634)
    powers = torch.exp2(scores)
    sums = powers.sum(-1, keepdim=True)
    least, most = torch.aminmax(sums)
    if bool(least > 2.0**-60) and bool(most < 2.0**60):  # none is lost or infinite in float32, nor are gradients
        return powers, sums.reciprocal_()
    return torch.softmax(scores * 0.6931471805599453, -1), torch.ones_like(sums)


def _heads_forth(
    x: Tensor, weight: Tensor, bias: Tensor, heads: int, tables: _Tables, where: _Where, exponent: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    """See `Heads`: of some sequences, and what `_heads_back` needs. exponent: (n, L, L)."""
    count, length, width = x.shape
    rows = _product(weight, x.flatten(0, 1).to(weight.dtype), None).view(-1, count, length)
    qkv = torch.add(rows.transpose(0, 1), bias[:, None], out=x.new_empty([count, len(weight), length]))
    q, k, v = qkv.view(count * heads, -1, length).chunk(3, 1)
    powers, shares = _powers(q, k, heads, exponent)
    dropped = powers
    if tables is not None:
        dropped = _kept(powers, count, tables, where).mul_(powers)
        powers.neg_().add_(dropped, alpha=2)  # negative where it was dropped: both in one
    mixed = torch.bmm(v, dropped.mT).mul_(shares.mT).view(count, width, length).mT.reshape(-1, width)
    return mixed, [qkv, powers, shares, mixed]


def _heads_back(
    x: Tensor, weight: Tensor, heads: int, kept: list[Tensor], dout: Tensor, dmean: Tensor | None
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Of x, of weight and bias, and of the scores of all heads. dmean: of their mean attention (n, L, L)."""
    count, length, width = x.shape
    qkv, signed, shares, mixed = kept
    q, k, v = qkv.view(count * heads, -1, length).chunk(3, 1)
    dropped, powers = signed.relu(), signed.abs()
    dout = dout.to(x.dtype).reshape(mixed.shape)
    dmixed = dout.view_as(x).mT.reshape(count * heads, -1, length) * shares.mT
    # Σ_j a_j da_j, with what was dropped: over a head's features, Σ mixed · dmixed
    along = (mixed * dout).view(count, length, heads, -1).sum(-1).mT.reshape(count * heads, length, 1)
    dscore = torch.bmm(dmixed.mT, v).mul_(dropped)
    if dmean is not None:
        shape = [count, heads, length, length]
        beside = (powers.view(shape) * (dmean / heads)[:, None]).view_as(powers).mul_(shares)
        along += beside.sum(-1, keepdim=True)
        dscore += beside
    dscore.addcmul_(powers, along.mul_(shares), value=-1)
    parts = [torch.bmm(k, dscore.mT), torch.bmm(q, dscore), torch.bmm(dmixed, dropped)]
    parts = [part.view(count, heads, -1, length).permute(1, 2, 0, 3) for part in parts]
    rows = torch.stack(parts, 1).view(3 * width, -1)
    low = rows.to(weight.dtype)
    dweight = torch.mm(low, x.flatten(0, 1).to(weight.dtype)).to(x.dtype)
    dx = torch.mm(low.t(), weight).to(x.dtype).view_as(x)
    return dx, [dweight, rows.sum(1)], dscore.view(count, heads, length, length)


def _hidden_forth(
    x: Tensor, weight: Tensor, bias: Tensor, tables: _Tables, where: _Where
) -> tuple[Tensor, list[Tensor]]:
    """See `_Hidden`: of some sequences, and what `_hidden_back` needs."""
    hidden = _product(x.flatten(0, 1).to(weight.dtype), weight, bias).relu_()
    if tables is not None:
        hidden = _kept(hidden, len(x), tables, where).mul_(hidden)
    return hidden, [hidden]


def _hidden_back(x: Tensor, turned: Tensor, kept: list[Tensor], dout: Tensor) -> tuple[Tensor, list[Tensor]]:
    # zero are the elements that the ReLU cut off and those that were dropped
    dhidden = torch.ops.aten.threshold_backward(dout, kept[0], 0)
    dweight = _weight_gradient(dhidden, x.flatten(0, 1).to(turned.dtype))
    return _product(dhidden, turned, None).to(x.dtype).view_as(x), [dweight, dhidden.sum(0, dtype=x.dtype)]


def _close_forth(
    x: Tensor, wide: Tensor, parameters: list[Tensor], eps: float, tables: _Tables, where: _Where
) -> tuple[Tensor, list[Tensor]]:
    """LN(x + dropout(W wide + b)), and what `_close_back` needs. parameters: W, b, γ, β."""
    weight, bias, gamma, beta = parameters
    given = wide.to(weight.dtype)
    update = _product(given, weight, bias)
    kept = update
    if tables is not None:
        kept = _kept(update, len(x), tables, where)
        update.mul_(kept)
    total = x + update.view_as(x)
    y, mean, rstd = torch.native_layer_norm(total, [x.shape[-1]], gamma, beta, eps)
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


def _end_forth(x: Tensor, gamma: Tensor, beta: Tensor, eps: float, tokens: int) -> tuple[Tensor, list[Tensor]]:
    """The norm behind all sublayers, and its mean over each of `tokens` equal spans where that is not 0."""
    y, mean, rstd = torch.native_layer_norm(x, [x.shape[-1]], gamma, beta, eps)
    if tokens:
        y = y.unflatten(1, [tokens, -1]).mean(2)
    return y, [x, mean, rstd]


def _end_back(dout: Tensor, gamma: Tensor, beta: Tensor, kept: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    x, mean, rstd = kept
    span = x.shape[1] // dout.shape[1]
    dx, dgamma, dbeta = torch.ops.aten.native_layer_norm_backward(
        (dout / span).repeat_interleave(span, 1), x, [x.shape[-1]], mean, rstd, gamma, beta, [True, True, True]
    )
    return dx, [dgamma, dbeta]


# Blocks of sequences --------------------------------------------------------------------------------------------------


class Heads:
    """dropout(softmax(QKᵀ/√d + exponent)) V of all heads of one run: (n, L, W) → rows (n · L, W).

    Queries, keys and values are (n, heads, 3, d, L): products with a side of d elements are several times quicker when
    that side comes first.
    """

    def __init__(self, weight: Tensor, bias: Tensor, heads: int, drop: RunDropoutMask, dtype: torch.dtype) -> None:
        self.heads, self.tables, self.width = heads, drop.tables, weight.shape[1]
        root, two = math.sqrt(heads / self.width), math.log(2)
        both = torch.cat([weight, bias[:, None]], 1).view(3, heads, -1, self.width + 1)

        def scaled(*factors: float) -> tuple[Tensor, Tensor]:
            """The factors, and both with them, one head after the other."""
            scales = weight.new_tensor(factors)[:, None, None, None]
            return scales, (both * scales).transpose(0, 1).reshape(3 * self.width, -1)

        _, rows = scaled(root / two, 1.0, drop.inflate)
        self.weight, self.bias = rows[:, :-1].to(dtype).contiguous(), rows[:, -1].contiguous()
        # `_heads_back` takes the gradient of scores to base e: on the way back keys have the factor log 2.
        self.scales, rows = scaled(root, two, drop.inflate)
        self.back = rows[:, :-1].to(dtype).contiguous()

    def elements(self, length: int) -> int:
        """Of what is wide, for each sequence."""
        return self.heads * length**2

    def forward(self, x: Tensor, where: _Where, exponent: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        found: Any = scripted(_heads_forth)(x, self.weight, self.bias, self.heads, self.tables, where, exponent)
        return found

    def backward(self, x: Tensor, kept: list[Tensor], dout: Tensor, dmean: Tensor | None = None) -> Any:
        return scripted(_heads_back)(x, self.back, self.heads, kept, dout, dmean)

    @staticmethod
    def weights(kept: list[Tensor]) -> Tensor:
        """softmax(QKᵀ/√d + exponent): (n · heads, L, L)."""
        return kept[1].abs() * kept[2]

    def gradients(self, dweight: Tensor, dbias: Tensor) -> Sequence[Tensor]:
        """Those of weight and bias, as the layer has them."""
        both = torch.cat([dweight, dbias[:, None]], 1).view(self.heads, 3, -1, self.width + 1).transpose(0, 1)
        both = (both * self.scales).reshape(3 * self.width, -1)
        return both[:, :-1], both[:, -1]


class _Hidden:
    """dropout(ReLU(W x + b)) of one run: (n, L, W) → rows (n · L, wide)."""

    def __init__(self, weight: Tensor, bias: Tensor, drop: RunDropoutMask, dtype: torch.dtype) -> None:
        self.tables, self.inflate = drop.tables, drop.inflate
        self.weight, self.bias = ((part * drop.inflate).to(dtype) for part in (weight, bias))
        self.turned = self.weight.t().contiguous()

    def elements(self, length: int) -> int:
        return length * len(self.weight)

    def forward(self, x: Tensor, where: _Where) -> tuple[Tensor, list[Tensor]]:
        found: Any = scripted(_hidden_forth)(x, self.weight, self.bias, self.tables, where)
        return found

    def backward(self, x: Tensor, kept: list[Tensor], dout: Tensor) -> Any:
        return scripted(_hidden_back)(x, self.turned, kept, dout)

    def gradients(self, dweight: Tensor, dbias: Tensor) -> Sequence[Tensor]:
        return dweight * self.inflate, dbias * self.inflate


class _Sublayer:
    """LN(x + dropout(W wide(x) + b)) of one run: (n, L, width), of wide = `Heads` or `_Hidden`.

    parameters: two for `wide`, then W, b, γ and β.
    """

    def __init__(
        self, make: Callable[..., Heads | _Hidden], drop: RunDropoutMask, eps: float, parameters: Sequence[Tensor]
    ) -> None:
        self.wide, self.drop, self.eps = make(*parameters[:2]), drop, eps
        weight, bias = ((part * drop.inflate).to(self.wide.weight.dtype) for part in parameters[2:4])
        self.turned, self.affine = weight.t().contiguous(), parameters[4:]
        self.last = [weight, bias, *self.affine]

    def elements(self, length: int) -> int:
        return self.wide.elements(length)

    def forward(self, x: Tensor, where: _Where) -> tuple[Tensor, Any]:
        made, of_wide = self.wide.forward(x, where)
        y, kept = scripted(_close_forth)(x, made, self.last, self.eps, self.drop.tables, where)
        return y, (x, of_wide, kept)

    def backward(self, kept: Any, dout: Tensor) -> tuple[Tensor, list[Tensor]]:
        x, of_wide, of_last = kept
        drops = self.drop.tables is not None
        dtotal, dwide, last = scripted(_close_back)(dout, self.turned, *self.affine, of_last, drops)
        dx, first, *_ = self.wide.backward(x, of_wide, dwide)
        return dtotal.add_(dx), [*first, *last]

    def gradients(self, found: Sequence[Tensor]) -> Sequence[Tensor]:
        """Those of the parameters, of what `backward` found in all blocks."""
        last = (part * self.drop.inflate for part in found[2:4])
        return *self.wide.gradients(*found[:2]), *last, *found[4:]


class _End:
    """The norm behind all sublayers, of one run, and its mean over each of `tokens` equal spans where that is not 0."""

    def __init__(self, tokens: int, eps: float, parameters: Sequence[Tensor]) -> None:
        self.tokens, self.eps, self.affine = tokens, eps, parameters

    def elements(self, length: int) -> int:
        return length * len(self.affine[0])

    def forward(self, x: Tensor, where: _Where) -> tuple[Tensor, Any]:
        found: Any = scripted(_end_forth)(x, *self.affine, self.eps, self.tokens)
        return found

    def backward(self, kept: Any, dout: Tensor) -> Any:
        return scripted(_end_back)(dout, *self.affine, kept)

    def gradients(self, found: Sequence[Tensor]) -> Sequence[Tensor]:
        return found


def sequence_blocks(count: int, elements: int, present: Tensor | None = None) -> list[tuple[slice | Tensor, _Where]]:
    """Which of `count` sequences are worked on together, and where these stand; they have so many elements each.

    present: (count,), false for those that are left out.
    """
    numbers = torch.arange(count) if present is None else present.nonzero()[:, 0]
    blocks: list[tuple[slice | Tensor, _Where]] = []
    for own in numbers.split(block_sizes(len(numbers), BLOCK // elements)):
        first, last = int(own[0]), int(own[-1])
        whole = last - first + 1 == len(own)
        blocks.append((slice(first, last + 1), (first, None)) if whole else (own, (first, own - first)))
    return blocks


def each(work: Callable[[S], T], blocks: Sequence[S]) -> list[T]:
    """What is made of each, by all threads."""
    with quick_float32():
        return all_in_threads(work, blocks)


def sums(parts: Iterable[Sequence[Tensor]]) -> list[Tensor]:
    """Of what comes of each block, in their order."""
    return [torch.stack(own).sum(0) for own in zip(*parts, strict=True)]


class _Chain(torch.autograd.Function):
    """One link after the other, of one run: (N, L, width) → the same, or (N, tokens, width) where the last has some.

    present: (N,), false for sequences that are left out, of which the result is zero. tokens: of the last link, or 0.
    make: the links of their parameters, and how many parameters each has.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, present: Tensor | None, make: Sequence[tuple[Callable[..., _Sublayer | _End], int]],
        tokens: int, *parameters: Tensor,
    ) -> Tensor:  # fmt: skip
        rest = iter(parameters)
        links = [link(list(islice(rest, count))) for link, count in make]
        out = x.new_zeros(len(x), tokens or x.shape[1], x.shape[2])

        def forth(block: tuple[slice | Tensor, _Where]) -> tuple[slice | Tensor, list[Any]]:
            rows, where = block
            y, kept = x[rows], []
            for link in links:
                y, own = link.forward(y, where)
                kept.append(own)
            out[rows] = y
            return rows, kept

        ctx.save_for_backward(x, *parameters)  # blocks have what is needed of them: PyTorch sees whether they changed
        ctx.links, ctx.sizes = links, [count for _, count in make]
        most = max(link.elements(x.shape[1]) for link in links)
        ctx.blocks = each(forth, sequence_blocks(len(x), most, present))
        return out

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        links, blocks, (x, *parameters) = ctx.links, ctx.blocks, ctx.saved_tensors
        dx = torch.zeros_like(x)
        if not blocks:  # all sequences are left out
            return dx, None, None, None, *map(torch.zeros_like, parameters)

        def back(number: int) -> Sequence[Tensor]:
            (rows, kept), blocks[number] = blocks[number], None  # whose memory is free behind this
            d, found = dout[rows], []
            for link in reversed(links):
                d, own = link.backward(kept.pop(), d)
                found.append(own)
            dx[rows] = d
            return [gradient for own in reversed(found) for gradient in own]

        # The last block first: of that one some is still in the cache.
        found = iter(sums(each(back, range(len(blocks))[::-1])[::-1]))
        own = [link.gradients(list(islice(found, size))) for link, size in zip(links, ctx.sizes, strict=True)]
        return dx, None, None, None, *(gradient for gradients in own for gradient in gradients)


def sublayer_chain(
    x: Tensor,
    sublayers: Sequence[Sublayer],
    norm: LayerNorm | None = None,
    tokens: int = 0,
    present: Tensor | None = None,
) -> Tensor:
    """Sublayer after sublayer for each run, a norm behind them if there is one, and its mean over `tokens` equal spans.

    x: (R, N, L, width). present: (R, N), false for sequences of which the result does not matter; it is zero then.
    """
    dtype, (_, count, length, width) = product_dtype(x), x.shape
    layers: list[Any] = [layer for sublayer in sublayers for layer in (sublayer.first, sublayer.last, sublayer.norm)]
    layers += [norm] if norm is not None else []
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]

    def links(run: int) -> list[tuple[Callable[..., _Sublayer | _End], int]]:
        made: list[Any] = []
        for sublayer in sublayers:
            wide = count * length * (sublayer.heads * length or sublayer.first.weight.shape[1])
            inner, outer = (
                RunDropoutMask(sublayer.inner, run, wide),
                RunDropoutMask(sublayer.outer, run, count * length * width),
            )
            make = partial(Heads, heads=sublayer.heads) if sublayer.heads else partial(_Hidden)
            made.append((partial(_Sublayer, partial(make, drop=inner, dtype=dtype), outer, sublayer.norm.eps), 6))
        return [*made, (partial(_End, tokens, norm.eps), 2)] if norm is not None else made

    with full_precision(x):
        runs = [
            _Chain.apply(at_least_float32(own), None if present is None else present[run], links(run), tokens, *of_run)
            for run, (own, *of_run) in enumerate(zip(*map(split_runs, (x, *parameters)), strict=True))
        ]
        return join_runs(runs)
