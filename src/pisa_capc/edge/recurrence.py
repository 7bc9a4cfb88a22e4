"""The recurrent layer in the two ways that the file holds, of which it takes the quicker one for what it is given.

    r = σ(W_r x + U_r h + b_r),  z = σ(W_z x + U_z h + b_z)
    n = tanh(W_n x + b_n + r (U_n h + c_n)),  h' = n + z (h − n)

A runtime's own GRU goes through the gates of one sequence after the other: every sequence takes it as long. In plain
products all sequences take a step at once, each in less time, but every operation of a step costs something before it
begins. So few sequences go through the GRU, and many step by step. Directions have products of their own, since in one,
with a matrix that is half zeros, they would be twice as many; and so have gates, since to cut one result in three takes
longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pisa_capc.stacked import GRU, Counts, adaptive_tokens

if TYPE_CHECKING:
    import onnx

DOMAIN, NAME = "pisa_capc", "Recurrence"
MANY = 48  # sequences from which the steps are quicker: the antennas of twelve frames

# In ONNX's own text. d: direction, 0 forth and 1 back; g: state behind the step.
STEP = """
    from_r{d} = Gemm <transB = 1> (x{d}, Wr{d}, br{d})
    from_z{d} = Gemm <transB = 1> (x{d}, Wz{d}, bz{d})
    from_n{d} = Gemm <transB = 1> (x{d}, Wn{d}, bn{d})
    to_r{d} = Gemm <transB = 1> (h{d}, Ur{d}, from_r{d})
    to_z{d} = Gemm <transB = 1> (h{d}, Uz{d}, from_z{d})
    kept{d} = Gemm <transB = 1> (h{d}, Un{d}, cn{d})
    r{d} = Sigmoid (to_r{d})
    z{d} = Sigmoid (to_z{d})
    reset{d} = Mul (r{d}, kept{d})
    to_n{d} = Add (from_n{d}, reset{d})
    n{d} = Tanh (to_n{d})
    away{d} = Sub (h{d}, n{d})
    back{d} = Mul (z{d}, away{d})
    g{d} = Add (n{d}, back{d})
    y{d} = Identity (g{d})
"""
FUNCTION = """
<domain: "{domain}", opset_import: ["": {opset}]>
{name} <hidden, spans> (x, weight, recurrence, bias) => (means) {{
    spans = Constant <value_ints: ints = @spans> ()
    within = Constant <value_ints = [1]> ()
    flat = Constant <value_ints = [-1]> ()
    least = Constant <value_ints = [{many}]> ()
    count = Shape <start = 1, end = 2> (x)
    are_many = GreaterOrEqual (count, least)
    means = If (are_many) <
        else_branch = few () => (float[tokens, values] of_few) {{
            y = GRU <hidden_size: int = @hidden, direction = "bidirectional", linear_before_reset = 1>
                (x, weight, recurrence, bias)
            y_spans = Reshape (y, spans)
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
            end0, end1, all0, all1 = Scan <
                num_scan_inputs = 2, scan_input_directions = [0, 1], scan_output_directions = [0, 1],
                body = step (float[n, hidden] h0, float[n, hidden] h1, float[n, inputs] x0, float[n, inputs] x1)
                    => (float[n, hidden] g0, float[n, hidden] g1, float[n, hidden] y0, float[n, hidden] y1)
                    {{ {steps} }}
            > (start, start, x, x)
            spans0 = Reshape (all0, spans)
            spans1 = Reshape (all1, spans)
            means0 = ReduceMean <keepdims = 0> (spans0, within)
            means1 = ReduceMean <keepdims = 0> (spans1, within)
            of_many = Concat <axis = 1> (means0, means1)
        }}
    >
}}
"""


def function(opset: int) -> onnx.FunctionProto:
    """The layer as a function that a file defines once and calls for each of its recurrent layers.

    x: (T, N, inputs). weight, recurrence, bias: as a GRU of ONNX has them. spans: tokens, steps of each, −1.
    Returns the means over the steps of each, (tokens, 2·N·hidden): directions, in each the sequences, of each the
    features.
    """
    import onnx.parser

    steps = "".join(STEP.format(d=direction) for direction in range(2))
    text = FUNCTION.format(domain=DOMAIN, name=NAME, opset=opset, many=MANY, steps=steps)
    return onnx.parser.parse_function(text)


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
        means = torch.onnx.ops.symbolic(
            f"{DOMAIN}::{NAME}",
            (x.squeeze(0).transpose(0, 1), self.weight, self.recurrence, self.bias),
            {"hidden": self.hidden, "spans": [tokens, steps // tokens, -1]},
            dtype=x.dtype,
            shape=(tokens, 2 * count * self.hidden),
            version=1,
        )
        return means.view(tokens, 2, count, self.hidden).permute(2, 0, 1, 3).flatten(-2)[None]
