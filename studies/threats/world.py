"""A receiver that knows ten radios, and whoever transmits to it: the same simulator, channels and closed form for all.

The radios, their rooms and the noise are those of the Wi-Fi scene. Frames carry one payload, which a receiver that has
decoded a frame knows: so a transmitter is measured by the preamble alone (320 samples, what the software uses) and by
the first 1,600 samples of the frame. The back-end is learnt from E2 and E3; everything below happens in E1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.randomness import generator
from pisa_capc.data.store.native import CaptureSpec
from pisa_capc.decide.identification.likelihood import likelihoods
from pisa_capc.model.gaussian import GaussianBackend, Observations, fit_backend
from pisa_capc.signal.measurement import FlawEstimator
from pisa_capc.signal.simulation.capture import device_profile, prepare, render
from pisa_capc.signal.simulation.hardware import DeviceProfile
from pisa_capc.signal.simulation.scene import Scene, load_scene
from pisa_capc.signal.waveforms import WAVEFORMS, register_waveform
from pisa_capc.signal.waveforms.wifi import PSDU_BYTES, WiFi, ppdu

DEVICES, LEARNT = 10, 24  # radios, and frames of each capture that they are learnt from
CAPTURES = ("L1", "L2", "L3")
PREAMBLE, WHOLE = 320, 1600  # samples
REJECTED = 0.05  # of a device's own single frames, at the limit
TOGETHER = 10  # frames of a sender that are decided as one
ALPHA = 0.01  # of `pisa verify` and the alarms
REPORTED = 40  # frames, within which an alarm is promised
SUSPECTED = 0.01
PARTS = ("preamble", "whole frame")

Frames = NDArray[np.complex64]
Real = NDArray[np.floating[Any]]


@register_waveform("wifi-decoded")
class DecodedWiFi(WiFi):
    """Wi-Fi whose payload is known: that of one frame, in all of them."""

    title = "Wi-Fi with a known payload"

    def preamble(self) -> NDArray[np.complex128]:
        octets = generator(0, "threats", "payload").integers(0, 256, (1, PSDU_BYTES), dtype=np.uint8)
        sent: NDArray[np.complex128] = ppdu(octets, np.array([93]))[0]
        return sent

    def head(self, samples: int) -> NDArray[np.complex128] | None:
        known = self.preamble()
        return np.pad(known, (0, max(0, samples - len(known))))[:samples]


@dataclass(frozen=True)
class World:
    """One draw of radios and rooms."""

    seed: int

    @cached_property
    def scene(self) -> Scene:
        scene = load_scene("wifi")
        return replace(scene, waveform=replace(scene.waveform, kind="wifi-decoded", samples=WHOLE), absent=())

    @cached_property
    def devices(self) -> list[str]:
        return [f"D{number:02d}" for number in range(1, DEVICES + 1)]

    def profile(self, name: str) -> DeviceProfile:
        return device_profile(self.scene, self.seed, name)

    def heard(
        self, name: str, place: str, frames: int, profile: DeviceProfile | None = None, samples: int = WHOLE
    ) -> Frames:
        """(frames, A, T) of who is called `name` in a place, E1/L1: its own hardware, or the profile."""
        environment, capture = place.split("/")
        scene = replace(self.scene, waveform=replace(self.scene.waveform, samples=samples))
        prepared = prepare(scene, self.seed, CaptureSpec(environment, name, capture, frames))
        if profile is not None:
            prepared = replace(prepared, profile=profile)
        return np.concatenate(list(render(prepared)))

    @cached_property
    def receivers(self) -> dict[str, Receiver]:
        """By what is measured: the preamble, or the whole frame."""
        places = [f"{environment}/{capture}" for environment in ("E2", "E3") for capture in CAPTURES]
        iq, device, place = [], [], []
        for k, name in enumerate(self.devices):
            for c, where in enumerate(places):
                iq.append(self.heard(name, where, LEARNT))
                device += [k] * LEARNT
                place += [c] * LEARNT
        every = np.concatenate(iq)
        estimators = FlawEstimator(WAVEFORMS["wifi"]), FlawEstimator(WAVEFORMS["wifi-decoded"], WHOLE)
        made = {}
        for part, estimator in zip(PARTS, estimators, strict=True):
            value, own = measured(estimator, every)
            backend = fit_backend(value, own, np.array(device), np.array(place), self.devices)
            drawn = backend.drawn(20_000, generator(self.seed, "threats", "limit"), own)
            limit = float(np.quantile(backend.strangeness(drawn), 1 - REJECTED))
            made[part] = Receiver(estimator, backend, limit)
        return made


def measured(estimator: FlawEstimator, iq: Frames, antennas: int | None = None) -> tuple[Real, Real]:
    """What the closed form sees of frames: flaws, and their errors, which are wider by the misfit."""
    found = estimator.measure(iq[:, :antennas])
    value, own = found.features()
    return value, own * np.maximum(1, found.misfit)[:, None, None]


@dataclass(frozen=True)
class Receiver:
    """limit: of `strangeness`, above which a frame is nobody's."""

    estimator: FlawEstimator
    backend: GaussianBackend
    limit: float

    def evidence(self, iq: Frames, antennas: int | None = None) -> Observations:
        return self.backend.evidence(*measured(self.estimator, iq, antennas))

    def accepts(self, evidence: Observations, claimed: int) -> NDArray[np.bool_]:
        """(N,) whether an observation is taken for the device."""
        mine = self.backend.log_likelihood(evidence).argmax(axis=1) == claimed
        return np.asarray(mine & (self.backend.strangeness(evidence) <= self.limit))

    def together(self, evidence: Observations, frames: int = TOGETHER) -> Observations:
        """Successive frames of one sender, decided as one."""
        return evidence.pooled(np.arange(len(evidence)) // frames)

    def reported(self, evidence: Observations, claimed: int) -> bool:
        """Whether the test of a claimed address finds out within `REPORTED` frames."""
        assert evidence.own is not None, "every frame was measured"
        seen = slice(0, REPORTED)
        track = np.zeros(len(evidence.value[seen]), dtype=np.int64).tolist()
        numbered = GaussianBackend(
            {str(k): device for k, device in enumerate(self.backend.devices.values())},
            self.backend.frame,
            self.backend.place,
        )
        against, _ = likelihoods(numbered, claimed, track, evidence.value[seen], evidence.own[seen])
        return bool((against >= -np.log(ALPHA)).any())

    def outcome(self, iq: Frames, claimed: int) -> dict[str, float]:
        """Of frames of one sender that claims to be a device."""
        evidence = self.evidence(iq)
        return {
            "accepted": float(self.accepts(evidence, claimed).mean()),
            f"accepted_{TOGETHER}": float(self.accepts(self.together(evidence), claimed).mean()),
            "reported": float(self.reported(evidence, claimed)),
            "suspected": float(np.mean(self.estimator.measure(iq).suspicion < SUSPECTED)),
        }


def mean_of(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(float(np.mean([row[name] for row in rows])), 4) for name in rows[0]}
