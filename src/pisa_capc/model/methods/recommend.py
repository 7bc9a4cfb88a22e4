"""Which method to try first on given frames: the best one in our measurements.

Closed form: results/studies/closed-form.json; the networks: docs/results/tables.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import Frames
from pisa_capc.data.store.dataset import TIME
from pisa_capc.model.methods.closed_form import noise_of
from pisa_capc.model.methods.equaliser import EqualiserSettings, least_samples, waveform_of
from pisa_capc.model.methods.keyed import MOST, share_keyed
from pisa_capc.model.methods.preamble import look_for_preamble
from pisa_capc.model.methods.registry import Setup
from pisa_capc.signal.measurement import estimator_of
from pisa_capc.signal.measurement.front_end import front_end_for, through
from pisa_capc.signal.measurement.keyed import KeyedEstimator
from pisa_capc.signal.waveforms import WAVEFORMS, Waveform

PUBLISHED, EQUALISED, CLOSED = "pisa", "pisa-equalised", "closed-form"


class Recommendation(NamedTuple):
    """A method by name, and why, as the end of a sentence."""

    method: str
    why: str


def recommended(frames: Frames, setup: Setup, network: bool = False) -> Recommendation:
    """The closed form where source frames begin with a preamble that is known, else PISA as published.

    network: it must be a network, which is then PISA on equalised frames where there is such a preamble.
    """
    settings, rate = EqualiserSettings(), setup.sample_rate_hz
    if setup.domain != TIME:
        if setup.subcarriers is None:
            why = f"frames of {setup.domain} hold no preamble, and these do not say which subcarriers they are of"
            return Recommendation(PUBLISHED, why)
        if network:
            return Recommendation(PUBLISHED, "the frames are channel state, and a network was asked for")
        return _for_channel_state(frames, setup)
    if not any(waveform.sample_rate_hz == rate for waveform in WAVEFORMS.parts().values()):
        share = 0.0 if network else share_keyed(frames, KeyedEstimator(rate))
        if share >= MOST:
            why = (
                f"{share:.0%} of the frames are on-off keyed; offset, chirp and timing of their pulses can be measured"
            )
            return Recommendation(CLOSED, f"{why}, in seconds")
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


def _for_channel_state(frames: Frames, setup: Setup) -> Recommendation:
    """The closed form where the source tells hardware from noise: some recording has three frames or more."""
    numbered = setup.subcarriers
    assert numbered is not None
    try:
        level = noise_of(through(frames, front_end_for(numbered, numbered.front)))
    except DataError as error:
        return Recommendation(PUBLISHED, f"the closed form cannot measure these frames ({error})")
    return Recommendation(
        CLOSED,
        f"the frames are channel state of {len(numbered.used)} subcarriers on {setup.geometry.antennas} "
        f"antenna{'s' * (setup.geometry.antennas > 1)}, with noise {-10 * np.log10(level):.0f} dB below the signal in "
        "the source; what the hardware leaves in it is compared in seconds, each frame with its error bars",
    )


def _measurable(setup: Setup, waveform: Waveform) -> bool:
    """Whether frames hold enough of the waveform for the closed form."""
    try:
        estimator_of(waveform, setup.samples)
    except DataError:
        return False
    return True
