"""Who was recorded where, and how much; frames that are copies of one another, and frames that hold nothing."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.descriptors import WINDOW
from pisa_capc.evidence.checks.base import Evidence, Finding, Verdict, named, register_check
from pisa_capc.evidence.checks.measure import COPY, SetMeasured

UNEVEN_NOTE, UNEVEN_FAULT = 2.0, 10.0  # frames of the most to the least recorded device


@register_check("devices")
def devices(evidence: Evidence) -> Finding:
    """How many frames each device has."""
    counts = dict(zip(evidence.layout.devices, evidence.layout.frames.sum(axis=(0, 2)).tolist(), strict=True))
    if len(counts) < 2:
        return Finding(
            Verdict.FAULT,
            f"There is only one device, {next(iter(counts))}: nothing to tell apart.",
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
            f"There is only one environment, {names[0]}: a model cannot be tested in another one.",
            "Record the same devices in a second place, or on another day.",
        )
    absent = [f"{evidence.layout.devices[d]} in {names[e]}" for e, d in np.argwhere(~there)]
    if absent:
        return Finding(
            Verdict.FAULT,
            f"Environments that not all devices were recorded in: {named(absent)} is missing.",
            "The environment then rules devices out: record what is missing, or leave those devices or "
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
            f"Captures of one device only: {named(own)}. Whatever is special about them identifies the device.",
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


NEAR = 0.02  # of marks, whose spread is about one: COPY turns them by some thousandths
MOST_COMPARED = 4096  # pairs whose samples are compared
AT_ONCE = 256  # of them in memory


@register_check("unusable-frames")
def unusable_frames(evidence: Evidence) -> Finding:
    lost = int((~evidence.found.usable).sum())
    if lost:
        return Finding(
            Verdict.FAULT,
            f"{lost:,} of {len(evidence.found.usable):,} frames hold NaN, infinity or only zeros; they were left out "
            "of all other checks.",
            "Remove them, and see what wrote them.",
            {"frames": lost},
        )
    return Finding(Verdict.FINE, "All frames are finite, and none is empty.")


@register_check("copies")
def copies(evidence: Evidence) -> Finding:
    """Frames that are equal up to level and phase, noise and all: |⟨y, y'⟩|² ≥ (1 − 10⁻⁶) ‖y‖²‖y'‖²."""
    found = evidence.found
    pairs = copied_pairs(found)
    looked = f"among {len(found.frames):,} frames that were compared"
    if not len(pairs):
        return Finding(Verdict.FINE, f"No frame is a copy of another, {looked}.")
    owners = found.sample.recording[pairs]
    across = owners[:, 0] != owners[:, 1]
    between = Counter(tuple(sorted(pair)) for pair in owners[across].tolist())
    places = [f"{evidence.recordings[a]} and {evidence.recordings[b]}" for (a, b), _ in between.most_common()]
    within = [evidence.recordings[r] for r in np.unique(owners[~across, 0])]
    where = [f"between {named(places, 3)}"] * bool(places) + [f"within {named(within, 3)}"] * bool(within)
    return Finding(
        Verdict.FAULT,
        f"{len(pairs):,} frames are copies of another one, {looked}: {'; '.join(where)}.",
        "See how the recordings were cut and named: a frame that is in training and in a test makes its score too "
        "good, and a frame of two devices teaches nothing.",
        {"frames": len(pairs), "between": places, "within": within},
    )


def copied_pairs(found: SetMeasured) -> NDArray[np.int64]:
    """(M, 2) measured frames and, for each, an earlier one that it is a copy of."""
    from scipy.spatial import cKDTree  # here, so that the command line answers at once

    # Equal marks first: a tree of equal points is slow, and a copied file has many.
    _, first, group = np.unique(np.round(found.marks, 5), axis=0, return_index=True, return_inverse=True)
    group = group.ravel()
    again = np.flatnonzero(first[group] != np.arange(len(group)))
    candidates = [np.stack([again, first[group[again]]], axis=1)]
    if len(first) > 1:
        points = found.marks[first]
        near, other = (np.ravel(x) for x in cKDTree(points).query(points, k=[2], distance_upper_bound=NEAR))
        close = np.flatnonzero(np.isfinite(near))
        pairs = np.sort(np.stack([first[close], first[other[close]]], axis=1), axis=1)[:, ::-1]
        candidates.append(np.unique(pairs, axis=0))
    pairs = np.concatenate(candidates)
    chosen = np.unique(np.linspace(0, len(pairs) - 1, min(MOST_COMPARED, len(pairs))).astype(np.int64))
    return confirmed(found, pairs[chosen])


def confirmed(found: SetMeasured, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those whose samples are copies."""
    keep = [np.empty(0, dtype=bool)]
    for start in range(0, len(pairs), AT_ONCE):
        left, right = (found.frames.select(side).iq.astype(np.complex128) for side in pairs[start : start + AT_ONCE].T)
        product = np.abs(np.einsum("nat,nat->n", left.conj(), right)) ** 2
        energies = [np.sum(np.abs(side) ** 2, axis=(1, 2)) for side in (left, right)]
        keep.append(product >= (1 - COPY) * energies[0] * energies[1])
    return np.asarray(pairs[np.concatenate(keep)])
