"""The recurrent layer in the two forms that the file holds; it takes the quicker one for its input.

    r = σ(W_r x + U_r h + b_r),  z = σ(W_z x + U_z h + b_z)
    n = tanh(W_n x + b_n + r (U_n h + c_n)),  h' = n + z (h − n)

A runtime's own GRU goes through the gates of one sequence after the other: every sequence takes it as long. In plain
products all sequences take a step at once, each in less time, but every operation costs something before it begins. So
few sequences go through the GRU, and many step by step: in passes of some steps, in which everything independent of the
previous step is one operation, and only the mean is kept. Directions have products of their own, since in one,
with a matrix that is half zeros, they would be twice as many; and so have gates, since to cut one result in three takes
longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from pisa_capc.model.stacked import GRU, Counts, adaptive_tokens

if TYPE_CHECKING:
    import onnx

DOMAIN, NAME = "pisa_capc", "Recurrence"
MANY = 48  # sequences from which the steps are quicker: the antennas of twelve frames
STEPS = 20  # of a pass, at most: what they take of the inputs fits into the cache

# In ONNX's own text. d: direction, 0 forth and 1 back. What inputs say to a gate: `for` all steps of a pass, in rows,
# `all` of them step by step, and `from` those of one step. s: state before a step, t and u behind it.
INPUTS = """
    for_r{d} = Gemm <transB = 1> (x{d}, Wr{d}, br{d})
    for_z{d} = Gemm <transB = 1> (x{d}, Wz{d}, bz{d})
    for_n{d} = Gemm <transB = 1> (x{d}, Wn{d}, bn{d})
    all_r{d} = Reshape (for_r{d}, by_step)
    all_z{d} = Reshape (for_z{d}, by_step)
    all_n{d} = Reshape (for_n{d}, by_step)
"""
STEP = """
    to_r{d} = Gemm <transB = 1> (s{d}, Ur{d}, from_r{d})
    to_z{d} = Gemm <transB = 1> (s{d}, Uz{d}, from_z{d})
    kept{d} = Gemm <transB = 1> (s{d}, Un{d}, cn{d})
    r{d} = Sigmoid (to_r{d})
    z{d} = Sigmoid (to_z{d})
    reset{d} = Mul (r{d}, kept{d})
    to_n{d} = Add (from_n{d}, reset{d})
    n{d} = Tanh (to_n{d})
    away{d} = Sub (s{d}, n{d})
    back{d} = Mul (z{d}, away{d})
    t{d} = Add (n{d}, back{d})
    u{d} = Identity (t{d})
