"""Frames that are copies of one another, and frames that hold nothing."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from pisa_capc.evidence.checks.base import Finding, Verdict, named, register_check
from pisa_capc.evidence.checks.evidence import Evidence
from pisa_capc.evidence.checks.measure import COPY, Measured

NEAR = 0.02  # of marks, whose spread is about one: COPY turns them by some thousandths
MOST_COMPARED = 4096  # pairs whose samples are compared
AT_ONCE = 256  # of them in memory


@register_check("unusable-frames")
def unusable_frames(evidence: Evidence) -> Finding:
    lost = int((~evidence.found.usable).sum())
    if lost:
        return Finding(
            Verdict.FAULT,
            f"{lost:,} of {len(evidence.found.usable):,} frames hold NaN, infinity or zeros alone; they were left out "
            "of everything else here.",
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
        "good, and one that has two devices teaches nothing.",
        {"frames": len(pairs), "between": places, "within": within},
    )


def copied_pairs(found: Measured) -> NDArray[np.int64]:
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


def confirmed(found: Measured, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those whose samples are copies."""
    keep = [np.empty(0, dtype=bool)]
    for start in range(0, len(pairs), AT_ONCE):
        left, right = (found.frames.select(side).iq.astype(np.complex128) for side in pairs[start : start + AT_ONCE].T)
        product = np.abs(np.einsum("nat,nat->n", left.conj(), right)) ** 2
        energies = [np.sum(np.abs(side) ** 2, axis=(1, 2)) for side in (left, right)]
        keep.append(product >= (1 - COPY) * energies[0] * energies[1])
    return np.asarray(pairs[np.concatenate(keep)])
