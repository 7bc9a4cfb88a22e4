"""A replay: what the victim sent is recorded, and sent again by another front end.

The recorder's receiver adds an image and leakage of its own, its noise, and the channel to it; the transmitter adds
its image, leakage, amplifier and phase noise. `quality` scales all flaws of both at once: 1 is a radio like those
that are enrolled, 0 a perfect one. The carrier is known to the attacker and matched exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pisa_capc.core.randomness import generator
from pisa_capc.data.store.native import CaptureSpec
from pisa_capc.signal.simulation.capture import arrive, prepare, render
from pisa_capc.signal.simulation.hardware import DeviceProfile, dc_offset, image_rejection_db, iq_imbalance, transmit
from pisa_capc.signal.simulation.receiver import add_noise, level
from studies.threats.world import PARTS, Frames, World, mean_of

QUALITIES = (1.0, 0.3, 0.1, 0.03, 0.0)
RECORDED_SNR_DB = 40.0  # of a recorder beside the victim
SPARE = 64  # samples that a recording is longer than the frame


def scaled(profile: DeviceProfile, quality: float) -> DeviceProfile:
    """The radio with flaws of that part: an amplifier's phase follows the power in it."""
    with np.errstate(divide="ignore"):
        db = float(20 * np.log10(quality)) if quality else -np.inf
    return replace(
        profile,
        cfo_ppm=0.0,
        iq_gain_db=profile.iq_gain_db * quality,
        iq_phase_deg=profile.iq_phase_deg * quality,
        dc_offset_db=profile.dc_offset_db + db,
        pa_backoff_db=profile.pa_backoff_db - db / 2,
        white_phase_deg=profile.white_phase_deg * quality,
        linewidth_hz=profile.linewidth_hz * quality,
    )


def recorded(world: World, victim: str, by_cable: bool, frames: int) -> Frames:
    """(frames, T + spare) what one antenna of the attacker hears: beside the victim, or in the room."""
    scene = replace(world.scene, waveform=replace(world.scene.waveform, samples=world.scene.waveform.samples + SPARE))
    capture = prepare(scene, world.seed, CaptureSpec("E1", victim, "L1", frames))
    taps = capture.taps
    if by_cable:
        taps = np.zeros_like(taps)
        taps[..., scene.waveform.channel_half_width_samples] = 1
    return np.concatenate(list(render(replace(capture, taps=taps, snr_db=RECORDED_SNR_DB))))[:, 0]


def replayed(world: World, victim: str, attacker: str, quality: float, by_cable: bool, frames: int) -> Frames:
    """(frames, A, T) what the receiver hears of the attacker, who sends the recording from a place of its own."""
    ear, mouth = (scaled(world.profile(f"{attacker}-{part}"), quality) for part in ("receiver", "transmitter"))
    heard = iq_imbalance(recorded(world, victim, by_cable, frames), ear.iq_gain_db, ear.iq_phase_deg)
    heard = dc_offset(heard, ear.dc_offset_db, ear.dc_phase_rad)
    signal = world.scene.waveform
    sent = transmit(heard, mouth, signal.occupied)
    capture = prepare(world.scene, world.seed, CaptureSpec("E1", attacker, "L1", frames))
    half, taps = signal.channel_half_width_samples, capture.taps.shape[-1]
    sent = np.pad(sent[:, : signal.samples + half], ((0, 0), (taps - 1 - half, 0)))
    phase_noise = capture.stream("phase-noise")
    frequency = np.zeros_like(capture.residual_hz)
    y = arrive(sent, mouth, capture.taps, frequency, capture.phase_rad, signal.sample_rate_hz, phase_noise)
    return level(add_noise(capture.stream("noise"), y, capture.snr_db), world.scene.receiver.equalise_antennas)


def study(worlds: list[World], pairs: int, frames: int) -> dict[str, Any]:
    """By how the recording was made and the front end's quality; the victims themselves and strangers beside them."""
    table: dict[str, Any] = {"rejection_db": {}}
    cases: dict[str, list[tuple[World, int, Frames]]] = {}
    for world in worlds:
        for pair in range(pairs):
            claimed = int(generator(world.seed, "threats", "victim", pair).integers(len(world.devices)))
            victim, attacker = world.devices[claimed], f"X{pair:02d}"
            cases.setdefault("the device itself", []).append((world, claimed, world.heard(victim, "E1/L1", frames)))
            cases.setdefault("a stranger", []).append((world, claimed, world.heard(attacker, "E1/L1", frames)))
            for by_cable in (True, False):
                for quality in QUALITIES:
                    name = f"{'beside it' if by_cable else 'across the room'}, {quality:g}"
                    heard = replayed(world, victim, attacker, quality, by_cable, frames)
                    cases.setdefault(name, []).append((world, claimed, heard))
    for quality in QUALITIES[:-1]:
        radios = [
            scaled(world.profile(f"X{pair:02d}-transmitter"), quality) for world in worlds for pair in range(pairs)
        ]
        each = [image_rejection_db(radio.iq_gain_db, radio.iq_phase_deg) for radio in radios]
        table["rejection_db"][f"{quality:g}"] = round(float(np.median(each)), 1)
    for part in PARTS:
        table[part] = {
            name: mean_of([world.receivers[part].outcome(iq, claimed) for world, claimed, iq in own])
            for name, own in cases.items()
        }
    return table
