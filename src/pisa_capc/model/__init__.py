"""Networks and how they are trained: encoders, PISA, methods, training, inference, and models as ONNX files."""

from typing import Any


def __getattr__(name: str) -> Any:
    """What this name stood for before the networks had a package of their own; see `core.moved`."""
    if name not in ("PISA", "Output", "PisaConfig", "Single"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pisa_capc.core.moved import warn_of
    from pisa_capc.model import networks

    warn_of(f"{__name__}.{name}", f"{networks.__name__}.{name}")
    return getattr(networks, name)
