"""Silent and copied antennas, DC, clipping, SNR and power."""

from __future__ import annotations

import numpy as np

from pisa_capc.data.store.dataset import TIME
from pisa_capc.evidence.checks.base import Evidence, Finding, Verdict, named, register_check

SILENT_DB = -40.0  # of the strongest antenna of the recording
DEAF_DB, HEARD_DB = 0.0, 10.0  # SNR of an antenna that hears nothing, where the best one has this or more
DC_NOTE_DB, DC_FAULT_DB = -30.0, -15.0  # of the frames' power; the second is 802.11's limit for transmitters
DC_CHANCE = 1e-4  # with which frames without DC have a mean that is taken for one
CLIPPED_NOTE, CLIPPED_FAULT = 0.01, 0.1  # of the frames of a recording


@register_check("silent-antennas")
def silent_antennas(evidence: Evidence) -> Finding:
    """By power, and where there is a preamble by whether it is heard."""
    silent = []
    for name, own in evidence.by_recording.items():
        power = np.median(evidence.found.power[own], axis=0)
        quiet = power < 10 ** (SILENT_DB / 10) * power.max()
        if evidence.found.snr_db is not None:
            snr_db = np.median(evidence.found.snr_db[own], axis=0)
            quiet |= (snr_db < DEAF_DB) & (snr_db.max() > HEARD_DB)
        silent += [f"{name} antenna {a}" for a in np.flatnonzero(quiet)]
    if silent:
        return Finding(
            Verdict.FAULT,
            f"Antennas that hear nothing: {named(silent)}.",
            "Look at cables and connectors; leave the recordings out, or the antenna from all of them.",
            {"silent": silent},
        )
    return Finding(Verdict.FINE, "Every antenna hears something in every recording.")


@register_check("copied-antennas")
def copied_antennas(evidence: Evidence) -> Finding:
    """Equal up to level and phase, noise and all."""
    copied = []
    for name, own in evidence.by_recording.items():
        mostly = evidence.found.copied[own].mean(axis=0) > 0.5
        pairs = np.argwhere(np.triu(mostly, 1))
        copied += [f"{name} antennas {a} and {b}" for a, b in pairs]
    if copied:
        return Finding(
            Verdict.FAULT,
            f"Antennas that are copies of one another: {named(copied)}.",
            "See how channels were split or exported: one stream was written twice, and the array is smaller than it "
            "seems.",
            {"copied": copied},
        )
    return Finding(Verdict.FINE, "No antenna is a copy of another.")


@register_check("dc")
def dc(evidence: Evidence) -> Finding:
    """DC that is the same in every frame of a recording is the receiver's; a transmitter's leakage has any phase.

    The mean of n frames' means has, without DC, an exponentially distributed power of E|m|²/n.
    """
    if evidence.frames.domain != TIME:
        return Finding(Verdict.SKIPPED, "DC was not looked for: these are frames of subcarriers.")
    level_db = {}
    antennas = evidence.frames.antennas
    for name, own in evidence.by_recording.items():
        mean = evidence.found.mean[own]
        power = np.maximum(evidence.found.power[own].mean(axis=0), 1e-30)
        coherent = np.abs(mean.mean(axis=0)) ** 2
        scatter = mean.var(axis=0) / len(own)
        limit = -np.log(DC_CHANCE / (antennas * len(evidence.by_recording))) * scatter
        found = np.where(coherent > np.maximum(limit, 1e-12 * power), coherent / power, 0).max()
        level_db[name] = 10 * np.log10(max(found, 1e-12))
    worst = max(level_db, key=lambda name: level_db[name], default=None)
    if worst is None or level_db[worst] <= DC_NOTE_DB:
        return Finding(Verdict.FINE, f"The receiver adds no DC above {DC_NOTE_DB:g} dB of the frames.")
    many = [name for name, level in level_db.items() if level > DC_NOTE_DB]
    return Finding(
        Verdict.FAULT if level_db[worst] > DC_FAULT_DB else Verdict.NOTE,
        f"The receiver adds DC, up to {level_db[worst]:.0f} dB of the frames ({worst}): {named(many)}.",
        "Subtract the mean of a stretch without frames, or tune the receiver off the carrier.",
        {"largest_db": level_db[worst], "recordings": many},
    )


@register_check("clipping")
def clipping(evidence: Evidence) -> Finding:
    """Samples of I and Q that pile up at the largest value."""
    if evidence.frames.domain != TIME:
        return Finding(Verdict.SKIPPED, "Clipping was not looked for: these are frames of subcarriers.")
    share = {name: float(evidence.found.clipped[own].mean()) for name, own in evidence.by_recording.items()}
    many = [name for name, own in share.items() if own > CLIPPED_NOTE]
    if not many:
        return Finding(Verdict.FINE, "No recording is clipped.")
    worst = max(share, key=lambda name: share[name])
    return Finding(
        Verdict.FAULT if share[worst] > CLIPPED_FAULT else Verdict.NOTE,
        f"Frames are clipped, up to {share[worst]:.0%} of a recording ({worst}): {named(many)}.",
        "Record again with less gain: what clipping adds looks like an amplifier, and is the receiver's.",
        {"largest_share": share[worst], "recordings": many},
    )


LOW_SNR_DB, NO_SNR_DB = 10.0, 3.0
APART_DB = 10.0  # between devices in one place: then how far away a device was is written on its frames
POWER_DRIFT_DB = 6.0


@register_check("snr")
def snr(evidence: Evidence) -> Finding:
    """Power of the preamble over everything it does not explain: noise, but also phase noise and distortion."""
    level_db = recording_snr_db(evidence)
    if level_db is None:
        return Finding(Verdict.SKIPPED, "The SNR was not measured: the frames begin with no known preamble.")
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
        return Finding(Verdict.SKIPPED, "Whether the SNR names the device was not looked at: it was not measured.")
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
            "Put the devices at similar distances, or add noise in training: the noise can identify the device.",
            {"spread_db": spread},
        )
    return Finding(Verdict.FINE, f"Devices of one place have similar SNR, {told}.", numbers={"spread_db": spread})


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
            "Check whether a gain control was on or a device moved; frames are scaled to unit power before training.",
            {"largest_db": largest, "recordings": moved},
        )
    return Finding(Verdict.FINE, f"The received power of a recording stays within {POWER_DRIFT_DB:g} dB.")


def recording_snr_db(evidence: Evidence) -> dict[str, float] | None:
    """Median over the frames and antennas of each recording; None where there is no preamble to measure it by."""
    snr_db = evidence.found.snr_db
    if snr_db is None:
        return None
    return {name: float(np.median(snr_db[own])) for name, own in evidence.by_recording.items()}
