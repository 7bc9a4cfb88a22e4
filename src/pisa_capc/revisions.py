"""Versions of the code that results depend on.

Raise the number with any change that alters what the part computes: results of different versions are never mixed.
"""

from __future__ import annotations

SPLIT = 1  # protocol.split and the scores
TRAINING = 1  # trainer, encoders, layers and descriptors
CALIBRATION = 1  # U-CAPC
METHODS = {"pisa": 1, "single": 1}  # a method that is not listed has version 1


def of_run(method: str, calibrated: bool) -> dict[str, int]:
    """The versions that a run of `method` depends on, and its scores after calibration where it has any."""
    versions = {"split": SPLIT, "training": TRAINING, "method": METHODS.get(method, 1)}
    return {**versions, "calibration": CALIBRATION} if calibrated else versions
