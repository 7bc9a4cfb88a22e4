"""The models: PISA, piece by piece, and Single."""

from pisa_capc.model.pisa import PISA, Output, PisaConfig
from pisa_capc.model.single import Single

__all__ = ["PISA", "Output", "PisaConfig", "Single"]
