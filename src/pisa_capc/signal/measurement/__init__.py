"""The hardware of a transmitter in closed form: what `FlawEstimator` measures in frames whose waveform is known."""

from pisa_capc.signal.measurement.estimator import FlawEstimator, Measurement
from pisa_capc.signal.measurement.flaws import FLAWS, Flaw, register_flaw
from pisa_capc.signal.measurement.rebuilt import estimator_of

__all__ = ["FLAWS", "Flaw", "FlawEstimator", "Measurement", "estimator_of", "register_flaw"]
