"""Who was recorded where, and how much."""

from __future__ import annotations

import numpy as np

from pisa_capc.data.descriptors import WINDOW
from pisa_capc.evidence.checks.base import Finding, Verdict, named, register_check
from pisa_capc.evidence.checks.evidence import Evidence

UNEVEN_NOTE, UNEVEN_FAULT = 2.0, 10.0  # frames of the most to the least recorded device


@register_check("devices")
def devices(evidence: Evidence) -> Finding:
    """How many frames each device has."""
    counts = dict(zip(evidence.layout.devices, evidence.layout.frames.sum(axis=(0, 2)).tolist(), strict=True))
    if len(counts) < 2:
        return Finding(
            Verdict.FAULT,
            f"There is one device alone, {next(iter(counts))}: nothing to tell apart.",
            "Record more devices, or see how names were read.",
        )
    least, most = (pick(counts, key=lambda name: counts[name]) for pick in (min, max))
    ratio = counts[most] / counts[least]
    told = f"{counts[least]:,} frames of {least} to {counts[most]:,} of {most}"
    if ratio > UNEVEN_NOTE:
        return Finding(
            Verdict.FAULT if ratio > UNEVEN_FAULT else Verdict.NOTE,
            f"Devices were recorded unevenly: {told}.",
            "Record more of the rare ones or take fewer of the others; read Macro-F1, not accuracy.",
            {"frames": counts},
        )
    return Finding(Verdict.FINE, f"Devices were recorded evenly: {told}.", numbers={"frames": counts})


@register_check("environments")
def environments(evidence: Evidence) -> Finding:
    """Environments that only some devices were recorded in."""
    there = evidence.layout.frames.sum(axis=2) > 0  # (environments, devices)
    names = evidence.layout.environments
    if len(names) == 1:
        return Finding(
            Verdict.NOTE,
            f"There is one environment alone, {names[0]}: how a model does in another cannot be tested.",
            "Record the same devices in a second place, or on another day.",
        )
    absent = [f"{evidence.layout.devices[d]} in {names[e]}" for e, d in np.argwhere(~there)]
    if absent:
        return Finding(
            Verdict.FAULT,
            f"Environments that not all devices were recorded in: {named(absent)} is missing.",
            "An environment then tells who it cannot be: record what is missing, or leave those devices or "
            "environments out.",
            {"absent": absent},
        )
    return Finding(Verdict.FINE, f"All devices were recorded in all {len(names)} environments.")


@register_check("captures")
def captures(evidence: Evidence) -> Finding:
    """Captures of an environment that only some of its devices have."""
    layout = evidence.layout
    there = layout.frames > 0
    expected = there.any(axis=1, keepdims=True) & there.any(axis=2, keepdims=True)
    missing = np.argwhere(expected & ~there)
    absent = [f"{layout.environments[e]}/{layout.devices[d]}/{layout.captures[c]}" for e, d, c in missing]
    alone = np.argwhere((there.sum(axis=1) == 1) & (there.any(axis=2).sum(axis=1) > 1)[:, None])
    if len(alone):
        own = [f"{layout.environments[e]}/{layout.captures[c]}" for e, c in alone]
        return Finding(
            Verdict.FAULT,
            f"Captures that one device alone has: {named(own)}. Whatever is special about them names the device.",
            "Record the other devices under the same conditions, or give captures that belong together one name.",
            {"alone": own, "absent": absent},
        )
    if absent:
        return Finding(
            Verdict.NOTE,
            f"Recordings that are missing: {named(absent)}.",
            "A few do little harm, but calibrations that balance a capture expect all of them (docs/calibration.md).",
            {"absent": absent},
        )
    return Finding(Verdict.FINE, "Every device has every capture of its environments.")


@register_check("frames")
def frames(evidence: Evidence) -> Finding:
    """Recordings that are too short."""
    counts = evidence.layout.frames[evidence.layout.frames > 0]
    short = int((counts < WINDOW).sum())
    told = f"{counts.min():,} to {counts.max():,} frames in each of {len(counts)} recordings"
    if short:
        return Finding(
            Verdict.NOTE,
            f"Recordings are short: {told}, {short} of them with fewer than {WINDOW}, the CFO descriptor's window.",
            "Record longer: statistics over time, calibration and this check rest on few frames.",
            {"short": short},
        )
    return Finding(Verdict.FINE, f"Recordings are long enough: {told}.")
