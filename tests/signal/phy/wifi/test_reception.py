"""What was sent comes out of noise, echoes, offsets and cuts; what did not come through is not made up."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import resample_poly

from pisa_capc.signal.phy import Header
from pisa_capc.signal.phy.wifi import fronts, mac, receive, transmit, transmit_ht
from pisa_capc.signal.phy.wifi.coding import HT, RATE_BITS
from pisa_capc.signal.phy.wifi.demodulate import SHORT, Fronts
from pisa_capc.signal.phy.wifi.reception import _octets
from pisa_capc.signal.phy.wifi.signal import DATA_START
from pisa_capc.signal.waveforms import wifi

TO, FROM, BSS = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"
CFO_HZ = 113e3

# The only DATA symbol, without its guard interval, of ten octets and their checksum at MCS 7 (64-QAM, rate 5/6), as I
# and Q at a scale of 2¹⁵ for an inverse DFT of 1/64: from openofdm's test inputs, simulated/ht_mcs7_gi1_aggr0_len14.
THEIR_SYMBOL = """
234 -3792 -603 -5022 -3413 6498 297 1223 -4570 -3567 -2438 1888 1530 -2282 4712 -2579 -281 -1099 -2509 -446 1990
1199 -2096 3982 2791 2116 -2443 -6405 -3697 -2716 -1098 2504 -5056 1978 946 3082 555 2363 -1735 -622 -20 1036
3217 -519 1310 -51 1097 4488 3164 -1791 -1096 2201 -2012 1919 2419 -3047 5457 574 -1122 -989 -2844 -730 38 -4910
-1182 -2844 -905 -546 1070 -116 2612 -376 2102 -4232 3071 67 1535 -1834 -1525 1056 281 -1429 2136 -3021 -2304
5280 92 76 1017 -127 112 -302 4599 -3159 435 -681 1580 234 -1707 -323 1048 474 1242 3268 -8257 2338 2876 -1845
2622 -1630 -965 6385 1260 3688 686 -457 -1990 2608 -3354 29 1480 1861 -2751 -3 1 -2767 358 1843
"""


def _frame(octets: int = 100, tid: int | None = 0) -> bytes:
    return mac.data(TO, FROM, BSS, np.random.default_rng(octets).bytes(octets), from_ds=True, tid=tid)


def _through_air(
    sent: NDArray[np.complex128],
    seed: int,
    *,
    snr_db: float = 30,
    antennas: int = 2,
    echoes: int = 8,
    cfo_hz: float | NDArray[np.float64] = CFO_HZ,
) -> NDArray[np.complex64]:
    """Echoes that die away over a few samples, each antenna's own; CFO, phase and noise."""
    rng = np.random.default_rng(seed)
    taps = rng.standard_normal((antennas, echoes, 2)) @ [1, 1j] * np.exp(-np.arange(echoes) / 2)
    taps /= np.linalg.norm(taps, axis=1, keepdims=True)
    heard = np.stack([np.convolve(sent, own)[: len(sent)] for own in taps])
    turn = np.exp(2j * np.pi * np.reshape(cfo_hz, (-1, 1)) / 20e6 * np.arange(len(sent)))
    noise = rng.standard_normal((*heard.shape, 2)) @ [1, 1j] * 10 ** (-snr_db / 20) / np.sqrt(2)
    return (heard * turn + noise).astype(np.complex64)


def _addresses(header: Header) -> tuple[str | None, str | None, bool | None]:
    return header.transmitter, header.receiver, header.fcs


@pytest.mark.parametrize("rate", RATE_BITS)
def test_all_rates_come_through(rate: float) -> None:
    frame = _frame()
    heard = [_through_air(transmit(frame, rate, 1 + seed), seed) for seed in range(4)]
    for header in receive(heard, [CFO_HZ] * 4):
        assert header == Header("qos-data", rate, len(frame), FROM, TO, True)
    assert [f and f.signal and f.signal.samples for f in fronts(heard, [CFO_HZ] * 4)] == [heard[0].shape[1]] * 4


