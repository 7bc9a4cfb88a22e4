"""Versions of the code that results depend on.

Raise the number with any change that alters what the part computes: results of different versions are never mixed.
"""

from __future__ import annotations

PACKAGE = "0.1.0"  # the version of this package, as people name it

SPLIT = 1  # protocol.split and the scores
TRAINING = 1  # trainer, encoders, layers and descriptors
CALIBRATION = 1  # U-CAPC and its peers
GUARD = 1  # the safe calibration of earlier versions, which records hold
DEPLOYMENTS = 1  # what a deployment draws, and how it is scored
METHODS = {"irm": 2, "closed-form": 2}  # a method that is not listed has version 1
# What a method with one encoder has on top of that. Transformer: on a GPU its dropout took half instead of a tenth in
# these, because masks depended on how wide the compiler counts (see stacked/noise.py, and the erratum of the results).
WITH_ENCODER = {
    (method, "transformer"): 1
    for method in ("pisa", "pisa-equalised", "pisa-objective", "mixup", "mmd", "riei", "dann")
}

# What counts for models that were written before their descriptions said it.
FIRST = {"split": 1, "training": 1, "method": 1}


def of_run(
    method: str, encoder: str, calibrated: bool, guarded: bool = False, deployed: bool = False
) -> dict[str, int]:
    """The versions that a run of `method` depends on, and its scores after calibration where it has any."""
    own = METHODS.get(method, 1) + WITH_ENCODER.get((method, encoder), 0)
    versions = {"split": SPLIT, "training": TRAINING, "method": own}
    for part, version, used in (
        ("calibration", CALIBRATION, calibrated),
        ("guard", GUARD, guarded),
        ("deployments", DEPLOYMENTS, deployed),
    ):
        if used:
            versions[part] = version
    return versions
