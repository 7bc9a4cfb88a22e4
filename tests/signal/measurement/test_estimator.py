"""What the estimator measures is what was sent, as certain as it says, and it says so where it cannot."""

from __future__ import annotations

import numpy as np
import pytest

from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.signal.measurement import FLAWS, FlawEstimator, register_flaw
from pisa_capc.signal.simulation.hardware import DeviceProfile, transmit
from pisa_capc.signal.waveforms import WAVEFORMS
from tests.reference.measurement import flaws_of_frame
from tests.signal.measurement.frames import received, sent_with, white

FLAWED = {
    "wifi": {"image": 0.03 - 0.02j, "leakage": 0.02 + 0.01j, "compression": -0.05 + 0.03j, "compression-5": 0.01 + 0j},
    "lora": {"image": 0.03 - 0.02j, "leakage": 0.02 + 0.01j},
}
ECHO = {"wifi": 0.56, "lora": 0.1}  # a sample later, as amplitude: a sample of LoRa is 300 m


def estimator(waveform: str = "wifi") -> FlawEstimator:
    return FlawEstimator(WAVEFORMS[waveform], 320)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_what_each_waveform_shows() -> None:
    """The envelope of a chirp is constant, and 320 samples of one turn an offset into a delay; eight tell it."""
    assert estimator().flaws == tuple(FLAWS)
    assert estimator("lora").flaws == ("image", "leakage")
    assert FlawEstimator(WAVEFORMS["lora"]).flaws == ("image", "leakage", "offset")


def test_a_flaw_that_is_a_sum_of_others_is_left_out(rng: np.random.Generator) -> None:
    """Of a constant envelope the image of the third order is the image; no system of both has a solution."""
    third = {"third-order image": lambda x: np.abs(x) ** 2 * x.conj()}
    alone, with_it = estimator("lora"), FlawEstimator(WAVEFORMS["lora"], 320, beside=third)
    assert with_it.flaws == alone.flaws
    assert "third-order image" in FlawEstimator(WAVEFORMS["wifi"], 320, beside=third).flaws
    iq = received(sent_with("lora", FLAWED["lora"]), 4, rng, snr_db=20)
    np.testing.assert_array_equal(with_it.measure(iq).value, alone.measure(iq).value)


@pytest.mark.parametrize("waveform", ["wifi", "lora"])
def test_without_noise_it_is_the_truth(waveform: str, rng: np.random.Generator) -> None:
    """Relative to what of the sent waveform looks like x: part of the compression does."""
    sent, x = sent_with(waveform, FLAWED[waveform])[:320], WAVEFORMS[waveform].preamble()[:320]
    gain = np.vdot(x, sent) / np.vdot(x, x)
    measured = estimator(waveform).measure(received(sent, 20, rng, echo=ECHO[waveform]))
    for name, truth in FLAWED[waveform].items():
        error = measured.value[:, measured.flaws.index(name)] - truth / gain
        assert np.sqrt(np.mean(np.abs(error) ** 2)) < (0.004 if name.startswith("compression") else 0.001), name


@pytest.mark.parametrize("waveform", ["wifi", "lora"])
def test_it_agrees_with_least_squares_of_each_frame(waveform: str, rng: np.random.Generator) -> None:
    """The few directions cost less than a hundredth of the bars, and a quarter where third and fifth order compete."""
    iq = received(sent_with(waveform, FLAWED[waveform]), 8, rng, snr_db=20)
    whole = estimator(waveform).measure(iq)
    for measured, loss in ((whole, 1.3), (whole.without(["compression-5"]), 1.01)):
        ratios = []
        for frame in range(len(iq)):
            value, covariance, noise = flaws_of_frame(iq[frame], WAVEFORMS[waveform], measured.flaws)
            bars = np.sqrt(covariance.diagonal().real)
            assert np.all(np.abs(measured.value[frame] - value) < 1.5 * np.sqrt(loss**2 - 1 + 0.05) * bars)
            np.testing.assert_allclose(measured.noise[frame], noise, rtol=0.25)
            ratios.append(np.sqrt(measured.covariance[frame].diagonal().real) / bars)
        mean = np.mean(ratios, axis=0)
        assert np.all((mean > 0.97) & (mean < loss + 0.03)), mean