@pytest.mark.parametrize("short_guard", [False, True])
@pytest.mark.parametrize("mcs", range(8))
def test_all_single_stream_ht_rates_come_through(mcs: int, short_guard: bool) -> None:
    frame = _frame()
    rate = round(HT[mcs].rate_mbps * (10 / 9 if short_guard else 1), 1)
    sent = transmit_ht(frame, mcs, 17, short_guard=short_guard)
    heard = [_through_air(sent, seed, snr_db=35, echoes=4) for seed in range(3)]
    for header in receive(heard, [CFO_HZ] * 3):
        assert header == Header("qos-data", rate, len(frame), FROM, TO, True)
    for front in fronts(heard, [CFO_HZ] * 3):
        assert front is not None
        assert front.signal is not None
        assert 0 <= front.signal.samples - len(sent) < wifi.SYMBOL_SAMPLES


def test_the_symbol_of_another_program_has_a_right_checksum() -> None:
    heard = transmit_ht(bytes(14), 7, 1, short_guard=True)
    theirs = np.array(THEIR_SYMBOL.split(), dtype=float).reshape(64, 2) @ [1, 1j] / 2**15 * 64 / np.sqrt(56)
    heard[720:] = np.concatenate([theirs[-8:], theirs])
    assert receive([heard[None].astype(np.complex64)], [0.0]) == [Header("ht-mixed", 72.2, 14, None, None, True)]


@pytest.mark.parametrize(
    ("frame", "kind", "addresses"),
    [
        (mac.data(TO, FROM, BSS), "data", (FROM, TO, True)),
        (mac.beacon(FROM, "net"), "beacon", (FROM, mac.BROADCAST, True)),
        (mac.ack(TO), "ack", (None, TO, True)),
        (mac.cts(TO), "cts", (None, TO, True)),
        (mac.rts(TO, FROM), "rts", (FROM, TO, True)),
    ],
)
def test_every_kind_is_named(frame: bytes, kind: str, addresses: tuple[str | None, str | None, bool | None]) -> None:
    (header,) = receive([_through_air(transmit(frame, 12, 5), 0)], [CFO_HZ])
    assert header.kind == kind
    assert _addresses(header) == addresses


# Signal-to-noise ratio [dB] at which 500 octets still come through one flat channel, with a few dB to spare over an
# ideal receiver (about 1, 8 and 18 dB).
@pytest.mark.parametrize(("rate", "enough_db"), [(6, 6), (24, 13), (54, 23)])
def test_frames_come_through_a_little_above_what_theory_asks_for_and_not_far_below(
    rate: float, enough_db: float
) -> None:
    sent = transmit(_frame(470), rate, 99)
    for snr_db, errors in ((enough_db, range(2)), (enough_db - 9, range(20, 21))):
        heard = [_through_air(sent, seed, snr_db=snr_db, antennas=1, echoes=1) for seed in range(20)]
        assert sum(header.fcs is not True for header in receive(heard, [CFO_HZ] * 20)) in errors


def test_four_antennas_hear_what_one_does_not() -> None:
    sent = transmit(_frame(), 6, 99)
    right = {}
    for antennas in (1, 4):
        heard = [_through_air(sent, seed, snr_db=0, antennas=antennas) for seed in range(12)]
        right[antennas] = sum(header.fcs is True for header in receive(heard, [CFO_HZ] * 12))
    assert right[4] >= 11
    assert right[1] <= 6


def test_a_wrong_cfo_and_antennas_that_differ_are_made_good() -> None:
    frame = _frame(1400)
    offsets = CFO_HZ + np.array([-150.0, 0.0, 60.0, 170.0])
    heard = _through_air(transmit(frame, 6, 1), 0, snr_db=8, antennas=4, cfo_hz=offsets)
    for told in (CFO_HZ + 40e3, offsets + np.array([9e3, -9e3, 4e3, 0])):
        assert _addresses(receive([heard], [told])[0]) == (FROM, TO, True)


