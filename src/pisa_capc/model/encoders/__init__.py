"""Temporal encoders f_id and f_ctx: one file each, one registry.

An encoder is built as `Encoder(streams, runs)` and called as `encoder(x, tokens)`: (R, N, T, 2·streams) to
(R, N, tokens, 32). The input's channels are the in-phase parts of all streams, then their quadrature parts. To add
one: a class here under `@register_encoder("name")`, and its import below; or the same class in a plugin. A
plain module, without runs and tokens, is registered with `ordinary=True`.
"""

from pisa_capc.core.moved import renamed
from pisa_capc.model.encoders.base import (
    ENCODERS,
    WIDTH,
    Encoder,
    build_encoder,
    encoder_names,
    encoder_title,
    register_encoder,
)

# Each registers itself, in the order of the paper.
from pisa_capc.model.encoders import convolutional, transformer  # noqa: F401  # isort: skip

__all__ = ["ENCODERS", "WIDTH", "Encoder", "build_encoder", "encoder_names", "encoder_title", "register_encoder"]

register = renamed(__name__, "register", register_encoder)
