"""Is the sender of frames the device whose address they carry: a sequential test of each claimed address.

A frame that claims to be from device k has, with the model's logits ℓ, the strangeness

    s = log Σ_{j ≠ k} exp ℓ_j − ℓ_k,

the log odds against k. Two things are tested, frame by frame, with the evidence M of `decide.identification.evidence`:

    against the claim   the sender is k:   s is ranked among frames of k in the reference, the strangest first;
    for the claim       the sender is j:   s is ranked among frames of j in the reference, the least strange first,
                        for every other device j; what counts is the least evidence, min_j M^(j).

Where the evidence against reaches 1/α the sender is not the device, where that for it does the claim is genuine; both
are wrong with a chance of at most α, over all frames of an address together, where its frames are exchangeable with the
reference's of the device that sent them. An alarm stands: what one device has confirmed another may go on to abuse.

Before either comes whether one device alone sends under the address, by `decide.identification.shared`: the strangeness
s of frames at one carrier against that of those at another, looked at once, after all frames, in every recording. Where
that is refuted several devices do; wrong with a chance of at most α over all addresses together.

Of a model that gives the error bars of every frame, the evidence is that of `decide.identification.likelihood` instead.

What that leaves out. Frames of one place resemble each other more than frames of the reference do, which are from
several; `spacing_s` keeps neighbours apart, but not a whole recording from itself. A place that nothing in the
reference resembles breaks it altogether. And there is no guarantee for a device that is not enrolled: it may
resemble k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.decide.identification.decide import UNKNOWN, Identified
from pisa_capc.decide.identification.evidence import conformal_p, first_beyond, log_evidence
from pisa_capc.decide.identification.likelihood import likelihoods
from pisa_capc.decide.identification.shared import Shared, one_sender
from pisa_capc.model.inference import SourceStatistics

GENUINE, REFUTED, SEVERAL, UNDECIDED = "genuine", "not the device", "several devices", "undecided"
STRANGER = "not enrolled"
FEWEST = 10  # reference frames of a device, below which ranks say too little


@dataclass(frozen=True, eq=False)
class ClaimVerdict:
    """What became of one claimed address.

    device: the owner of the address; None if it has none. frames: that carry it. rows: (T,) those that were tested, in
    time order. against, support: (T,) log M after each of them. after: how many it took, None where undecided.
    sounds_like: to whom most of its frames were given, None for a device that the model does not know; where there is
    an alarm, most of those not given to its device. alike: how many frames that are. shared: the test of one sender,
    where frames come at two carriers; its p is of all recordings.
    """

    address: str
    device: str | None
    verdict: str
    frames: int
    rows: NDArray[np.intp]
    against: NDArray[np.float64]
    support: NDArray[np.float64]
    after: int | None
    sounds_like: str | None
    alike: int
    shared: Shared | None = None

    @property
    def alarm(self) -> bool:
        """Whether another device sends under the address."""
        return self.verdict in (REFUTED, SEVERAL)

    def to_json(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "device": self.device,
            "verdict": self.verdict,
            "frames": self.frames,
            "tested": len(self.rows),
            "after": self.after,
            "sounds_like": self.sounds_like,
            "alike": self.alike,
            "one_sender_p": None if self.shared is None else self.shared.p,
            "at_two_carriers": None if self.shared is None else list(self.shared.frames),
            "log_evidence_against": np.round(self.against, 4).tolist(),
            "log_evidence_for": np.round(self.support, 4).tolist(),
        }


@dataclass(frozen=True, eq=False)
class Reference:
    """Frames whose sender is known and that the model was not trained on. logits: (R, C). label: (R,)."""

    logits: NDArray[np.float64]
    label: NDArray[np.int64]

    @classmethod
    def of(cls, source: SourceStatistics) -> Reference:
        """The source's validation frames."""
        if source.validation_logits is None or source.validation_label is None:
            raise DataError(
                "the model keeps no validation frames, among which claims are ranked: an earlier version trained it. "
                "Train it again."
            )
        return cls(np.asarray(source.validation_logits, dtype=np.float64), np.asarray(source.validation_label))

    def strangeness(self, claimed: int, sender: int) -> NDArray[np.float64]:
        """(n,) log odds against `claimed` of the frames of `sender`."""
        return odds_against(self.logits[self.label == sender], claimed)

    @property
    def devices(self) -> list[int]:
        """Those with enough frames to rank others among."""
        label, count = np.unique(self.label, return_counts=True)
        return [int(k) for k in label[count >= FEWEST]]


def odds_against(logits: NDArray[np.float64], claimed: int) -> NDArray[np.float64]:
    """(N,) s = log Σ_{j ≠ k} exp ℓ_j − ℓ_k for logits (N, C)."""
    others = logits[:, np.arange(logits.shape[1]) != claimed]
    return np.asarray(np.logaddexp.reduce(others, axis=1) - logits[:, claimed])