@pytest.mark.parametrize(("up", "down"), [(25000, 24999), (24999, 25000)])
def test_sampling_clocks_may_drift_apart_by_40_ppm(up: int, down: int) -> None:
    # Over the 2 ms of this frame the clocks part by more than a sample and a half.
    sent = np.concatenate([transmit(_frame(1400), 6, 1), np.zeros(100)])
    fine = resample_poly(sent, 16, 1)
    drifted = np.interp(np.arange(len(sent)) * 16 * up / down, np.arange(len(fine)), fine)
    (header,) = receive([_through_air(drifted, 0, snr_db=15)], [CFO_HZ])
    assert _addresses(header) == (FROM, TO, True)


@pytest.mark.parametrize("late", [-4, -1, 1, 2])
def test_a_start_that_is_some_samples_off_does_no_harm(late: int) -> None:
    heard = _through_air(np.concatenate([np.zeros(8), transmit(_frame(), 24, 1), np.zeros(8)]), 0, echoes=4)
    assert receive([heard[:, 8 + late :]], [CFO_HZ])[0].fcs is True


def test_a_wrong_checksum_gives_no_addresses() -> None:
    frame = bytearray(_frame())
    frame[60] ^= 1
    for sent, kind in ((transmit(bytes(frame), 12, 1), "non-ht"), (transmit_ht(bytes(frame), 2, 1), "ht-mixed")):
        heard = [_through_air(sent, 0)]
        (header,) = receive(heard, [CFO_HZ])
        assert (header.kind, header.length, *_addresses(header)) == (kind, len(frame), None, None, False)
        (unchecked,) = receive(heard, [CFO_HZ], header_only=True)
        assert _addresses(unchecked) == (FROM, TO, None)


@pytest.mark.parametrize("send", [lambda f: transmit(f, 12, 1), lambda f: transmit_ht(f, 1, 1)])
def test_a_frame_that_is_cut_says_as_much_as_is_there(send: Callable[[bytes], NDArray[np.complex128]]) -> None:
    sent = send(_frame())
    heard = _through_air(sent, 0)
    for samples in range(0, len(sent), 37):
        (header,) = receive([heard[:, :samples]], [CFO_HZ])
        assert header.fcs is None
        assert header.transmitter in (None, FROM)
        if samples < 400:
            assert header == Header()
        if samples > 720 + 80 * 8:
            assert _addresses(header) == (FROM, TO, None)
    assert receive([heard], [CFO_HZ])[0].fcs is True


def test_headers_alone_say_the_same_without_a_checksum() -> None:
    frames = [_frame(), mac.ack(TO), _frame(1000)]
    heard = [_through_air(transmit(frame, 24, 1), 0) for frame in frames] + [
        _through_air(transmit_ht(_frame(), 4, 3), 1)
    ]
    whole = receive(heard, [CFO_HZ] * 4)
    assert [header.fcs for header in whole] == [True] * 4
    alone = receive(heard, [CFO_HZ] * 4, header_only=True)
    assert [header.fcs for header in alone] == [None, True, None, None]  # the acknowledgement is no longer than that
    assert [(h.kind, h.transmitter, h.receiver) for h in alone] == [(h.kind, h.transmitter, h.receiver) for h in whole]


def test_the_first_frame_of_an_aggregate_is_read() -> None:
    psdu = mac.aggregate([_frame(), mac.data(BSS, TO, FROM), _frame(50)])
    heard = [_through_air(transmit_ht(psdu, 3, 9, aggregated=True), 0)]
    assert receive(heard, [CFO_HZ])[0] == Header("qos-data", 26, len(psdu), FROM, TO, True)
    assert _addresses(receive(heard, [CFO_HZ], header_only=True)[0]) == (FROM, TO, None)


def test_frames_of_any_antennas_and_lengths_may_come_together() -> None:
    short, long = transmit(mac.ack(TO), 6, 1), transmit(_frame(600), 54, 1)
    heard = [
        _through_air(short, 0, antennas=1),
        np.zeros((4, 100), np.complex64),
        _through_air(long, 1, antennas=4),
        np.zeros((0, 4000), np.complex64),
        _through_air(long, 2, antennas=1),
        _through_air(transmit_ht(_frame(), 0, 1), 3, antennas=4),
    ]
    headers = receive(heard, [CFO_HZ] * 6)
    assert [header.kind for header in headers] == ["ack", None, "qos-data", None, "qos-data", "qos-data"]
    assert headers == [receive([frame], [CFO_HZ])[0] for frame in heard]
    assert receive([], []) == []
    assert fronts([], []) == []


