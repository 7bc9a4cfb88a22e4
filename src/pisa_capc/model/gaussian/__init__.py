"""The Gaussian back-end: who sent a measurement, how certain that is, and whether it was anybody known."""

from pisa_capc.model.gaussian.backend import Device, GaussianBackend, Observations
from pisa_capc.model.gaussian.fit import fit_backend

__all__ = ["Device", "GaussianBackend", "Observations", "fit_backend"]