@pytest.mark.parametrize("snr_db", [5, 15, 25])
@pytest.mark.parametrize("waveform", ["wifi", "lora"])
def test_intervals_of_95_percent_hold_the_truth_as_often(
    waveform: str, snr_db: float, rng: np.random.Generator
) -> None:
    """Of a simulated transmitter: amplifier and imbalance as the estimator reads them without noise."""
    profile = DeviceProfile(0, (0,) * 4, 0.3, 2, -32, 1, 8, 2, 5, white_phase_deg=0, linewidth_hz=0)
    known = WAVEFORMS[waveform]
    sent = transmit(known.preamble(), profile, known.occupied).astype(complex)
    clean = received(sent, 1000, rng, echo=ECHO[waveform])
    own = estimator(waveform)
    truth = own.measure(clean).value
    measured = own.measure(clean + 10 ** (-snr_db / 20) * white(rng, *clean.shape))
    off = np.stack([(measured.value - truth).real, (measured.value - truth).imag])
    bars = np.sqrt(measured.covariance.diagonal(0, 1, 2).real / 2)
    covered = np.mean(np.abs(off) < 1.96 * bars, axis=(0, 1))
    assert np.all((covered > 0.925) & (covered < 0.97)), dict(zip(own.flaws, covered, strict=True))


def test_a_flaw_that_the_model_does_not_have_shows_as_misfit(rng: np.random.Generator) -> None:
    """Of clean frames one in a hundred is suspected by chance; an image that leans with frequency is found."""
    sent = sent_with("wifi", FLAWED["wifi"])
    leaning = sent + 0.05 * np.pad(sent, (1, 0))[:-1].conj()
    clean = estimator().measure(received(sent, 2000, rng, snr_db=20)).suspicion
    assert np.mean(clean < 0.01) < 0.02
    assert 0.1 < np.mean(clean < 0.5) < 0.6  # less than half: part of a misfit may be an ordinary phase that walks
    assert np.mean(estimator().measure(received(leaning, 200, rng, snr_db=25)).suspicion < 0.01) > 0.9


def test_what_repeats_from_frame_to_frame_is_misfit_and_not_noise(rng: np.random.Generator) -> None:
    """A filter of the transmitter leaves the same in each frame: error bars follow the scatter once that is known."""
    sent = sent_with("wifi", FLAWED["wifi"])
    late = 0.2 * np.pad(sent, (40, 0))[: len(sent)] - 0.15 * np.pad(sent, (61, 0))[: len(sent)]
    gain = np.exp(2j * np.pi * rng.random((200, 4, 1)))
    iq = gain * (sent + late)[None, None, :320] + 10 ** (-30 / 20) * white(rng, 200, 4, 320)
    alone = estimator().measure(iq)
    told = estimator().measure(iq, sender=np.zeros(200, dtype=np.int64))
    image = alone.flaws.index("image")
    scatter = np.std(told.value[:, image])

    def bar(measured: object) -> float:
        return float(np.median(np.sqrt(measured.covariance[:, image, image].real)))  # type: ignore[attr-defined]

    assert bar(alone) > 3 * scatter
    assert 0.75 * scatter < bar(told) < 1.35 * scatter


def test_noise_alone_has_nothing_that_repeats(rng: np.random.Generator) -> None:
    iq = received(sent_with("wifi", FLAWED["wifi"]), 400, rng, snr_db=15)
    alone, told = estimator().measure(iq), estimator().measure(iq, sender=np.repeat([3, 7], 200))
    np.testing.assert_allclose(told.noise, alone.noise, rtol=0.03)


@pytest.mark.parametrize("turns", [0.0004, 0.003, 0.02])
def test_a_carrier_offset_is_measured_and_taken_off(turns: float, rng: np.random.Generator) -> None:
    """In cycles a sample: 8, 60 and 400 kHz of Wi-Fi."""
    iq = received(sent_with("wifi", FLAWED["wifi"]), 50, rng, snr_db=25) * np.exp(2j * np.pi * turns * np.arange(320))
    measured = estimator().measure(iq)
    np.testing.assert_allclose(measured.offset, turns, atol=2e-5)
    image = measured.value[:, measured.flaws.index("image")]
    assert np.abs(image - FLAWED["wifi"]["image"]).max() < 0.02