def verify(
    found: Identified, enrolled: Mapping[str, str], alpha: float = 0.01, spacing_s: float = 0.0
) -> list[ClaimVerdict]:
    """A verdict on every claimed address, in order. enrolled: the device of each address.

    alpha: chance of a false alarm, and of a false confirmation, for each address; of finding several devices under an
    address of one, for all of them. spacing_s: frames of an address that come sooner after the last tested one are not
    tested.
    """
    check_alpha(alpha)
    source = found.scores.statistics
    reference = Reference.of(source) if source.frame_error is None else None
    rows: dict[str, list[int]] = {}
    for i, address in enumerate(found.seen.address):
        if address is not None:
            rows.setdefault(address, []).append(i)
    levels = alpha, alpha / max(1, sum(address in enrolled for address in rows))
    return [
        _verdict(found, reference, address, enrolled.get(address), np.array(rows[address]), levels, spacing_s)
        for address in sorted(rows)
    ]


def check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha is {alpha}; expected a chance of false alarms between 0 and 1.")


def _verdict(
    found: Identified,
    reference: Reference | None,
    address: str,
    device: str | None,
    own: NDArray[np.intp],
    levels: tuple[float, float],
    spacing_s: float,
) -> ClaimVerdict:
    nothing = np.zeros(0)
    if device is None:
        like, alike = _most_like(found, own)
        return ClaimVerdict(address, None, STRANGER, len(own), own[:0], nothing, nothing, None, like, alike)
    k = found.devices.index(device)
    rows = _spaced(own, found, spacing_s)
    logits = np.asarray(found.scores.logits[rows], dtype=np.float64)
    if reference is None:
        scores, track = found.scores, found.seen.track[rows].tolist()
        assert scores.error is not None, "a model with a back-end gives errors"
        backend = scores.statistics.backend()
        against, support = likelihoods(backend, k, track, scores.embedding[rows], scores.error[rows])
    else:
        against, support = evidence(logits, k, reference)
    shared = shared_in(found.seen.recording[rows], found.seen.track[rows], odds_against(logits, k))
    verdict, after = judged(against, support, shared, *levels)
    odd = own[found.decision[own] != k]
    like, alike = _most_like(found, odd if verdict in (REFUTED, SEVERAL) and len(odd) else own)
    return ClaimVerdict(address, device, verdict, len(own), rows, against, support, after, like, alike, shared)


def judged(
    against: NDArray[np.float64], support: NDArray[np.float64], shared: Shared | None, alpha: float, alpha_shared: float
) -> tuple[str, int | None]:
    """The verdict by log M (T,) against and for a claim and by the test of one sender, and how many frames it took."""
    if shared is not None and shared.p <= alpha_shared:
        return SEVERAL, len(against)
    alarm, confirmed = first_beyond(against, alpha), first_beyond(support, alpha)
    if alarm is not None:
        return REFUTED, alarm
    return (UNDECIDED, None) if confirmed is None else (GENUINE, confirmed)


def shared_in(recording: NDArray[np.int64], track: NDArray[np.int64], strange: NDArray[np.float64]) -> Shared | None:
    """The test of one sender in each recording: the one that speaks most against it, p times how many there are."""
    members = [recording == r for r in np.unique(recording)]
    tests = [test for own in members if (test := one_sender(track[own].tolist(), strange[own])) is not None]
    if not tests:
        return None
    strongest = min(tests)
    return Shared(min(1.0, strongest.p * len(tests)), strongest.frames)


def evidence(
    logits: NDArray[np.float64], claimed: int, reference: Reference
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """log M (T,) against and for the claim that frames with logits (T, C), in time order, are of device `claimed`."""
    known = reference.devices
    if claimed not in known or len(known) < 2:
        raise DataError(
            f"the model keeps {int((reference.label == claimed).sum())} validation frames of this device and enough of "
            f"{len(known)} devices; ranks need at least {FEWEST} of it and of another. Train with more frames."
        )
    strange = odds_against(logits, claimed)
    against = log_evidence(conformal_p(strange, reference.strangeness(claimed, claimed)))
    others = [log_evidence(conformal_p(-strange, -reference.strangeness(claimed, j))) for j in known if j != claimed]
    return against, np.min(others, axis=0)


def _spaced(own: NDArray[np.intp], found: Identified, spacing_s: float) -> NDArray[np.intp]:
    """The frames that come at least `spacing_s` after the last one that is taken; all, in each recording, at 0."""
    kept, last, before = [], -np.inf, -1
    times, recordings = found.seen.time_s[own], found.seen.recording[own]
    for i, time, recording in zip(own.tolist(), times.tolist(), recordings.tolist(), strict=True):
        if recording != before or time - last >= spacing_s:
            kept.append(i)
            last, before = time, recording
    return np.array(kept, dtype=np.intp)


def _most_like(found: Identified, rows: NDArray[np.intp]) -> tuple[str | None, int]:
    """The most frequent decision on frames, None for unknown, and how many of them have it."""
    decided, count = np.unique(found.decision[rows], return_counts=True)
    most = int(decided[count.argmax()])
    return None if most == UNKNOWN else found.devices[most], int(count.max())
