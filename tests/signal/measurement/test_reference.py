"""A signal that is known from a file is found in frames that begin anywhere in it, and measured."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pisa_capc import Frames
from pisa_capc.core.errors import DataError
from pisa_capc.model.inference.tensors import read_tensors, save_tensors
from pisa_capc.signal.detection import FoundFrame, finder_of
from pisa_capc.signal.measurement.reference import ReferenceEstimator, measure_against
from pisa_capc.signal.recordings import About
from pisa_capc.signal.waveforms.reference import SentReference, align
from tests.cli.test_model_commands import Command, pisa  # noqa: F401  (fixture)

RATE_HZ = 5e6
IMAGES = {"A": 0.02 * np.exp(-0.7j), "B": 0.02 * np.exp(1.4j)}


def waveform(samples: int = 9000) -> np.ndarray:
    """Noise in seven tenths of the band, as OFDM is."""
    spectrum = np.random.default_rng(5).normal(size=(samples, 2)) @ [1, 1j]
    spectrum[np.abs(np.fft.fftfreq(samples)) > 0.35] = 0
    x = np.fft.ifft(spectrum)
    return np.asarray(x / np.sqrt(np.mean(np.abs(x) ** 2)))


def received(image: complex, begin: int, cfo_hz: float, seed: int, samples: int = 3000) -> np.ndarray:
    """From any sample on, half a sample late, behind a second path, with an image and an offset."""
    x = waveform()
    frequency = np.fft.fftfreq(len(x))
    sent = x + image * x.conj()
    channel = np.exp(-2j * np.pi * frequency * 0.5) * (1 + 0.3j * np.exp(-2j * np.pi * frequency * 3))
    y = np.roll(np.fft.ifft(np.fft.fft(sent) * channel), -begin)[:samples]
    noise = np.random.default_rng(seed).normal(scale=0.02, size=(samples, 2)) @ [1, 1j]
    return np.asarray(y * np.exp(2j * np.pi * cfo_hz / RATE_HZ * np.arange(samples)) + noise)


def frames() -> Frames:
    begin = {"A": (10, 8000, 2500), "B": (4000, 8999, 700)}  # some go on behind the end
    iq = [
        received(image, at, 1000.0 * k - 4000, k) for name, image in IMAGES.items() for k, at in enumerate(begin[name])
    ]
    return Frames.from_arrays(
        np.stack(iq)[:, None], device=["A"] * 3 + ["B"] * 3, environment=["lab"] * 6, sample_rate_hz=RATE_HZ
    )


def test_where_a_frame_begins_and_its_offset_are_found() -> None:
    reference = SentReference(waveform(), RATE_HZ)
    for at in (0, 1234, 8999):
        found = align(reference, received(0.02, at, -31_000.0, at))
        assert abs((found.at - at + 2) % 9000 - 2) <= 1
        assert found.offset * RATE_HZ == pytest.approx(-31_000, abs=500)


def test_flaws_are_measured_within_their_bars_wherever_frames_begin() -> None:
    found = measure_against(frames(), SentReference(7.0 * waveform(), RATE_HZ))
    image = found.measurement.flaws.index("image")
    truth = np.array([IMAGES[found.names[k]] for k in found.sender])
    off = np.abs(found.measurement.value[:, image] - truth)
    assert (off < 4 * np.sqrt(found.measurement.covariance[:, image, image].real)).all()
    np.testing.assert_allclose(found.cfo_hz, [-4000, -3000, -2000] * 2, atol=5)
    assert (found.measurement.misfit < 2).all()


def test_frames_of_another_signal_are_refused() -> None:
    rng = np.random.default_rng(0)
    other = Frames.from_arrays(
        rng.normal(size=(4, 1, 3000, 2)) @ [1, 1j], device=["A"] * 4, environment=["lab"] * 4, sample_rate_hz=RATE_HZ
    )
    with pytest.raises(DataError, match="none of 4 frames holds the reference"):
        measure_against(other, SentReference(waveform(), RATE_HZ))
    with pytest.raises(DataError, match="Resample one of them"):
        measure_against(other, SentReference(waveform(), 1e6))
    for nothing in (np.zeros(5000), np.ones((2, 5000)), waveform()[:100]):
        with pytest.raises(DataError, match="expected 256 to"):
            SentReference(nothing, RATE_HZ)


def test_the_command_takes_a_file(pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    frames().save(tmp_path / "set")
    np.save(tmp_path / "sent.npy", waveform())
    done = pisa("measure", tmp_path / "set", "--reference", tmp_path / "sent.npy", "--json")
    assert done.code == 0, done.err
    assert '"waveform": "reference:' in done.out
    done = pisa("measure", tmp_path / "set", "--reference", tmp_path / "sent.npy", "--waveform", "wifi")
    assert (done.code, "expected one of them" in done.err) == (2, True)


def recording(image: complex, seed: int, samples: int = 50_000) -> np.ndarray:
    """The reference over and over, behind silence, from anywhere in it on."""
    rng = np.random.default_rng(seed)
    y = received(image, int(rng.integers(9000)), rng.uniform(-5e3, 5e3), seed, 9000)
    y = np.concatenate([np.tile(y, 6)[: samples - 7000]])  # the offset jumps each 9,000 samples, as the phase may
    quiet = rng.normal(scale=0.02, size=(7000, 2)) @ [1, 1j]
    return np.concatenate([quiet, y]).astype(np.complex64)


@pytest.mark.parametrize("size", [3001, 100_000])
def test_the_pieces_of_a_long_reference_are_found_in_a_stream(size: int) -> None:
    reference, x = SentReference(waveform(), RATE_HZ), recording(0.02, 3)[None]
    detector = finder_of(reference).detector(About("air", RATE_HZ, 1e9, 1, 0))
    found = [one for at in range(0, x.shape[1], size) for one in detector.push(x[:, at : at + size])]
    found += detector.finish()
    assert reference.pieces == 2
    assert 8 <= len(found) <= 9  # of 43,000 samples, pieces of 4,500
    for one in found:
        assert one.at >= 7000 - 4
        assert (align(reference, one.iq).at + 4) % 4500 <= 8
    noise = np.random.default_rng(1).normal(size=(1, 60_000, 2)) @ [1, 1j]
    assert not detector_of(reference, noise)


def detector_of(reference: SentReference, x: np.ndarray) -> list[FoundFrame]:
    detector = finder_of(reference).detector(About("air", RATE_HZ, 1e9, len(x), 0))
    return detector.push(x.astype(np.complex64)) + detector.finish()


def test_parts_of_a_frame_are_averaged_by_their_certainty() -> None:
    reference = SentReference(waveform(), RATE_HZ)
    y = np.tile(received(0.02 * np.exp(-0.7j), 10, 0, 1, 9000), 2)[None, None, :15_000]
    found = ReferenceEstimator(reference, 15_000).measure(np.concatenate([y, 0 * y]))
    image = found.flaws.index("image")
    assert abs(found.value[0, image] - 0.02 * np.exp(-0.7j)) < 4 * np.sqrt(found.covariance[0, image, image].real)
    [alone] = ReferenceEstimator(reference, 5000).measure(y).covariance[:, image, image].real
    assert found.covariance[0, image, image].real == pytest.approx(alone / 3, rel=0.1)
    assert found.measured.tolist() == [True, False]


def test_a_model_keeps_its_reference_from_files_to_names(pisa: Command, tmp_path: Path) -> None:  # noqa: F811
    np.save(tmp_path / "sent.npy", waveform())
    for k, (place, name) in enumerate((place, name) for place in ("lab", "yard", "roof") for name in IMAGES):
        (tmp_path / place).mkdir(exist_ok=True)
        np.save(tmp_path / place / f"{name}.npy", recording(IMAGES[name], k))
    given = ("--sample-rate", "5e6", "--carrier", "1e9")
    files = [tmp_path / place / f"{name}.npy" for place in ("lab", "yard") for name in IMAGES]
    names = ("--label", "pattern", "--pattern", "{environment}/{device}.npy")
    sent = ("--reference", tmp_path / "sent.npy")
    assert pisa("detect", *files, *given, *sent, *names, "--out", tmp_path / "set").code == 0
    run = tmp_path / "run"
    done = pisa("train", tmp_path / "set", "--source", "lab", "--target", "yard", *sent, "--out", run)
    assert done.code == 0, done.err
    tests = [tmp_path / "roof" / f"{name}.npy" for name in IMAGES]
    done = pisa("identify", run, *tests, *given, "--json", "--out", tmp_path / "who.csv", "--reject", "none")
    assert done.code == 0, done.err
    rows = list(csv.DictReader((tmp_path / "who.csv").open()))
    assert len(rows) >= 10  # pieces in which the offset jumps are left out
    assert all(row["device"] == row["recording"][0] for row in rows)
    np.load(tests[1]).tofile(air := tmp_path / "air.cf32")
    heard = pisa("listen", f"file:{air}", "--run", run, *given, "--format", "cf32", "--reject", "none")
    assert heard.code == 0, heard.err
    decided = [json.loads(line) for line in heard.out.splitlines()]
    assert {line["device"] for line in decided if line["event"] == "decision"} == {"B"}
    tensors = read_tensors(run / "model.safetensors", "")[0]
    other = torch.view_as_real(torch.from_numpy(np.roll(waveform(), 1).astype(np.complex64)))
    save_tensors(run / "model.safetensors", tensors | {"reference": other})
    done = pisa("identify", run, *tests, *given)
    assert (done.code, "expected the samples that were sent" in done.err) == (2, True)
    done = pisa(
        "train", tmp_path / "set", "--source", "lab", "--target", "yard", *sent, "--method", "pisa", "--out", run
    )
    assert (done.code, "Leave --method out" in done.err) == (2, True)
