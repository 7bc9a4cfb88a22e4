"""Which method to try first on given frames: the one that led where it was measured.

Closed form: results/studies/closed-form.json; the networks: docs/results/tables.md.
"""

from __future__ import annotations

from typing import NamedTuple

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import Frames
from pisa_capc.data.store.dataset import TIME
from pisa_capc.model.methods.equaliser import EqualiserSettings, least_samples, waveform_of
from pisa_capc.model.methods.preamble import look_for_preamble
from pisa_capc.model.methods.registry import Setup
from pisa_capc.signal.measurement import FlawEstimator
from pisa_capc.signal.waveforms import WAVEFORMS, Waveform

PUBLISHED, EQUALISED, CLOSED = "pisa", "pisa-equalised", "closed-form"


class Recommendation(NamedTuple):
    """A method by name, and why, as the end of a sentence."""

    method: str
    why: str


def recommended(frames: Frames, setup: Setup, network: bool = False) -> Recommendation:
    """The closed form where source frames begin with a preamble that is known, else PISA as published.

    network: it is to be one, which is then PISA behind an equaliser where there is such a preamble.
    """
    settings, rate = EqualiserSettings(), setup.sample_rate_hz
    if setup.domain != TIME:
        return Recommendation(PUBLISHED, f"frames of {setup.domain} hold no preamble that an equaliser could go by")
    if not any(waveform.sample_rate_hz == rate for waveform in WAVEFORMS.parts().values()):
        return Recommendation(PUBLISHED, f"no preamble is known at {rate:g} samples/s that an equaliser could go by")
    waveform = WAVEFORMS[waveform_of(settings, setup)]
    if min(setup.samples, len(waveform.preamble())) < least_samples(settings.taps):
        return Recommendation(PUBLISHED, f"{setup.samples} samples are too few to look for a preamble")
    findings = look_for_preamble(frames, settings, setup)
    least = min(findings, key=lambda found: (found.is_there, found.share[found.expected]))
    explained = f"it explains {least.share[least.expected]:.2f} of their energy, noise up to {least.level:.2f}"
    if not least.is_there:
        return Recommendation(
            PUBLISHED,
            f"the frames of {least.environment} do not begin with the preamble of {waveform.title} that an equaliser "
            f"goes by ({explained})",
        )
    begins = f"the frames begin with the preamble of {waveform.title} ({explained})"
    if not network and _measurable(setup, waveform):
        return Recommendation(CLOSED, f"{begins}, by which the flaws of the hardware can be measured, in seconds")
    return Recommendation(EQUALISED, f"{begins}, by which the channel of each place can be taken off")


def _measurable(setup: Setup, waveform: Waveform) -> bool:
    """Whether frames hold enough of the waveform for the closed form."""
    try:
        FlawEstimator(waveform, setup.samples)
    except DataError:
        return False
    return True
