"""The stacked layers on a GPU: convolutions with batch normalisation, the GRU, both halves of a Transformer layer, the
propagation over the array, and what is between them and the parameters, each a few kernels in all.

What makes them quick is what they do not do: no launch per run, no pass over the activations that another kernel
could have done, and nothing kept for the backward pass but what the next layer keeps anyway.
"""

from importlib.util import find_spec

AVAILABLE = find_spec("triton") is not None
if AVAILABLE:
    from pisa_capc.model.stacked.fused.adamw import FlatAdamW
    from pisa_capc.model.stacked.fused.convolution import conv_norm
    from pisa_capc.model.stacked.fused.recurrence import gru
    from pisa_capc.model.stacked.fused.streams import distinct_streams
    from pisa_capc.model.stacked.fused.topology import topology
    from pisa_capc.model.stacked.fused.transformer import attention, feed_forward

__all__ = ["AVAILABLE", "FlatAdamW", "attention", "conv_norm", "distinct_streams", "feed_forward", "gru", "topology"]
