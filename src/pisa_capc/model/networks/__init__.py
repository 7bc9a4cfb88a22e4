"""The models: PISA, piece by piece, and Single."""

from pisa_capc.model.networks.pisa import PISA, Output, PisaConfig
from pisa_capc.model.networks.single import Single

__all__ = ["PISA", "Output", "PisaConfig", "Single"]
