"""Does the room name the device?"""

from __future__ import annotations

from typing import Any

from pisa_capc.evidence.checks.base import Finding, Verdict, named, register_check
from pisa_capc.evidence.checks.evidence import Evidence
from pisa_capc.evidence.checks.naming import QUESTIONS, Named, Place, pooled

# The room gives away a device where, by its channel alone, more than half of what guessing leaves open is named:
# then a model may get most of its score from the room, and a validation on the same recordings cannot tell.
GIVEN_AWAY = 0.5


@register_check("room")
def room(evidence: Evidence) -> Finding:
    """Channels alone, at the other end of the recording: what stands still for as long as the recording lasts."""
    if evidence.room is None:
        return Finding(
            Verdict.NOTE,
            "Whether the room names the device cannot be told: the frames begin with no preamble that is known at this "
            "sample rate, and one antenna has no ratio to another.",
            "Register the waveform as a plugin, or record with a second antenna.",
        )
    places = evidence.room
    later, elsewhere = (pooled(getattr(place, question) for place in places) for question in ("later", "elsewhere"))
    if later is None:
        return Finding(
            Verdict.NOTE,
            "Whether the room names the device cannot be told: nowhere are there two devices with frames at both ends "
            "of their recordings.",
            "Record several devices in each place, and more frames of each.",
        )
    numbers = summary(places)
    still = [place.name for place in places if gives_away(place.later)]
    told = f"channels alone name {later} of the frames at the other end of their recording"
    abroad = "" if elsewhere is None else f", and {elsewhere} in other captures"
    if gives_away(elsewhere):
        return Finding(
            Verdict.FAULT,
            f"Devices keep their channels from capture to capture: {told}{abroad}. Either each of them always stands "
            "at a spot of its own, or the estimates hold something of the hardware; this set cannot tell which.",
            "Exchange the devices' places between captures, or record all of them at the same places.",
            numbers,
        )
    if still or gives_away(later):
        where = f", surely in {named(still)}" if still else ""
        return Finding(
            Verdict.FAULT,
            f"The room names the device: {told}{abroad}{where}. In training the room can stand in for the hardware, "
            "and validation on the same recordings will not show it.",
            "Record all devices at the same places, or let them move; with what there is, judge models only in "
            "environments that were left out, and try the methods that equalise (pisa train --method pisa-equalised).",
            numbers,
        )
    if later.surely_beyond_chance > 0:
        return Finding(
            Verdict.NOTE,
            f"The room is not quite the same for all: {told}{abroad}.",
            "Record for longer than the channel takes to change, or let the devices move.",
            numbers,
        )
    return Finding(Verdict.FINE, f"The room does not name the device: {told}{abroad}.", numbers=numbers)


@register_check("neighbours")
def neighbours(evidence: Evidence) -> Finding:
    """Channels alone, one frame later: whether frames that are split at random share their channels."""
    if evidence.room is None or (following := pooled(place.next for place in evidence.room)) is None:
        return Finding(Verdict.FINE, "Whether neighbouring frames share a channel was not looked at.")
    told = f"the most similar channel names {following} of the devices one frame later"
    if gives_away(following):
        return Finding(
            Verdict.NOTE,
            f"Frames next to each other share their channel: {told}.",
            "Frames that are held out at random for validation are then no new ones, and their score is too good: hold "
            "out the ends of recordings, captures or environments.",
            following.to_json(),
        )
    return Finding(Verdict.FINE, f"Neighbouring frames give little away: {told}.", numbers=following.to_json())


def gives_away(answer: Named | None) -> bool:
    return answer is not None and answer.surely_beyond_chance > GIVEN_AWAY


def summary(places: list[Place]) -> dict[str, Any]:
    """Each question over all places, and all of them by place."""
    whole = {question: pooled(getattr(place, question) for place in places) for question in QUESTIONS}
    return {
        **{question: None if own is None else own.to_json() for question, own in whole.items()},
        "places": [place.to_json() for place in places],
    }