def test_short_fields_of_one_rate_that_are_demodulated_together_have_the_points_they_have_alone() -> None:
    """Noise that follows the shorter one is not taken for symbols of it."""
    sent = [transmit(mac.ack(TO), 24.0, 1), transmit(_frame(20), 24.0, 1)]
    noise = np.zeros(800)
    heard = [_through_air(np.concatenate([one, noise]), seed, snr_db=12) for seed, one in enumerate(sent)]
    lengths = [(len(one) - DATA_START) // wifi.SYMBOL_SAMPLES for one in sent]
    assert lengths[0] < lengths[1] <= SHORT
    both = Fronts.of(heard, np.full((2, 2), CFO_HZ))
    together = both.points(
        both.tones(DATA_START, lengths[1], counts=lengths), wifi.pilot_tones(lengths[1], 1), wifi.DATA_SUBCARRIERS
    )[0]
    for i, symbols in enumerate(lengths):
        one = both.of_frames([i])
        alone = one.points(one.tones(DATA_START, symbols), wifi.pilot_tones(symbols, 1), wifi.DATA_SUBCARRIERS)[0]
        np.testing.assert_allclose(together[i, :symbols], alone[0], rtol=1e-4, atol=1e-5)
        assert not together[i, symbols:].any()


def test_a_dead_antenna_and_samples_that_are_no_numbers_do_no_harm() -> None:
    heard = _through_air(transmit(_frame(), 12, 1), 0, antennas=4)
    heard[1] = 0
    heard[2, 700:720] = np.nan
    heard[3] = np.inf
    assert _addresses(receive([heard], [[CFO_HZ, np.nan, CFO_HZ, np.nan]])[0]) == (FROM, TO, True)
    assert receive([np.full((2, 900), np.nan, np.complex64)], [CFO_HZ])[0].fcs is not True
    assert receive([np.zeros((2, 900), np.complex64)], [0.0])[0].fcs is not True


def test_noise_is_never_a_frame() -> None:
    rng = np.random.default_rng(0)
    noise = [(rng.standard_normal((1, 2000, 2)) @ [1, 1j]).astype(np.complex64) for _ in range(300)]
    for header in receive(noise, np.zeros(300)):
        assert header.fcs is not True
    named = sum(header.transmitter is not None for header in receive(noise, np.zeros(300), header_only=True))
    assert named <= 3


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_a_right_signal_field_before_noise_leads_nowhere(scale: float) -> None:
    rng = np.random.default_rng(1)
    heard = []
    for n in range(120):
        frame = scale * (rng.standard_normal((1 + n % 4, 400 + 17 * n, 2)) @ [1, 1j])
        frame[:, :400] = scale * np.r_[wifi.preamble(), wifi.signal_field(4095 - n, list(RATE_BITS.values())[n % 8])]
        heard.append(frame.astype(np.complex64))
    for header in receive(heard, np.zeros(len(heard))):
        assert header.fcs is None
        assert header.transmitter is None


def test_vht_frames_are_told_from_older_ones() -> None:
    sent = transmit(_frame(), 6, 1)
    bits = np.random.default_rng(0).integers(0, 2, 48).astype(np.uint8)
    turned = wifi.bpsk_points(bits) * np.array([[1], [1j]])
    sent[400:560] = wifi.data_symbols(turned, first_symbol=1)
    assert receive([_through_air(sent, 0)], [CFO_HZ]) == [Header("vht")]


@pytest.mark.parametrize("octets", [1, 14, 127, 128, 1000])
def test_every_scrambler_is_undone(octets: int) -> None:
    plain = bytes(2) + np.random.default_rng(octets).bytes(octets)
    bits = np.unpackbits(np.frombuffer(plain, dtype=np.uint8), bitorder="little")
    for state in range(1, 128):
        sequence = wifi.scrambler_sequence(np.array([state]), len(bits))[0]
        assert _octets(bits ^ sequence) == plain
        assert _octets((bits ^ sequence)[:-3]) == plain[:-1]  # what is whole
    assert _octets(bits[:7]) == b""
