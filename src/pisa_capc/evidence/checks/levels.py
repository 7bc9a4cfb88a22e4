"""How well frames were received, and whether that stays."""

from __future__ import annotations

import numpy as np

from pisa_capc.evidence.checks.base import Finding, Verdict, named, register_check
from pisa_capc.evidence.checks.evidence import Evidence

LOW_SNR_DB, NO_SNR_DB = 10.0, 3.0
APART_DB = 10.0  # between devices in one place: then how far away a device was is written on its frames
POWER_DRIFT_DB = 6.0


@register_check("snr")
def snr(evidence: Evidence) -> Finding:
    """Of the preamble against all it does not explain: noise, but also phase noise and distortion."""
    level_db = recording_snr_db(evidence)
    if level_db is None:
        return Finding(Verdict.FINE, "The SNR was not measured: the frames begin with no preamble that is known.")
    lowest = min(level_db, key=lambda name: level_db[name])
    told = f"{np.median(list(level_db.values())):.0f} dB in the middle, {level_db[lowest]:.0f} in {lowest}"
    numbers = {"snr_db": level_db}
    low = [name for name, level in level_db.items() if level < LOW_SNR_DB]
    if low:
        return Finding(
            Verdict.FAULT if level_db[lowest] < NO_SNR_DB else Verdict.NOTE,
            f"The SNR is low: {told}; below {LOW_SNR_DB:g} dB: {named(low)}.",
            "Bring transmitters nearer or record with more gain: hardware flaws lie 25 to 40 dB below the signal.",
            numbers,
        )
    return Finding(Verdict.FINE, f"SNR of the recordings: {told}.", numbers=numbers)


@register_check("snr-of-devices")
def snr_of_devices(evidence: Evidence) -> Finding:
    """How far devices are apart in one place."""
    level_db = recording_snr_db(evidence)
    if level_db is None:
        return Finding(Verdict.FINE, "Whether the SNR names the device was not looked at: it was not measured.")
    place = evidence.found.frames.capture_key
    places: dict[str, list[float]] = {}
    for name, own in evidence.by_recording.items():
        places.setdefault(str(place[own[0]]), []).append(level_db[name])
    spread = {name: max(levels) - min(levels) for name, levels in places.items()}
    widest = max(spread, key=lambda name: spread[name])
    told = f"up to {spread[widest]:.0f} dB apart ({widest})"
    many = [name for name, apart in spread.items() if apart > APART_DB]
    if many:
        return Finding(
            Verdict.NOTE,
            f"Devices of one place have very different SNR, {told}: {named(many)}.",
            "Put the devices at like distances, or add noise in training: otherwise the noise can name the device.",
            {"spread_db": spread},
        )
    return Finding(Verdict.FINE, f"Devices of one place have like SNR, {told}.", numbers={"spread_db": spread})


@register_check("power-drift")
def power_drift(evidence: Evidence) -> Finding:
    """From the first to the last third of each recording."""
    power_db = 10 * np.log10(np.maximum(evidence.found.power.mean(axis=1), 1e-30))
    drift_db = evidence.change(power_db)
    moved = [name for name, drift in drift_db.items() if abs(drift) > POWER_DRIFT_DB]
    if moved:
        largest = max(drift_db.values(), key=abs)
        return Finding(
            Verdict.NOTE,
            f"The received power changes within recordings, by up to {abs(largest):.0f} dB: {named(moved)}.",
            "See whether a gain control worked or a device moved; frames are brought to unit power before training.",
            {"largest_db": largest, "recordings": moved},
        )
    return Finding(Verdict.FINE, f"The received power of a recording stays within {POWER_DRIFT_DB:g} dB.")


def recording_snr_db(evidence: Evidence) -> dict[str, float] | None:
    """Median over the frames and antennas of each recording; None where there is no preamble to measure it by."""
    snr_db = evidence.found.snr_db
    if snr_db is None:
        return None
    return {name: float(np.median(snr_db[own])) for name, own in evidence.by_recording.items()}
