"""Layers for R models at once.

The models of the paper are so small that a GPU spends its time on launches, not on arithmetic. Every layer here holds
the parameters of R independent models along a leading run axis and computes all of them in one go; R = 1 is an
ordinary model. Activations are channels-last: (R, N, T, C).
"""

from pisa_capc.model.stacked.compiling import Fusable, compiled, load_compiler
from pisa_capc.model.stacked.copying import check_run_axis, copy_run, copy_runs, stack, unstack
from pisa_capc.model.stacked.counts import Counts
from pisa_capc.model.stacked.layers import (
    GRU,
    BatchNorm,
    ConvChain,
    ConvNorm,
    Convolution,
    Dropout,
    LayerNorm,
    Linear,
    Sublayer,
    adaptive_tokens,
    conv_chain,
    conv_norm,
    draws,
    in_blocks,
    in_kernels,
    is_frozen,
    is_quick,
    sublayer_chain,
    train_in_blocks,
)
from pisa_capc.model.stacked.ordinary import PerRun, bind_noise
from pisa_capc.model.stacked.precision import at_least_float32, full_precision

__all__ = [
    "GRU",
    "BatchNorm",
    "ConvChain",
    "ConvNorm",
    "Convolution",
    "Counts",
    "Dropout",
    "Fusable",
    "LayerNorm",
    "Linear",
    "PerRun",
    "Sublayer",
    "adaptive_tokens",
    "at_least_float32",
    "bind_noise",
    "check_run_axis",
    "compiled",
    "conv_chain",
    "conv_norm",
    "copy_run",
    "copy_runs",
    "draws",
    "full_precision",
    "in_blocks",
    "in_kernels",
    "is_frozen",
    "is_quick",
    "load_compiler",
    "stack",
    "sublayer_chain",
    "train_in_blocks",
    "unstack",
]