@pytest.mark.parametrize("early", [-1, 1])
def test_a_frame_that_starts_a_sample_early_or_late(early: int, rng: np.random.Generator) -> None:
    iq = np.roll(received(sent_with("wifi", FLAWED["wifi"]), 50, rng, snr_db=25), early, axis=-1)
    measured = estimator().measure(iq)
    off = measured.value - np.array([FLAWED["wifi"].get(name, 0) for name in measured.flaws])
    bars = np.sqrt(measured.covariance.diagonal(0, 1, 2).real)
    assert np.mean(np.abs(off[:, :3]) < 3 * bars[:, :3]) > 0.95


def test_a_missing_antenna_drops_out(rng: np.random.Generator) -> None:
    """Masked, silent or not finite: the same as if the receiver had one antenna less."""
    iq = received(sent_with("wifi", FLAWED["wifi"]), 6, rng, snr_db=20).astype(np.complex64)
    three = estimator().measure(iq[:, [0, 1, 3]])
    silent, broken = iq.copy(), iq.copy()
    silent[:, 2], broken[:, 2, 7] = 0, np.nan
    mask = np.array([True, True, False, True])
    for found in (estimator().measure(iq, mask), estimator().measure(silent), estimator().measure(broken)):
        np.testing.assert_allclose(found.value, three.value, rtol=1e-4, atol=1e-6)
        assert np.isnan(found.noise[:, 2]).all()
        assert np.isnan(found.snr_db[:, 2]).all()
        assert np.isfinite(found.noise[:, [0, 1, 3]]).all()


@pytest.mark.parametrize(("offset", "noise"), [(0.3, 1e-3), (0.01, 1e-3), (0.1, 1e-2)])
def test_an_input_that_hears_nothing_but_its_own_offset_drops_out(
    offset: float, noise: float, rng: np.random.Generator
) -> None:
    """It would pass for an antenna with next to no noise and much leakage, and decide alone."""
    iq = received(sent_with("wifi", FLAWED["wifi"]), 50, rng, snr_db=20)
    three = estimator().measure(iq[:, [0, 1, 3]])
    iq[:, 2] = offset + noise * white(rng, 50, 320)
    found = estimator().measure(iq)
    np.testing.assert_allclose(found.value, three.value, rtol=1e-3, atol=1e-5)
    assert np.isnan(found.noise[:, 2]).all()


def test_a_frame_that_is_not_finite_does_not_hide_what_repeats_in_the_others(rng: np.random.Generator) -> None:
    sent = sent_with("wifi", FLAWED["wifi"])
    late = sent + 0.2 * np.pad(sent, (40, 0))[: len(sent)]
    iq = np.tile(late[None, None, :320], (60, 1, 1)) + 0.01 * white(rng, 60, 1, 320)
    whole = estimator().measure(iq, sender=np.zeros(60, dtype=np.int64))
    iq[5, 0, 7] = np.nan
    broken = estimator().measure(iq, sender=np.zeros(60, dtype=np.int64))
    assert not broken.measured[5]
    np.testing.assert_allclose(np.nanmedian(broken.noise), np.nanmedian(whole.noise), rtol=0.2)


def test_a_frame_without_antennas_is_not_measured(rng: np.random.Generator) -> None:
    iq = received(sent_with("wifi", {}), 3, rng, snr_db=20)
    iq[1] = 0
    measured = estimator().measure(iq)
    assert measured.measured.tolist() == [True, False, True]
    assert np.isnan(measured.value[1]).all()
    assert np.isnan(measured.suspicion[1])


def test_what_is_not_the_waveform_has_wide_bars(rng: np.random.Generator) -> None:
    """Noise, or the frames of another technology: no confident wrong number."""
    others = received(WAVEFORMS["lora"].preamble(), 200, rng, snr_db=20)
    for iq in (white(rng, 200, 4, 320), others):
        measured = estimator().measure(iq)
        image = measured.flaws.index("image")
        bars = np.sqrt(measured.covariance[:, image, image].real)
        assert np.median(bars) > 0.05
        assert np.mean((np.abs(measured.value[:, image]) < 3 * bars) | (measured.suspicion < 0.01)) > 0.95


