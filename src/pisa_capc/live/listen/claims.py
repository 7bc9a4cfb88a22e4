"""Tests that run as long as a listener does: is an address its device's, is a sender anybody's, has a device changed.

Each but that of shared addresses is a test martingale M of `decide.identification.evidence` on scores of a sender's
frames, and alarms where M ≥ 1/α. Its memory would grow with every frame, so after `EPOCH` frames a test restarts,
with α_e = α / (e (e + 1)) in its e-th epoch: these sum to α, so P(false alarm) ≤ α holds over all epochs together,
however long it runs, on frames that are exchangeable with those they are ranked among. `decide.identification.verify`
has the limits; docs/listen.md explains them for a receiver.

    not its address   frames that claim to be from device k, by the log odds against k, among the source's frames of k;
                      and, for the claim, among those of every other device
    shared address    frames that claim to be from device k, by the same, at one carrier against another: the test of
                      `decide.identification.shared` on the newest of them, at α over all enrolled addresses together
    unknown device    frames of a sender without an enrolled address, by their unknown score, among the source's frames
                      of the device whose own are strangest
    changed           frames given to device k, by the log odds against k, among those of k that were received before

Of a model that gives the error bars of every frame, the first and the third are the likelihood ratios of
`decide.identification.likelihood` instead, in epochs likewise.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.decide.identification.evidence import ClaimEvidence, Ranks
from pisa_capc.decide.identification.likelihood import Likelihoods
from pisa_capc.decide.identification.shared import Watched
from pisa_capc.decide.identification.verification import GENUINE, REFUTED, SEVERAL, UNDECIDED, Reference, odds_against
from pisa_capc.live.listen.senders import MOST, Sender
from pisa_capc.model.gaussian import GaussianBackend
from pisa_capc.model.inference import TrainedModel
from pisa_capc.signal.detection.dataset import file_name

WithError: TypeAlias = "tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]] | None"  # embedding, its error

EPOCH = 1024  # frames
LOWEST = -1e300  # of a logarithm in a file: JSON and some readers know no infinity


class Test:
    """Evidence that grows with every score, against several references side by side."""

    __test__ = False  # not of pytest

    def __init__(self, references: list[ArrayLike], alpha: float) -> None:
        self._references, self._alpha = [np.asarray(one, dtype=np.float64) for one in references], alpha
        self.epoch = 0
        self.highest = np.zeros(len(references))  # log M of this epoch
        self._begin()

    def _begin(self) -> None:
        self.epoch += 1
        self._ranks = Ranks(self._references)
        self._evidence = ClaimEvidence(len(self._references))
        self.highest[:] = 0.0

    @property
    def limit(self) -> float:
        """log M from which on there is an alarm, in this epoch."""
        return float(np.log(self.epoch * (self.epoch + 1) / self._alpha))

    @property
    def frames(self) -> int:
        return self._evidence.frames

    def push(self, score: float) -> NDArray[np.float64]:
        """The highest log M (J,) so far, with the next score."""
        log_m = self._evidence.push(self._ranks.push(score))
        self.highest = np.maximum(self.highest, log_m)
        return self.highest

    @property
    def full(self) -> bool:
        return self.frames >= EPOCH

    def renew(self, references: list[ArrayLike] | None = None) -> None:
        """The next epoch, with other references where they are given."""
        if references is not None:
            self._references = [np.asarray(one, dtype=np.float64) for one in references]
        self._begin()

    @property
    def seen(self) -> list[float]:
        """The scores of this epoch, in rising order."""
        return self._ranks.seen

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that changes."""
        return {
            "counts": np.array([self.epoch, self.frames]),
            "seen": np.array(self.seen),
            "placed": np.maximum(self._evidence.placed, LOWEST),
            "highest": self.highest.copy(),
        }

    def resume(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from the arrays of another test with as many references."""
        if arrays["placed"].shape != self._evidence.placed.shape or arrays["counts"].shape != (2,):
            raise DataError(
                f"the state of a test with {len(arrays['placed'])} references; expected {len(self._references)}"
            )
        self.epoch, self._evidence.frames = map(int, arrays["counts"])
        self._evidence.placed, self.highest = arrays["placed"].copy(), arrays["highest"].copy()
        self._ranks.seen = np.sort(arrays["seen"]).tolist()


class Ranked:
    """A claim by the ranks of its frames among those of a reference."""

    def __init__(self, reference: Reference, device: int, alpha: float) -> None:
        others = [j for j in reference.devices if j != device]
        self.against = Test([reference.strangeness(device, device)], alpha)
        self.support = Test([-reference.strangeness(device, j) for j in others], alpha)

    def push(self, track: int, strange: float, measured: WithError) -> tuple[bool, bool]:
        """Whether the claim is refuted with the next frame, and whether it is confirmed."""
        refuted = bool(self.against.push(strange)[0] >= self.against.limit)
        confirmed = bool(self.support.push(-strange).min() >= self.support.limit)
        if refuted or self.against.full:
            self.against.renew()
            self.support.renew()
        return refuted, confirmed

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {f"{of}.{k}": v for of in ("against", "support") for k, v in getattr(self, of).arrays().items()}

    def resume(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for of in ("against", "support"):
            getattr(self, of).resume({k.removeprefix(f"{of}."): v for k, v in arrays.items() if k.startswith(f"{of}.")})


class Likely:
    """A claim, or a sender without one (None), by likelihood ratios: of a model with error bars."""

    def __init__(self, backend: GaussianBackend, device: int | None, alpha: float) -> None:
        self._make, self._alpha, self._epoch = partial(Likelihoods, backend, device), alpha, 0
        self._begin()

    def _begin(self) -> None:
        self._epoch, self._frames, self._test = self._epoch + 1, 0, self._make()

    def push(self, track: int, strange: float, measured: WithError) -> tuple[bool, bool]:
        """As of `Ranked`. What refutes a claim stands until the epoch ends."""
        if self._frames >= EPOCH:
            self._begin()
        self._frames += 1
        assert measured is not None, "a model with a back-end gives errors"
        limit = np.log(self._epoch * (self._epoch + 1) / self._alpha)
        refuted, confirmed = (self._test.push(track, *measured) >= limit).tolist()
        return refuted, confirmed and not refuted

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The epoch alone: a few frames tell what was in the pools."""
        return {"likely.epoch": np.array([self._epoch])}

    def resume(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._epoch = int(arrays.get("likely.epoch", np.zeros(1))[0])
        self._begin()


@dataclass(eq=False)
class Claim:
    """What is known of one enrolled address. alone: the verdict if one sends. last_s: when a frame of it was tested."""

    device: int
    test: Ranked | Likely
    shared: Watched
    alone: str = UNDECIDED
    last_s: float = -np.inf

    @property
    def verdict(self) -> str:
        return SEVERAL if self.shared.found else self.alone

    def push(self, track: int, strange: float, measured: WithError = None) -> str | None:
        """The verdict after the next frame, where it is one to raise an alarm about."""
        refuted, confirmed = self.test.push(track, strange, measured)
        if refuted or confirmed:
            self.alone = REFUTED if refuted else GENUINE
        self.shared.push(track, strange)
        return self.verdict if self.verdict in (SEVERAL, REFUTED) else None


@dataclass(eq=False)
class Change:
    """What is known of one device's own frames."""

    test: Test
    last_s: float = -np.inf


@dataclass(eq=False)
class Tests:
    """All tests of a listener. addresses: the device of each enrolled one; None: devices are named by their addresses.

    The model knows further addresses if devices were enrolled with them; rename: their pseudonyms. alpha: of each test.
    spacing_s: seconds between frames of an address or a device that are tested.
    """

    __test__ = False

    trained: TrainedModel
    unknown_reference: NDArray[np.float64]
    addresses: Mapping[str, str] | None = None
    alpha: float = 0.01
    spacing_s: float = 0.0
    change_spacing_s: float = 1.0
    rename: Callable[[str], str] | None = None
    claims: dict[str, Claim] = field(default_factory=dict)
    changes: dict[int, Change] = field(default_factory=dict)
    strangers: OrderedDict[int, Test | Likely] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._devices = {name: k for k, name in enumerate(self.trained.devices)}
        kept = self.trained.run.addresses
        self._enrolled = kept if self.rename is None else {self.rename(address): name for address, name in kept.items()}
        source = self.trained.statistics
        self._backend = None if source.frame_error is None else source.backend()
        self._reference = Reference.of(source) if self._backend is None else None

    def device_of(self, address: str | None) -> int | None:
        """Whose address it is."""
        if address is None:
            return None
        named = file_name(address) if self.addresses is None else self.addresses.get(address.lower())
        if named in self._devices:
            return self._devices[named]
        return self._devices.get(self._enrolled.get(address.lower(), ""))

    def claimed(
        self, sender: Sender, time_s: float, logits: NDArray[np.float64], measured: WithError = None
    ) -> tuple[str | None, str | None]:
        """The verdict on a sender's address with its next frame, logits (C,), and again if it is cause for alarm."""
        address = str(sender.address)
        claim = self.claims.get(address) or self._begin_claim(address)
        if claim is None:
            return None, None
        if 0 <= time_s - claim.last_s < self.spacing_s:
            return claim.verdict, None
        claim.last_s = time_s
        alarm = claim.push(sender.number, float(odds_against(logits[None], claim.device)[0]), measured)
        return claim.verdict, alarm

    def _begin_claim(self, address: str) -> Claim | None:
        k = self.device_of(address)
        if k is None:
            return None
        if self._backend is not None:
            enough = str(k) in self._backend.devices and len(self._backend.devices) > 1
            test: Ranked | Likely | None = Likely(self._backend, k, self.alpha) if enough else None
        else:
            assert self._reference is not None
            enough = k in self._reference.devices and len(self._reference.devices) > 1
            test = Ranked(self._reference, k, self.alpha) if enough else None
        if test is None:
            return None
        enrolled = len(self._devices if self.addresses is None else self.addresses)
        self.claims[address] = Claim(k, test, Watched(self.alpha / enrolled))
        return self.claims[address]

    def stranger(self, sender: int, score: float, measured: WithError = None) -> bool:
        """Whether a sender that is not enrolled turns out, with its next frame, to be no known device."""
        test = self.strangers.get(sender)
        if test is None:
            if self._backend is not None and measured is not None and len(self._backend.devices) > 1:
                test = Likely(self._backend, None, self.alpha)
            else:
                test = Test([self.unknown_reference], self.alpha)
            self.strangers[sender] = test
            if len(self.strangers) > MOST:
                self.strangers.popitem(last=False)
        self.strangers.move_to_end(sender)
        if isinstance(test, Likely):
            return test.push(0, score, measured)[0]
        found = bool(test.push(score)[0] >= test.limit)
        if found or test.full:
            test.renew()
        return found

    def changed(self, device: int, time_s: float, logits: NDArray[np.float64]) -> bool:
        """Whether the frames given to a device differ more from it, with the next one, than before."""
        change = self.changes.get(device)
        if change is None:
            change = self.changes[device] = Change(Test([[]], self.alpha))
        if 0 <= time_s - change.last_s < self.change_spacing_s:
            return False
        change.last_s = time_s
        found = bool(change.test.push(float(odds_against(logits[None], device)[0]))[0] >= change.test.limit)
        if found or change.test.full:
            change.test.renew([change.test.seen[:]])
        return found

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays, and what else is to be kept. Tests of unknown devices and carriers of addresses are not kept."""
        arrays: dict[str, NDArray[Any]] = {}
        for i, claim in enumerate(self.claims.values()):
            arrays |= {f"claim.{i}.{k}": v for k, v in claim.test.arrays().items()}
        for i, change in enumerate(self.changes.values()):
            arrays |= {f"change.{i}.{k}": v for k, v in change.test.arrays().items()}
            arrays[f"change.{i}.reference"] = change.test._references[0]
        about = {
            "claims": [
                [address, claim.alone, _time(claim.last_s), claim.shared.looks]
                for address, claim in self.claims.items()
            ],
            "changes": [[device, _time(change.last_s)] for device, change in self.changes.items()],
        }
        return arrays, about

    def resume(self, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
        """Go on from a `state` of the same model; addresses that are no longer enrolled are left out."""

        def under(prefix: str) -> dict[str, NDArray[Any]]:
            return {name.removeprefix(prefix): v for name, v in arrays.items() if name.startswith(prefix)}

        for i, (address, alone, last_s, *looks) in enumerate(about["claims"]):
            if claim := self._begin_claim(str(address)):
                claim.test.resume(under(f"claim.{i}."))
                claim.alone, claim.last_s = str(alone), float(last_s)
                claim.shared.looks = max(0, int(*looks))  # none in what earlier versions wrote
        for i, (device, last_s) in enumerate(about["changes"]):
            test = Test([arrays[f"change.{i}.reference"]], self.alpha)
            test.resume(under(f"change.{i}."))
            self.changes[int(device)] = Change(test, float(last_s))


def _time(seconds: float) -> float:
    return max(seconds, LOWEST)
