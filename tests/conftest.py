"""Where there is no GPU, Triton's interpreter runs the kernels; it must be asked for before Triton is imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
