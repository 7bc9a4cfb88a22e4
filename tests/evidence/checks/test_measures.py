"""The parts of the check, where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from pisa_capc.data.frames import Frames
from pisa_capc.evidence.checks.measure import clipped, copied_antennas, draw_sample, spread_pairs
from pisa_capc.evidence.checks.naming import Directions, Numbers, balanced, recalls, wilson
from pisa_capc.evidence.checks.sounding import ArraySounder, PreambleSounder, choose_sounder, directions
from pisa_capc.signal.waveforms import WAVEFORMS

RATES = {"wifi": 20e6, "lora": 1e6}


def noise(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Circular, E|z|² = 1."""
    return rng.normal(0, np.sqrt(0.5), (*shape, 2)) @ [1, 1j]


def received(rng: np.random.Generator, waveform: str, taps: np.ndarray, snr_db: float, offset_hz: float) -> np.ndarray:
    """(N, A, 320) the preamble behind channels (N, A, L), each frame with a phase of its own."""
    sent = WAVEFORMS[waveform].preamble()[:320]
    frames, antennas, _ = taps.shape
    y = np.array([[np.convolve(sent, h)[:320] for h in own] for own in taps])
    y *= np.exp(2j * np.pi * (offset_hz / RATES[waveform] * np.arange(320) + rng.random((frames, 1, 1))))
    power = np.mean(np.abs(y) ** 2, axis=-1, keepdims=True)
    y += np.sqrt(power * 10 ** (-snr_db / 10)) * noise(rng, frames, antennas, 320)
    return y.astype(np.complex64)


class TestSounding:
    @pytest.mark.parametrize("waveform", ["wifi", "lora"])
    @pytest.mark.parametrize("snr_db", [5.0, 20.0, 35.0])
    def test_snr_and_offset_are_those_that_were_sent(self, waveform: str, snr_db: float) -> None:
        rng = np.random.default_rng(3)
        offset_hz = RATES[waveform] / 2000
        echoes = 3 if waveform == "wifi" else 1  # a chirp that comes later is at a lower frequency
        y = received(rng, waveform, noise(rng, 200, 3, echoes), snr_db, offset_hz)
        found = PreambleSounder(WAVEFORMS[waveform], 320).sound(y)
        assert found.snr_db is not None
        assert found.offset_hz is not None
        assert np.median(found.snr_db) == pytest.approx(snr_db, abs=1)
        assert np.median(found.offset_hz) == pytest.approx(offset_hz, rel=0.15)

    def test_two_frames_through_one_channel_have_one_direction_and_through_two_have_two(self) -> None:
        rng = np.random.default_rng(4)
        channels = noise(rng, 2, 4, 3)
        y = received(rng, "wifi", channels[[0, 0, 1]], 30, 1e3)
        for sounder in (PreambleSounder(WAVEFORMS["wifi"], 320), ArraySounder.of_frames(y)):
            channel = sounder.sound(y).channel
            alike = Directions().likeness(channel, channel) / channel.shape[1]
            assert alike[0, 1] > 0.98
            assert alike[0, 2] < 0.9

    def test_the_sounder_is_chosen_by_what_frames_begin_with(self) -> None:
        rng = np.random.default_rng(5)
        wifi = received(rng, "wifi", noise(rng, 50, 2, 2), 15, 0)
        assert isinstance(choose_sounder(wifi, 20e6), PreambleSounder)
        assert isinstance(choose_sounder(wifi, 5e6), ArraySounder)
        assert isinstance(choose_sounder(noise(rng, 50, 2, 320).astype(np.complex64), 20e6), ArraySounder)
        assert choose_sounder(wifi[:, :1], 5e6) is None
        assert choose_sounder(wifi[..., :40], 20e6) is not None  # too short for the preamble to be told


