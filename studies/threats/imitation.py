"""An impersonator who matches flaws of the victim: how many, to which accuracy, and what more antennas or frames give.

The flaws are three: the image (gain and phase of the modulator), the leakage, the amplifier. The first k of them, in an
order that is drawn anew for every attacker, are the victim's, each parameter with a normal error of ε times the spread
of the radios; the others are the attacker's own. ε = 0 is an exact copy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pisa_capc.core.randomness import generator
from pisa_capc.signal.simulation.hardware import DeviceProfile, HardwareSpread
from studies.threats.world import PARTS, REPORTED, Frames, World, mean_of

ERRORS = (0.0, 0.03, 0.1, 0.3, 1.0)
ANTENNAS, TOGETHER = (1, 2, 4), (1, 3, 10, 30)
MATCHED = {
    "image": ("iq_gain_db", "iq_phase_deg"),
    "leakage": ("dc_offset_db", "dc_phase_rad"),
    "amplifier": ("pa_backoff_db", "pa_smoothness", "pa_am_pm_deg"),
}


def imitated(
    victim: DeviceProfile,
    own: DeviceProfile,
    spread: HardwareSpread,
    matched: int,
    error: float,
    random: np.random.Generator,
) -> DeviceProfile:
    """The attacker's radio. Leakage is a phasor: its error is a part of the usual one, in any direction."""
    order = random.permutation(list(MATCHED))[:matched].tolist()
    values = {name: getattr(victim, name) for kind in order for name in MATCHED[kind]}
    for name in values:
        if name not in MATCHED["leakage"]:
            values[name] += error * getattr(spread, name).std * random.standard_normal()
    if "leakage" in order:
        usual = 10 ** (spread.dc_offset_db.mean / 20)
        off = error * usual * random.standard_normal(2) @ np.array([1, 1j]) / np.sqrt(2)
        phasor = 10 ** (victim.dc_offset_db / 20) * np.exp(1j * victim.dc_phase_rad) + off
        values |= {"dc_offset_db": float(20 * np.log10(abs(phasor))), "dc_phase_rad": float(np.angle(phasor))}
    return replace(own, **values)


def study(worlds: list[World], pairs: int, frames: int) -> dict[str, Any]:
    table: dict[str, Any] = {part: {} for part in PARTS}
    pooled: dict[str, list[float]] = {}
    for matched in range(len(MATCHED) + 1):
        for error in ERRORS if matched else ERRORS[:1]:
            rows: dict[str, list[dict[str, float]]] = {part: [] for part in PARTS}
            for world in worlds:
                for pair in range(pairs):
                    random = generator(world.seed, "threats", "imitation", pair)  # the same order for every ε and k
                    claimed = int(generator(world.seed, "threats", "victim", pair).integers(len(world.devices)))
                    attacker = f"X{pair:02d}"
                    copy = imitated(
                        world.profile(world.devices[claimed]), world.profile(attacker), world.scene.hardware, matched,
                        error, random,
                    )  # fmt: skip
                    iq = world.heard(attacker, "E1/L1", frames, copy)
                    for part in PARTS:
                        rows[part].append(world.receivers[part].outcome(iq, claimed))
                    if matched == len(MATCHED):
                        _by_antennas(world, iq, claimed, error, pooled)
            for part in PARTS:
                table[part][f"{matched}, {error:g}"] = mean_of(rows[part])
    table["antennas, frames, error"] = {name: round(float(np.mean(values)), 4) for name, values in pooled.items()}
    table["reported_within"] = REPORTED
    return table


def _by_antennas(world: World, iq: Frames, claimed: int, error: float, found: dict[str, list[float]]) -> None:
    receiver = world.receivers[PARTS[0]]
    for antennas in ANTENNAS:
        evidence = receiver.evidence(iq, antennas)
        for together in TOGETHER:
            whole = evidence.select(np.arange(len(evidence) // together * together))
            accepted = receiver.accepts(receiver.together(whole, together), claimed)
            found.setdefault(f"{antennas}, {together}, {error:g}", []).append(float(accepted.mean()))
