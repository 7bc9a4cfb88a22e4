"""Temporal encoders f_id and f_ctx: one file each, one registry.

An encoder is built as `Encoder(streams, runs)` and called as `encoder(x, tokens)`: (R, N, T, 2·streams) to
(R, N, tokens, 32). The input's channels are the in-phase parts of all streams, then their quadrature parts. To add
one: a file here with a class under `@register("name")`, and its import below.
"""

from pisa_capc.encoders.registry import WIDTH, Encoder, build_encoder, encoder_names, register  # isort: skip
from pisa_capc.encoders import cldnn, cnn, cvcnn, mscnn, resnet, tcn, transformer  # noqa: F401  (each registers itself)

__all__ = ["WIDTH", "Encoder", "build_encoder", "encoder_names", "register"]