def test_clipped_frames_are_suspected(rng: np.random.Generator) -> None:
    iq = received(sent_with("wifi", FLAWED["wifi"]), 100, rng, snr_db=25)
    limit = 0.8 * np.sqrt(np.mean(np.abs(iq) ** 2))
    clipped = np.clip(iq.real, -limit, limit) + 1j * np.clip(iq.imag, -limit, limit)
    measured = estimator().measure(clipped)
    image = measured.flaws.index("image")
    off = np.abs(measured.value[:, image] - FLAWED["wifi"]["image"])
    assert np.mean((measured.suspicion < 0.01) | (off < 3 * np.sqrt(measured.covariance[:, image, image].real))) > 0.95


def test_flaws_left_out_fall_to_the_others(rng: np.random.Generator) -> None:
    """`without` is the fit of an estimator that never had them."""
    iq = received(sent_with("wifi", FLAWED["wifi"]), 5, rng, snr_db=20)
    names = [name for name in FLAWS if name != "compression-5"]
    reduced = estimator().measure(iq).without(["compression-5"])
    alone = FlawEstimator(WAVEFORMS["wifi"], 320, names).measure(iq)
    assert reduced.flaws == alone.flaws == tuple(names)
    np.testing.assert_allclose(reduced.value, alone.value, atol=0.004)
    np.testing.assert_allclose(reduced.covariance.diagonal(0, 1, 2), alone.covariance.diagonal(0, 1, 2), rtol=0.15)


def test_features_are_the_identity_alone_with_the_covariance_of_real_and_imaginary_parts(
    rng: np.random.Generator,
) -> None:
    measured = estimator().measure(received(sent_with("wifi", FLAWED["wifi"]), 4, rng, snr_db=20))
    values, errors = measured.features()
    fitted = measured.without(["compression-5"])
    assert values.shape == (4, 6)
    assert errors.shape == (4, 6, 6)
    np.testing.assert_allclose(values[:, :3] + 1j * values[:, 3:], fitted.value[:, :3])
    np.testing.assert_allclose(errors[:, 0, 0], fitted.covariance[:, 0, 0].real / 2)
    np.testing.assert_allclose(errors[:, 1, 3], -fitted.covariance[:, 1, 0].imag / 2, rtol=1e-6)
    np.testing.assert_allclose(errors, errors.swapaxes(1, 2), atol=1e-12)
    assert np.linalg.eigvalsh(errors).min() > 0


def test_blocks_and_selections_change_nothing(rng: np.random.Generator) -> None:
    iq = received(sent_with("wifi", FLAWED["wifi"]), 600, rng, snr_db=20)
    measured = estimator().measure(iq)
    some = estimator().measure(iq[590:])
    np.testing.assert_allclose(measured.select(slice(590, None)).value, some.value, rtol=1e-4, atol=1e-6)
    assert len(measured) == 600
    assert len(estimator().measure(iq[:0])) == 0


def test_a_flaw_of_ones_own(rng: np.random.Generator) -> None:
    """One function and one line: here an image that comes a sample late."""
    try:
        register_flaw("late-image", "late image")(lambda x: np.pad(x, (1, 0))[:-1].conj())
        own = estimator()
        assert own.flaws[-1] == "late-image"
        sent = sent_with("wifi", {"image": 0.02, "late-image": 0.03j})
        measured = own.measure(received(sent, 20, rng, snr_db=30))
        assert np.abs(measured.value[:, -1].mean() - 0.03j) < 0.003
    finally:
        FLAWS._parts.pop("late-image", None)


def test_bad_frames_and_settings() -> None:
    with pytest.raises(DataError, match=r"shape \(2, 4, 100\).*316 samples"):
        estimator().measure(np.zeros((2, 4, 100), dtype=np.complex64))
    with pytest.raises(DataError, match=r"60 samples of .* too few.*expected 72"):
        FlawEstimator(WAVEFORMS["wifi"], 60)
    with pytest.raises(DataError, match="leave nothing to measure the noise by"):
        FlawEstimator(WAVEFORMS["wifi"], 120)
    with pytest.raises(ConfigError, match="flaw 'colour'"):
        FlawEstimator(WAVEFORMS["wifi"], flaws=["colour"])
    with pytest.raises(ConfigError, match="shows none of the flaws compression"):
        FlawEstimator(WAVEFORMS["lora"], flaws=["compression"])
    with pytest.raises(DataError, match="sender"):
        estimator().measure(np.ones((2, 4, 320), dtype=np.complex64), sender=np.zeros(3, dtype=np.int64))