"""
FUNCTION = """
<domain: "{domain}", opset_import: ["": {opset}]>
{name} <hidden, steps, passes, chunks> (x, weight, recurrence, bias) => (means) {{
    within = Constant <value_ints = [1]> ()
    flat = Constant <value_ints = [-1]> ()
    least = Constant <value_ints = [{many}]> ()
    count = Shape <start = 1, end = 2> (x)
    are_many = GreaterOrEqual (count, least)
    means = If (are_many) <
        else_branch = few () => (float[tokens, values] of_few) {{
            y = GRU <hidden_size: int = @hidden, direction = "bidirectional", linear_before_reset = 1>
                (x, weight, recurrence, bias)
            steps = Constant <value_ints: ints = @steps> ()
            y_spans = Reshape (y, steps)
            of_few = ReduceMean <keepdims = 0> (y_spans, within)
        }},
        then_branch = many () => (float[tokens, values] of_many) {{
            W = Flatten <axis = 2> (weight)
            Wz0, Wr0, Wn0, Wz1, Wr1, Wn1 = Split <axis = 0, num_outputs = 6> (W)
            U = Flatten <axis = 2> (recurrence)
            Uz0, Ur0, Un0, Uz1, Ur1, Un1 = Split <axis = 0, num_outputs = 6> (U)
            b = Reshape (bias, flat)
            az0, ar0, bn0, cz0, cr0, cn0, az1, ar1, bn1, cz1, cr1, cn1 = Split <axis = 0, num_outputs = 12> (b)
            bz0 = Add (az0, cz0)
            br0 = Add (ar0, cr0)
            bz1 = Add (az1, cz1)
            br1 = Add (ar1, cr1)
            width = Shape <start = 2> (recurrence)
            size = Concat <axis = 0> (count, width)
            start = ConstantOfShape (size)
            inputs = Shape <start = 2> (x)
            chunks = Constant <value_ints: ints = @chunks> ()
            by_chunk = Concat <axis = 0> (chunks, inputs)
            x_chunks = Reshape (x, by_chunk)
            per_pass = Constant <value_ints = [{steps}]> ()
            by_step = Concat <axis = 0> (per_pass, flat, width)
            first = Constant <value_ints = [0]> ()
            end0, end1, all0, all1 = Scan <
                num_scan_inputs = 2, scan_input_directions = [0, 1], scan_output_directions = [0, 1],
                body = pass (float[n, hidden] h0, float[n, hidden] h1, float[m, inputs] x0, float[m, inputs] x1)
                    => (float[n, hidden] g0, float[n, hidden] g1, float[n, hidden] y0, float[n, hidden] y1) {{
                    {inputs}
                    g0, g1, states0, states1 = Scan <
                        num_scan_inputs = 6, scan_input_directions = [0, 0, 0, 1, 1, 1],
                        body = step (
                            float[n, hidden] s0, float[n, hidden] s1,
                            float[n, hidden] from_r0, float[n, hidden] from_z0, float[n, hidden] from_n0,
                            float[n, hidden] from_r1, float[n, hidden] from_z1, float[n, hidden] from_n1)
                            => (float[n, hidden] t0, float[n, hidden] t1, float[n, hidden] u0, float[n, hidden] u1)
                            {{ {step} }}
                    > (h0, h1, all_r0, all_z0, all_n0, all_r1, all_z1, all_n1)
                    y0 = ReduceMean <keepdims = 0> (states0, first)
                    y1 = ReduceMean <keepdims = 0> (states1, first)
                }}
            > (start, start, x_chunks, x_chunks)
            passes = Constant <value_ints: ints = @passes> ()
            spans0 = Reshape (all0, passes)
            spans1 = Reshape (all1, passes)
            means0 = ReduceMean <keepdims = 0> (spans0, within)
            means1 = ReduceMean <keepdims = 0> (spans1, within)
            of_many = Concat <axis = 1> (means0, means1)
        }}
    >
}}
"""


class Call(NamedTuple):
    """A call of the layer for the means over each of `tokens` spans of time."""

    length: int  # T
    tokens: int
    hidden: int

    @property
    def together(self) -> int:
        """Steps of a pass; a span is a whole number of passes."""
        span = self.length // self.tokens
        return max(steps for steps in range(1, STEPS + 1) if span % steps == 0)

    @property
    def name(self) -> str:
        return f"{NAME}{self.together}"

    def attributes(self) -> dict[str, Any]:
        """Besides the size of the state, shapes: of the steps of each token, of its passes, and of the chunks of x."""
        span, passes = self.length // self.tokens, self.length // self.together
        return {
            "hidden": self.hidden,
            "steps": [self.tokens, span, -1],
            "passes": [self.tokens, span // self.together, -1],
            "chunks": [passes, -1],
        }


def function(name: str, opset: int) -> onnx.FunctionProto:
    """The layer as a function that a file defines once and calls for each of its recurrent layers.

    x: (T, N, inputs). weight, recurrence, bias: as a GRU of ONNX has them. The attributes are those of a `Call`.
    Returns the means over the steps of each token, (tokens, 2·N·hidden): directions, in each the sequences, of each
    the features.
    """
    import onnx.parser

    inputs, step = ("".join(text.format(d=way) for way in range(2)) for text in (INPUTS, STEP))
    known = {"domain": DOMAIN, "name": name, "opset": opset, "many": MANY, "steps": name.removeprefix(NAME)}
    return onnx.parser.parse_function(FUNCTION.format(**known, inputs=inputs, step=step))


class Recurrent(nn.Module):
    """The recurrent layer as the file has it: gates in the order update, reset, new; time in front."""

    weight: Tensor
    recurrence: Tensor
    bias: Tensor

    def __init__(self, layer: GRU) -> None:
        super().__init__()
        self.hidden = layer.hidden

        def reordered(value: Tensor) -> Tensor:
            reset, update, new = value[0].detach().chunk(3, dim=1)
            return torch.cat([update, reset, new], dim=1)

        self.register_buffer("weight", reordered(layer.weight_input))
        self.register_buffer("recurrence", reordered(layer.weight_hidden))
        self.register_buffer("bias", torch.cat([reordered(layer.bias_input), reordered(layer.bias_hidden)], dim=1))

    def forward(self, x: Tensor, tokens: int | None = None, counts: Counts | None = None) -> Tensor:
        """As `GRU.forward`: (1, N, T, inputs) → (1, N, T, 2·hidden), or averaged over `tokens` spans of time."""
        _, count, steps, _ = x.shape
        if tokens is None or steps % tokens:
            y: Tensor = self(x, steps)
            return y if tokens is None else adaptive_tokens(y, tokens)
        call = Call(steps, tokens, self.hidden)
        means = torch.onnx.ops.symbolic(
            f"{DOMAIN}::{call.name}",
            (x.squeeze(0).transpose(0, 1), self.weight, self.recurrence, self.bias),
            call.attributes(),
            dtype=x.dtype,
            shape=(tokens, 2 * count * self.hidden),
            version=1,
        )
        return means.view(tokens, 2, count, self.hidden).permute(2, 0, 1, 3).flatten(-2)[None]
