"""Drift over a year: temperature and ageing move the flaws, and monthly updates follow them, or an attacker.

Our assumptions, in units of what the radios differ by (no source gives them for whole radios): the image, the leakage
and the amplifier of each radio depend on temperature, which has a season of ±8 K and days of ±2 K, by `PER_KELVIN` of
that spread; they age as a random walk of `PER_MONTH`, and the back-off falls by 0.02 dB a month. `faster` multiplies
all of it. A device is enrolled by the back-end of `World`, at 22 °C and new.

Attackers at the monthly update: a stranger sends its own frames under the device's address; a patient one imitates the
device and moves by a twelfth of the way to its own hardware every month.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.core.randomness import generator
from pisa_capc.decide.enrolment.alike import MIXED, outsiders
from pisa_capc.decide.enrolment.following import moved
from pisa_capc.signal.simulation.hardware import DeviceProfile
from studies.threats.world import PARTS, PREAMBLE, Receiver, World, mean_of

MONTHS, FRAMES = 12, 30
FASTER = (1.0, 3.0, 10.0)
SEASON_K, DAY_K = 8.0, 2.0
PER_KELVIN, PER_MONTH = 0.005, 0.02
BACKOFF_DB = -0.02  # a month
PARAMETERS = ("iq_gain_db", "iq_phase_deg", "pa_backoff_db", "pa_smoothness", "pa_am_pm_deg")
Numbers = NDArray[np.float64]


def aged(profile: DeviceProfile, world: World, name: str, month: int, faster: float) -> DeviceProfile:
    """The radio after so many months."""
    random = generator(world.seed, "threats", "drift", name)
    slope, walk = random.standard_normal(7), np.cumsum(random.standard_normal((MONTHS + 1, 7)), axis=0)[month]
    kelvin = SEASON_K * np.sin(2 * np.pi * month / 12) + DAY_K * random.standard_normal(MONTHS + 1)[month]
    moves = faster * (month > 0) * (PER_KELVIN * kelvin * slope + PER_MONTH * walk)
    spread = world.scene.hardware
    values = {
        own: getattr(profile, own) + float(by) * getattr(spread, own).std
        for own, by in zip(PARAMETERS, moves[:5], strict=True)
    }
    values["pa_backoff_db"] += faster * BACKOFF_DB * month
    phasor = 10 ** (profile.dc_offset_db / 20) * np.exp(1j * profile.dc_phase_rad)
    phasor += 10 ** (spread.dc_offset_db.mean / 20) * complex(*moves[5:])
    leakage = {"dc_offset_db": float(20 * np.log10(abs(phasor))), "dc_phase_rad": float(np.angle(phasor))}
    return replace(profile, **values, **leakage)


def between(one: DeviceProfile, other: DeviceProfile, way: float) -> DeviceProfile:
    """Hardware on the way from one radio to another."""
    names = (*PARAMETERS, "white_phase_deg", "linewidth_hz")
    values = {name: (1 - way) * getattr(one, name) + way * getattr(other, name) for name in names}
    a, b = (10 ** (each.dc_offset_db / 20) * np.exp(1j * each.dc_phase_rad) for each in (one, other))
    phasor = (1 - way) * a + way * b
    return replace(one, **values, dc_offset_db=float(20 * np.log10(abs(phasor))), dc_phase_rad=float(np.angle(phasor)))


def followed(
    world: World, claimed: int, sends: Callable[[int], DeviceProfile], sender: str
) -> tuple[list[Receiver], list[bool]]:
    """The receiver after each monthly update with frames of a sender, and which updates were refused."""
    receiver, refused = world.receivers[PARTS[0]], []
    name, total = world.devices[claimed], np.zeros(len(world.receivers[PARTS[0]].backend.frame))
    receivers = [receiver]
    for month in range(1, MONTHS + 1):
        observed = receiver.evidence(world.heard(f"{sender}-{month}", "E1/L1", FRAMES, sends(month), PREAMBLE))
        try:
            if outsiders(observed).sum() > max(1, MIXED * FRAMES):
                raise DataError("two senders")
            learnt = moved(receiver.backend, name, observed, np.full(FRAMES, month), total, name)
            total = total + learnt.mean - receiver.backend.devices[name].mean
            backend = replace(receiver.backend, devices=receiver.backend.devices | {name: learnt})
            receiver = replace(receiver, backend=backend)
            refused.append(False)
        except DataError:
            refused.append(True)
        receivers.append(receiver)
    return receivers, refused


@dataclass(frozen=True)
class Claim:
    """Frames under the address of a device, from a place where nothing was learnt."""

    world: World
    claimed: int

    def answers(self, receiver: Receiver, profile: DeviceProfile, sender: str) -> tuple[float, float]:
        """Share of single frames that are accepted, and whether the test of the address reports them."""
        evidence = receiver.evidence(self.world.heard(sender, "E1/L2", FRAMES, profile, PREAMBLE))
        return float(receiver.accepts(evidence, self.claimed).mean()), float(receiver.reported(evidence, self.claimed))


def over_months(claim: Claim, faster: float) -> dict[str, list[float]]:
    """By month: single frames accepted and devices reported, with a fixed fingerprint and an updated one."""
    world, name = claim.world, claim.world.devices[claim.claimed]
    own = [aged(world.profile(name), world, name, month, faster) for month in range(MONTHS + 1)]
    receivers, refused = followed(world, claim.claimed, lambda month: own[month], name)
    found = {"refused": [0.0, *map(float, refused)]}
    for kind, by_month in (("fixed", [receivers[0]] * len(own)), ("updated", receivers)):
        answers = [claim.answers(*each, f"{name}-{m}") for m, each in enumerate(zip(by_month, own, strict=True))]
        found[f"{kind}, accepted"], found[f"{kind}, reported"] = map(list, zip(*answers, strict=True))
    return found


def attacked(claim: Claim, stranger: str, patient: bool) -> dict[str, float]:
    """A year of updates with an attacker's frames: what the attacker and the device are told afterwards."""
    world, name = claim.world, claim.world.devices[claim.claimed]
    new, theirs = world.profile(name), world.profile(stranger)
    sends = (lambda month: between(new, theirs, month / MONTHS)) if patient else (lambda month: theirs)
    receivers, refused = followed(world, claim.claimed, sends, stranger)
    attacker, device = claim.answers(receivers[-1], theirs, stranger), claim.answers(receivers[-1], new, name)
    return {
        "refused": float(np.mean(refused)),
        **{"attacker accepted": attacker[0], "attacker reported": attacker[1]},
        **{"device accepted": device[0], "device reported": device[1]},
    }


def study(worlds: list[World], pairs: int) -> dict[str, Any]:
    months: dict[str, list[dict[str, list[float]]]] = {}
    attacks: dict[str, list[dict[str, float]]] = {}
    for world in worlds:
        for pair in range(pairs):
            claim = Claim(world, int(generator(world.seed, "threats", "victim", pair).integers(len(world.devices))))
            for faster in FASTER:
                months.setdefault(f"{faster:g}", []).append(over_months(claim, faster))
            for kind, patient in (("its own frames", False), ("step by step", True)):
                attacks.setdefault(kind, []).append(attacked(claim, f"X{pair:02d}", patient))
    by_speed = {
        faster: {name: np.round(np.mean([row[name] for row in rows], axis=0), 4).tolist() for name in rows[0]}
        for faster, rows in months.items()
    }
    return {"months": by_speed, "attacks": {kind: mean_of(rows) for kind, rows in attacks.items()}}
