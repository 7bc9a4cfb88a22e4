"""Does the room, or the carrier frequency, give the device away, and does the frequency drift?"""

from __future__ import annotations

from typing import Any

import numpy as np

from pisa_capc.evidence.checks.base import Evidence, Finding, Verdict, named, register_check
from pisa_capc.evidence.checks.naming import QUESTIONS, NamingScore, PlaceNaming, pooled

# The room gives a device away where its channel alone closes more than half of the gap between chance and one: a model
# may then get most of its score from the room, and a validation on the same recordings cannot tell.
GIVEN_AWAY = 0.5


@register_check("room")
def room(evidence: Evidence) -> Finding:
    """Channels alone, at the other end of the recording: the part that stands still throughout the recording."""
    if evidence.room is None:
        return Finding(
            Verdict.NOTE,
            "Whether the room gives devices away cannot be tested: the frames begin with no known preamble at this "
            "sample rate, and a single antenna has no ratio to another.",
            "Register the waveform as a plugin, or record with a second antenna.",
        )
    places = evidence.room
    later, elsewhere = (pooled(getattr(place, question) for place in places) for question in ("later", "elsewhere"))
    if later is None:
        return Finding(
            Verdict.NOTE,
            "Whether the room gives devices away cannot be tested: no place has two devices with frames at both ends "
            "of their recordings.",
            "Record several devices in each place, and more frames of each.",
        )
    numbers = summary(places)
    still = [place.name for place in places if gives_away(place.later)]
    told = f"channels alone identify {later} of the frames at the other end of their recording"
    abroad = "" if elsewhere is None else f", and {elsewhere} in other captures"
    if gives_away(elsewhere):
        return Finding(
            Verdict.FAULT,
            f"Devices keep their channels from capture to capture: {told}{abroad}. Either each of them always stands "
            "at a spot of its own, or the estimates hold something of the hardware; this set cannot tell which.",
            "Swap the devices' places between captures, or record all of them at the same places.",
            numbers,
        )
    if still or gives_away(later):
        where = f", surely in {named(still)}" if still else ""
        return Finding(
            Verdict.FAULT,
            f"The room gives devices away: {told}{abroad}{where}. In training the room can replace the hardware, and "
            "validation on the same recordings will not show it.",
            "Record all devices at the same places, or let them move; with what there is, judge models only in "
            "environments that were left out, and try the methods that equalise (pisa train --method pisa-equalised).",
            numbers,
        )
    if later.surely_beyond_chance > 0:
        return Finding(
            Verdict.NOTE,
            f"The room differs a little from device to device: {told}{abroad}.",
            "Record for longer than the channel takes to change, or let the devices move.",
            numbers,
        )
    return Finding(Verdict.FINE, f"The room does not give devices away: {told}{abroad}.", numbers=numbers)


@register_check("neighbours")
def neighbours(evidence: Evidence) -> Finding:
    """Channels alone, one frame later: whether frames that are split at random share their channels."""
    if evidence.room is None or (following := pooled(place.next for place in evidence.room)) is None:
        return Finding(Verdict.SKIPPED, "Whether neighbouring frames share a channel was not tested.")
    told = f"the most similar channel identifies {following} of the devices one frame later"
    if gives_away(following):
        return Finding(
            Verdict.NOTE,
            f"Frames next to each other share their channel: {told}.",
            "Validation frames from a random split are then not independent, and their score is too high: hold "
            "out the ends of recordings, captures or environments (pisa train --held-out block).",
            following.to_json(),
        )
    return Finding(Verdict.FINE, f"Neighbouring frames give little away: {told}.", numbers=following.to_json())


def gives_away(answer: NamingScore | None) -> bool:
    return answer is not None and answer.surely_beyond_chance > GIVEN_AWAY


def summary(places: list[PlaceNaming]) -> dict[str, Any]:
    """Each question over all places, and all of them by place."""
    whole = {question: pooled(getattr(place, question) for place in places) for question in QUESTIONS}
    return {
        **{question: None if own is None else own.to_json() for question, own in whole.items()},
        "places": [place.to_json() for place in places],
    }


MOST_DRIFT_PPM = 1.0  # over a recording; crystals move so far within minutes of warming up, or with several kelvin
MEANING = (
    "Oscillators differ, so this is not a fault. But it contains the receiver's oscillator, drifts with temperature "
    "and age, and a spoofer can set it."
)


@register_check("recorded-cfo")
def recorded_cfo(evidence: Evidence) -> Finding:
    """The CFO that the receiver wrote beside the frames."""
    return _names("The recorded CFO", evidence.recorded_cfo, "no CFO was recorded with the frames.")


@register_check("cfo-descriptor")
def cfo_descriptor(evidence: Evidence) -> Finding:
    """How the recorded CFO varies around a frame, four numbers that PISA's dynamics read (`data.descriptors`)."""
    places = evidence.descriptor
    later, elsewhere = (pooled(getattr(p, question) for p in places or []) for question in ("later", "elsewhere"))
    if places is None or later is None:
        return Finding(
            Verdict.SKIPPED, "The CFO descriptor was not tested: no CFO was recorded, or there are few frames."
        )
    abroad = "there is no other capture" if elsewhere is None else f"{elsewhere} in other captures"
    told = f"{later} of the frames at the other end of their recording, {abroad}"
    if later.surely_beyond_chance > 0 and (elsewhere is None or elsewhere.surely_beyond_chance <= 0):
        return Finding(
            Verdict.NOTE,
            f"How the CFO varies tells recordings, not devices: the CFO descriptor identifies {told}.",
            "A model with CFO dynamics can learn this instead of the hardware, and random validation frames reward it. "
            "Train with --held-out block, and compare with --variant no-cfo-dynamics.",
            summary(places),
        )
    return Finding(Verdict.FINE, f"The CFO descriptor: {told}.", numbers=summary(places))


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
        return Finding(Verdict.SKIPPED, "Drift of the CFO was not looked at: none was recorded or could be measured.")
    drift_ppm = {
        name: change * 1e6 / evidence.frames.carrier_hz for name, change in evidence.change(frequency_hz).items()
    }
    if not drift_ppm:
        return Finding(Verdict.SKIPPED, "Drift of the CFO was not looked at: recordings are too short.")
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


def _names(what: str, places: list[PlaceNaming] | None, otherwise: str) -> Finding:
    later, elsewhere = (pooled(getattr(p, question) for p in places or []) for question in ("later", "elsewhere"))
    if places is None or later is None:
        return Finding(
            Verdict.SKIPPED, f"{what} was not looked at: {otherwise if places is None else 'too few frames.'}"
        )
    abroad = "there is no other capture" if elsewhere is None else f"{elsewhere} in other captures"
    told = f"{later} of the frames at the other end of their recording, {abroad}"
    if gives_away(later) and (elsewhere is None or elsewhere.surely_beyond_chance <= 0):
        return Finding(
            Verdict.NOTE,
            f"{what} identifies the device only within a capture: {told}. It moves between captures by more than "
            "devices differ.",
            "Do not let a model read it: correct it, or perturb it in training.",
            summary(places),
        )
    if elsewhere is not None and elsewhere.surely_beyond_chance > 0:
        return Finding(Verdict.NOTE, f"{what} identifies devices: {told}.", MEANING, summary(places))
    return Finding(Verdict.FINE, f"{what} identifies no device reliably: {told}.", numbers=summary(places))
