"""Who is in a recording, and is it who it claims to be.

observation   found frames as a model sees them
tracks        frames of one sender, decided each by itself or as one
decide        frames → devices, or none that is known
explain       why a frame is of a device, in quantities of its hardware
evidence      a test that may be looked at after every frame
shared        do several devices send under one address
verification  is the sender the device whose address it carries
"""

from typing import Any

from pisa_capc.core.moved import by_old_name
from pisa_capc.decide.identification.decide import Choices, Identified, Predicted, identify, predict
from pisa_capc.decide.identification.observation import Observed, check_domain, check_recording, observe, waveform_of
from pisa_capc.decide.identification.verification import ClaimVerdict, verify

__all__ = [
    "Choices",
    "ClaimVerdict",
    "Identified",
    "Observed",
    "Predicted",
    "check_domain",
    "check_recording",
    "identify",
    "observe",
    "predict",
    "verify",
    "waveform_of",
]


def __getattr__(name: str) -> Any:
    return by_old_name(__name__, {"Verdict": "ClaimVerdict"}, name)
