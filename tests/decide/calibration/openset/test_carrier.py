"""A stranger has to be like one and the same device in fingerprint and carrier to be taken for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pisa_capc.core.errors import DataError
from pisa_capc.core.randomness import generator
from pisa_capc.decide.calibration import UCAPC, OpenSet, SourceStatistics
from pisa_capc.decide.calibration.openset.carrier import CarrierDistance
from pisa_capc.decide.enrolment.statistics import with_device, without_device
from pisa_capc.model.inference.statistics import openset_statistics

CLASSES, FEATURES, PLACES, FRAMES = 5, 6, 2, 40
APART, SPREAD, MOVES = 8.0, 1.0, 0.5
CRYSTALS_HZ, JITTER_HZ, WANDER_HZ = 20_000.0, 250.0, 1_500.0  # standard deviations of devices, frames and sessions
ALPHA = 0.05


class Radios:
    """Classes with a fingerprint and a crystal of their own; sessions and frames are off both."""

    def __init__(self) -> None:
        self.draw = generator(11, "carrier-example")
        self.classes = APART * self.draw.normal(size=(CLASSES, FEATURES))
        self.crystals_hz = CRYSTALS_HZ * self.draw.normal(size=CLASSES)
        cells = np.array([(k, p, c) for k in range(CLASSES) for p in range(PLACES) for c in range(3)])
        z, carrier_hz = self.sessions(cells[:, 0], FRAMES)
        label, where = np.repeat(cells[:, 0], FRAMES), np.repeat(cells[:, 1:], FRAMES, axis=0)
        held = np.arange(len(z)) % 3 == 0
        made = openset_statistics(
            *(z[~held], label[~held], z[held], z[held] @ self.classes.T, label[held], where[~held], where[held]),
            *(carrier_hz[~held], carrier_hz[held]),
        )
        arrays = {name: value.numpy() for name, value in made.items()}
        self.source = SourceStatistics(weight=self.classes, bias=np.zeros(CLASSES), mean=z.mean(axis=0), **arrays)

    def sessions(
        self, sounds: np.ndarray, frames: int, sends: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Frames of new sessions that sound like devices and send at the carriers of `sends` (the same unless told)."""
        means = self.classes[sounds] + MOVES * self.draw.normal(size=(len(sounds), FEATURES))
        carriers = self.crystals_hz[sounds if sends is None else sends] + WANDER_HZ * self.draw.normal(size=len(sounds))
        z = np.repeat(means, frames, axis=0) + SPREAD * self.draw.normal(size=(len(sounds) * frames, FEATURES))
        return z, np.repeat(carriers, frames) + JITTER_HZ * self.draw.normal(size=len(z))

    def known(self, z: np.ndarray, carrier_hz: np.ndarray, score: str = "carrier") -> np.ndarray:
        result = OpenSet(UCAPC(), score, ALPHA).calibrate(
            z, z @ self.classes.T, source=self.source, carrier_hz=carrier_hz
        )
        return np.asarray(result.known)


RADIOS = Radios()
LABEL = np.arange(1000) % CLASSES


def test_how_carriers_spread_is_found() -> None:
    assert float(RADIOS.source.carrier_variance_hz2) == pytest.approx(JITTER_HZ**2, rel=0.2)
    off = RADIOS.source.session_carrier_hz - RADIOS.crystals_hz[RADIOS.source.session_label]
    assert 0.6 < off.std() / WANDER_HZ < 1.4


def test_known_devices_are_rejected_as_often_as_the_threshold_says_in_a_new_place() -> None:
    assert (~RADIOS.known(*RADIOS.sessions(LABEL, 1))).mean() < 1.5 * ALPHA


def test_one_who_sounds_like_one_device_and_sends_like_another_is_a_stranger() -> None:
    z, carrier_hz = RADIOS.sessions(LABEL, 1, (LABEL + 1) % CLASSES)
    nearest = min(abs(a - b) for a, b in zip(RADIOS.crystals_hz, np.roll(RADIOS.crystals_hz, -1), strict=True))
    assert nearest > 2 * WANDER_HZ  # or the example shows nothing
    assert RADIOS.known(z, carrier_hz).mean() < 0.5 < RADIOS.known(z, carrier_hz, "session").mean()


def test_frames_of_a_sender_share_their_mean_carrier() -> None:
    z, carrier_hz = RADIOS.sessions(LABEL[:20], 10)
    sender = np.repeat(np.arange(20), 10)
    frames = z, z @ RADIOS.classes.T
    score = np.asarray(
        OpenSet(UCAPC(), "carrier").calibrate(*frames, source=RADIOS.source, sender=sender, carrier_hz=carrier_hz)
        .unknown_score
    )  # fmt: skip
    even = np.repeat(carrier_hz.reshape(20, 10).mean(axis=1), 10)
    again = OpenSet(UCAPC(), "carrier").calibrate(*frames, source=RADIOS.source, sender=sender, carrier_hz=even)
    np.testing.assert_allclose(score, again.unknown_score, rtol=1e-9)


def test_a_device_more_and_one_less_keep_their_carriers() -> None:
    own = RADIOS.sessions(np.zeros(1, dtype=np.int64), 30)
    before = replace(RADIOS.source, confusion=60 * np.eye(CLASSES))

    def row(source: SourceStatistics, z: np.ndarray) -> tuple[np.ndarray, float]:
        return z.mean(axis=0), 0.0

    more = with_device(before, own[0], row, own[1])
    assert more.session_carrier_hz[-1] == pytest.approx(own[1].mean())
    assert len(more.validation_carrier_hz) == len(more.validation)
    less = without_device(more, 0)
    np.testing.assert_array_equal(less.session_carrier_hz, more.session_carrier_hz[more.session_label != 0])
    assert len(less.validation_carrier_hz) == len(less.validation)
    silent = with_device(before, own[0], row)  # enrolled from frames whose CFO nobody noted
    assert silent.session_carrier_hz is None
    assert silent.validation_carrier_hz is None


def test_what_is_missing_is_said() -> None:
    z, carrier_hz = RADIOS.sessions(LABEL[:30], 1)
    frames = z, z @ RADIOS.classes.T
    rejection = OpenSet(UCAPC(), "carrier")
    with pytest.raises(DataError, match=r"the training set has no CFO, or an earlier version .* as session"):
        rejection.calibrate(*frames, source=replace(RADIOS.source, session_carrier_hz=None), carrier_hz=carrier_hz)
    with pytest.raises(DataError, match=r"cfo_hz, which is not with these scores\. .* as session"):
        rejection.calibrate(*frames, source=RADIOS.source)
    for wrong in (carrier_hz[:-1], np.where(carrier_hz > 0, np.nan, carrier_hz)):
        with pytest.raises(DataError, match="expected a finite number of Hz for each of the 30 frames"):
            rejection.calibrate(*frames, source=RADIOS.source, carrier_hz=wrong)


def test_carriers_that_never_move_are_measured_no_better_than_a_receiver_can() -> None:
    still = replace(
        RADIOS.source,
        session_carrier_hz=RADIOS.crystals_hz[RADIOS.source.session_label],
        carrier_variance_hz2=np.zeros(()),
    )
    like = torch.zeros(1, FEATURES, dtype=torch.float64)
    assert np.isfinite(CarrierDistance().limit(still, CLASSES, like, ALPHA).threshold)
