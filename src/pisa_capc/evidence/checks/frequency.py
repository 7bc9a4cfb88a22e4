"""Does the carrier frequency name the device, and does it stay where it is?"""

from __future__ import annotations

import numpy as np

from pisa_capc.evidence.checks.base import Finding, Verdict, named, register_check
from pisa_capc.evidence.checks.evidence import Evidence
from pisa_capc.evidence.checks.naming import Place, pooled
from pisa_capc.evidence.checks.room import gives_away, summary

MOST_DRIFT_PPM = 1.0  # over a recording; crystals move so far within minutes of warming up, or with several kelvin
MEANING = (
    "It is what oscillators are: not a fault. But it holds the receiver's oscillator too, moves with temperature and "
    "age, and whoever imitates a device can set it."
)


@register_check("recorded-cfo")
def recorded_cfo(evidence: Evidence) -> Finding:
    """The CFO that the receiver wrote beside the frames."""
    return _names("The recorded CFO", evidence.recorded_cfo, "no CFO was recorded with the frames.")


@register_check("residual-cfo")
def residual_cfo(evidence: Evidence) -> Finding:
    """The offset that is still in the samples."""
    return _names("The frequency offset left in the frames", evidence.residual_cfo, "no preamble to measure it by.")


@register_check("cfo-drift")
def cfo_drift(evidence: Evidence) -> Finding:
    """From the first to the last third of each recording."""
    recorded, left = evidence.found.cfo_hz, evidence.found.offset_hz
    frequency_hz = left if recorded is None else recorded.mean(axis=1)
    if frequency_hz is None:
        return Finding(Verdict.FINE, "Drift of the CFO was not looked at: none was recorded or could be measured.")
    drift_ppm = {
        name: change * 1e6 / evidence.frames.carrier_hz for name, change in evidence.change(frequency_hz).items()
    }
    if not drift_ppm:
        return Finding(Verdict.FINE, "Drift of the CFO was not looked at: recordings are too short.")
    largest = max(drift_ppm.values(), key=abs)
    told = f"up to {abs(largest):.2g} ppm, typically {np.median(np.abs(list(drift_ppm.values()))):.2g}"
    moved = [name for name, drift in drift_ppm.items() if abs(drift) > MOST_DRIFT_PPM]
    numbers = {"largest_ppm": largest, "recordings_above_1_ppm": len(moved)}
    if moved:
        return Finding(
            Verdict.NOTE,
            f"The CFO drifts within recordings, {told}: {named(moved)}.",
            "Let transmitters and receiver warm up before recording, or record in several sessions, so that no "
            "frequency stands for a device.",
            numbers,
        )
    return Finding(Verdict.FINE, f"The CFO stays within a recording: it moves {told}.", numbers=numbers)


def _names(what: str, places: list[Place] | None, otherwise: str) -> Finding:
    later, elsewhere = (pooled(getattr(p, question) for p in places or []) for question in ("later", "elsewhere"))
    if places is None or later is None:
        return Finding(Verdict.FINE, f"{what} was not looked at: {otherwise if places is None else 'too few frames.'}")
    abroad = "there is no other capture" if elsewhere is None else f"{elsewhere} in other captures"
    told = f"{later} of the frames at the other end of their recording, {abroad}"
    if gives_away(later) and (elsewhere is None or elsewhere.surely_beyond_chance <= 0):
        return Finding(
            Verdict.NOTE,
            f"{what} names the device only within a capture: {told}. It moves from capture to capture by more than "
            "devices differ.",
            "Do not let a model read it: correct it, or perturb it in training.",
            summary(places),
        )
    if elsewhere is not None and elsewhere.surely_beyond_chance > 0:
        return Finding(Verdict.NOTE, f"{what} names devices: {told}.", MEANING, summary(places))
    return Finding(Verdict.FINE, f"{what} names nobody reliably: {told}.", numbers=summary(places))