class TestNaming:
    devices = np.repeat(np.arange(5), 40)
    first = np.tile(np.arange(40) < 20, 5)

    def accuracy(self, channel: np.ndarray, every: bool = False) -> float:
        found = balanced(recalls(Directions(), channel, self.devices, self.first, ~self.first, every))
        assert found is not None
        assert found.chance == pytest.approx(0.2)
        assert found.observations == 5
        return found.accuracy

    def test_channels_that_stay_name_their_device_whatever_their_phase(self) -> None:
        rng = np.random.default_rng(6)
        own = noise(rng, 5, 1, 8)[self.devices] * np.exp(2j * np.pi * rng.random((200, 1, 1)))
        assert self.accuracy(directions(own + 0.3 * noise(rng, 200, 1, 8))) == 1.0

    def test_channels_that_do_not_are_guessed(self) -> None:
        rng = np.random.default_rng(7)
        found = self.accuracy(directions(noise(rng, 200, 1, 8)))
        assert abs(found - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 100)

    def test_the_nearest_frame_finds_a_channel_that_only_neighbours_share(self) -> None:
        """Frames 2s and 2s + 1 share a channel; means over all of them tell nothing."""
        rng = np.random.default_rng(8)
        shared = np.repeat(noise(rng, 100, 1, 8), 2, axis=0) + 0.1 * noise(rng, 200, 1, 8)
        even = np.arange(200) % 2 == 0
        near = balanced(recalls(Directions(), directions(shared), self.devices, even, ~even, every=True))
        mean = balanced(recalls(Directions(), directions(shared), self.devices, self.first, ~self.first))
        assert near is not None
        assert mean is not None
        assert near.accuracy == 1.0
        assert mean.accuracy < 0.4

    def test_numbers_are_named_by_the_nearest_median(self) -> None:
        rng = np.random.default_rng(9)
        x = 10.0 * self.devices + rng.normal(size=200)
        found = balanced(recalls(Numbers(), x, self.devices, self.first, ~self.first))
        assert found is not None
        assert found.accuracy == 1.0

    def test_who_is_not_known_is_not_asked_about(self) -> None:
        known = self.first & (self.devices < 2)
        found = recalls(Numbers(), 1.0 * self.devices, self.devices, known, ~self.first)
        assert found == [(1.0, 0.5), (1.0, 0.5)]
        assert recalls(Numbers(), 1.0 * self.devices, self.devices, known & (self.devices < 1), ~self.first) == []
        assert balanced([]) is None

    @pytest.mark.parametrize(("right", "of"), [(0, 7), (3, 10), (20, 20), (119, 238)])
    def test_the_interval_is_that_of_wilson(self, right: int, of: int) -> None:
        expected = binomtest(right, of).proportion_ci(method="wilson")
        assert wilson(right / of, of) == pytest.approx((expected.low, expected.high), abs=1e-4)


class TestSample:
    @pytest.mark.parametrize(("length", "most"), [(5, 6), (6, 6), (7, 6), (13, 12), (1000, 64)])
    def test_pairs_are_neighbours_spread_over_the_whole_and_no_frame_comes_twice(self, length: int, most: int) -> None:
        times = spread_pairs(length, most)
        assert len(times) == min(length, most)
        assert len(np.unique(times)) == len(times)
        assert times[0] == 0
        assert length - times[-1] <= 2
        if length > most:
            assert (times[1::2] - times[::2] == 1).all()
            assert np.ptp(np.diff(times[::2])) <= 2

    def test_each_recording_is_taken_in_the_order_of_time(self) -> None:
        rng = np.random.default_rng(0)
        order = rng.permutation(90)
        frames = Frames.from_arrays(
            rng.normal(size=(90, 1, 4)), device=np.where(order < 30, "a", "b"), frame=np.where(order < 30, order, order)
        )
        sample = draw_sample(frames, 12)
        assert np.bincount(sample.recording).tolist() == [12, 12]
        for r in range(2):
            assert (np.diff(frames.frame[sample.position[sample.recording == r]]) > 0).all()
            assert np.bincount(sample.third[sample.recording == r]).tolist() == [4, 4, 4]


class TestSamples:
    @pytest.mark.parametrize("cut", [1.0, 1.5, 2.0])
    def test_clipping_is_seen_in_noise_like_signals(self, cut: float) -> None:
        rng = np.random.default_rng(10)
        whole = np.sqrt(2) * noise(rng, 100, 2, 320)
        assert clipped(whole.astype(np.complex64)).sum() == 0
        cut_off = np.clip(whole.real, -cut, cut) + 1j * np.clip(whole.imag, -cut, cut)
        assert clipped(cut_off.astype(np.complex64)).mean() > 0.95

    def test_quantisation_is_no_clipping(self) -> None:
        rng = np.random.default_rng(11)
        chirp = WAVEFORMS["lora"].preamble()[:320] * np.exp(2j * np.pi * rng.random((100, 1, 1)))
        for signal in (noise(rng, 100, 1, 320), chirp + 0.03 * noise(rng, 100, 1, 320)):
            coarse = np.round(40 * signal.real) + 1j * np.round(40 * signal.imag)
            assert clipped(coarse.astype(np.complex64)).mean() < 0.01

    def test_antennas_are_copies_only_if_their_noise_is(self) -> None:
        rng = np.random.default_rng(12)
        one = noise(rng, 20, 1, 320)
        other = (2 - 1j) * one
        iq = np.concatenate([one, other, other + 0.01 * noise(rng, 20, 1, 320), 0 * one], axis=1).astype(np.complex64)
        found = copied_antennas(iq)
        assert found[:, 0, 1].all()
        assert not found[:, 0, 2].any()
        assert not found[:, :, 3].any()
