"""I/Q as people have it becomes a dataset with one command; what cannot be used is refused in words."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc import load
from pisa_capc.core.errors import ConfigError, DataError
from pisa_capc.signal.formats import ImportOptions, import_dataset
from pisa_capc.signal.formats.iq import plan
from tests.signal.recordings.tools import encoded, noise, write_sigmf

RATE = ImportOptions(sample_rate_hz=1e6)


def wav(path: Path, x: NDArray[np.complex64], rate: int = 1_000_000, kind: int = 1, bits: int = 16) -> Path:
    """As HDSDR writes it: format, then `auxi` with the times and 433.92 MHz, then samples."""
    data = encoded(x, "cs16" if kind == 1 else "cf32")
    form = struct.pack("<HHIIHH", kind, 2 * len(x), rate, rate * 4, 4, bits)
    times = struct.pack("<8H", 2026, 11, 4, 19, 20, 30, 15, 250) * 2
    auxi = times + struct.pack("<I", 433_920_000) + bytes(36)
    chunks = b"".join(
        name + struct.pack("<I", len(content)) + content
        for name, content in ((b"fmt ", form), (b"auxi", auxi), (b"data", data))
    )
    path.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)
    return path


def bursts(count: int = 12, length: int = 3000, gap: int = 9000) -> NDArray[np.complex64]:
    x = noise(1, count * (length + gap), 0.01)
    for k in range(count):
        at = k * (length + gap) + gap // 2
        x[0, at : at + length] += 0.3 * np.exp(0.2j * np.arange(length))
    return x


def imported(source: Path, out: Path, options: ImportOptions = RATE) -> NDArray[np.complex64]:
    import_dataset("iq", source, out, options)
    return load(out).iq


class TestArrays:
    @pytest.mark.parametrize("shape", [(3, 500), (3, 1, 500), (3, 4, 500)])
    def test_a_folder_of_frames(self, shape: tuple[int, ...], tmp_path: Path) -> None:
        x = noise(int(np.prod(shape[:-1])), 500).reshape(shape)
        for device, scale in (("A", 1), ("B", 2)):
            (tmp_path / "in").mkdir(exist_ok=True)
            np.save(tmp_path / "in" / f"{device}.npy", scale * x)
        import_dataset("iq", tmp_path / "in", tmp_path / "out", RATE)
        frames = load(tmp_path / "out")
        assert list(frames.devices) == ["A", "B"]
        np.testing.assert_array_equal(frames.iq[:3], x.reshape(3, -1, 500))
        np.testing.assert_array_equal(frames.iq[3:], 2 * x.reshape(3, -1, 500))

    def test_one_dimension_each_is_a_frame_of_what_all_have(self, tmp_path: Path) -> None:
        x = noise(3, 600)
        for day, row, length in zip(("mon", "tue", "wed"), x, (600, 550, 580), strict=True):
            (tmp_path / "in" / "D7").mkdir(parents=True, exist_ok=True)
            np.save(tmp_path / "in" / "D7" / f"{day}.npy", row[:length])
        import_dataset("iq", tmp_path / "in", tmp_path / "out", RATE)
        frames = load(tmp_path / "out")
        np.testing.assert_array_equal(frames.iq[:, 0], x[:, :550])
        assert [str(name) for name in frames.captures] == ["mon", "tue", "wed"]

    @pytest.mark.parametrize("layout", ["last", "rows", "in turn"])
    def test_i_and_q_of_real_arrays(self, layout: str, tmp_path: Path) -> None:
        x = noise(4, 500)
        parts = x.view(np.float32).reshape(4, 500, 2)
        stored = {"last": parts, "rows": parts.swapaxes(1, 2), "in turn": parts[0].reshape(-1)}[layout]
        np.save(tmp_path / "a.npy", stored)
        options = ImportOptions(sample_rate_hz=1e6, window=500e-6 if layout == "in turn" else None)
        read = imported(tmp_path / "a.npy", tmp_path / "out", options)
        np.testing.assert_array_equal(read[:, 0], x[: len(read)])

    def test_integers_are_at_a_full_scale_of_one(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.array([[[16384, -8192], [0, 32767]]] * 2, np.int16))
        read = imported(tmp_path / "a.npy", tmp_path / "out")
        np.testing.assert_allclose(read[0, 0], [0.5 - 0.25j, 32767j / 32768])

    def test_antennas_and_axes(self, tmp_path: Path) -> None:
        x = noise(4, 900)
        np.save(tmp_path / "a.npy", x.T)
        cut = ImportOptions(sample_rate_hz=1e6, antennas=4, window=3e-4)
        read = imported(tmp_path / "a.npy", tmp_path / "out", cut)
        np.testing.assert_array_equal(read, x.reshape(4, 3, 300).swapaxes(0, 1))
        np.save(tmp_path / "b.npy", np.stack([x.T, 2 * x.T]))
        read = imported(tmp_path / "b.npy", tmp_path / "out-2", ImportOptions(sample_rate_hz=1e6, axes="nTA"))
        np.testing.assert_array_equal(read, [x, 2 * x])

    def test_objects_are_never_unpickled(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.array([{"x": 1}], dtype=object), allow_pickle=True)
        with pytest.raises(DataError, match=r"holds Python objects.*Nothing is unpickled"):
            plan(tmp_path / "a.npy", RATE)

    def test_mat_with_its_rates(self, tmp_path: Path) -> None:
        scipy_io = pytest.importorskip("scipy.io")
        pytest.importorskip("pymatreader")
        x = noise(2, 400).astype(np.complex128)
        for name, row in zip("ab", x, strict=True):
            content = {"rxdata": row[:, None], "sampleRate": 7.68e6, "cntrFreq": 3.56e9}
            scipy_io.savemat(tmp_path / f"{name}.mat", content)
        found = plan(tmp_path, ImportOptions())
        assert (found.dataset.sample_rate_hz, found.dataset.carrier_hz) == (7.68e6, 3.56e9)
        read = np.concatenate([found.read(spec)[0] for spec in found.dataset.captures])
        np.testing.assert_array_equal(read[:, 0], x.astype(np.complex64))


class TestRecordings:
    def test_one_file_of_integers_becomes_its_bursts(self, tmp_path: Path) -> None:
        x = bursts()
        (tmp_path / "a.cs16").write_bytes(encoded(x, "cs16"))
        found = plan(tmp_path / "a.cs16", RATE)
        (spec,) = found.dataset.captures
        iq, _ = found.read(spec)
        assert iq.shape[:2] == (12, 1)
        assert 2900 < iq.shape[2] <= 3010
        assert (np.abs(iq[:, 0, 20:2900]) > 0.2).all()
        assert "12 bursts" in " ".join(found.assumed)

    def test_a_signal_that_never_stops_becomes_windows(self, tmp_path: Path) -> None:
        x = 0.3 * np.exp(0.1j * np.arange(50_000))[None].astype(np.complex64) + noise(1, 50_000, 0.01)
        (tmp_path / "a.cf32").write_bytes(encoded(x, "cf32"))
        read = imported(tmp_path / "a.cf32", tmp_path / "out")
        np.testing.assert_array_equal(read[:, 0], x[0, : 48 * 1024].reshape(48, 1024))
        read = imported(tmp_path / "a.cf32", tmp_path / "w", ImportOptions(sample_rate_hz=1e6, window=1e-3, hop=5e-3))
        np.testing.assert_array_equal(read[:, 0], x[0].reshape(10, 5000)[:, :1000])

    @pytest.mark.parametrize(("kind", "bits"), [(1, 16), (3, 32)])
    def test_wav_says_its_rate_carrier_and_time(self, kind: int, bits: int, tmp_path: Path) -> None:
        x = bursts()
        wav(tmp_path / "a.wav", x, kind=kind, bits=bits)
        found = plan(tmp_path / "a.wav", ImportOptions())
        assert (found.dataset.sample_rate_hz, found.dataset.carrier_hz) == (1e6, 433.92e6)
        assert found.dataset.captures[0].frames == 12

    def test_names_of_programs_say_rates_and_format(self, tmp_path: Path) -> None:
        for name, format in (
            ("gqrx_20261119_203015_433920000_1000000_fc.raw", "cf32"),
            ("g001_433.92M_1000k.cs16", "cs16"),
        ):
            (tmp_path / name).write_bytes(encoded(bursts(), format))
            dataset = plan(tmp_path / name, ImportOptions()).dataset
            assert (dataset.sample_rate_hz, dataset.carrier_hz) == (1e6, 433.92e6)

    def test_sigmf_without_annotations(self, tmp_path: Path) -> None:
        write_sigmf(tmp_path / "roof", bursts(), sample_rate=1e6)
        found = plan(tmp_path, ImportOptions(device="meter"))
        assert found.dataset.captures[0].device == "meter"
        assert found.dataset.carrier_hz == 5.825e9
        assert found.dataset.captures[0].frames == 12


class TestLabels:
    def test_rtl_433_names_devices_and_copies_are_left_out(self, tmp_path: Path) -> None:
        ids = {"a": [7], "b": [8], "c": [7], "d": [], "e": [7, 8]}
        for k, (name, found) in enumerate(ids.items()):
            x = noise(1, 900, seed=0 if name == "c" else k)
            (tmp_path / f"{name}.cu8").write_bytes(encoded(x, "cu8"))
            lines = [json.dumps({"model": "Meter", "id": own, "temperature_C": 3.5}) for own in found]
            (tmp_path / f"{name}.json").write_text("\n".join(lines))
        found = plan(tmp_path, ImportOptions())
        assert [(spec.device, spec.frames) for spec in found.dataset.captures] == [("Meter-7", 1), ("Meter-8", 1)]
        assert (found.dataset.sample_rate_hz, found.dataset.carrier_hz) == (250e3, 433.92e6)
        assert "Left out 2 recordings whose JSON does not name one device: d.cu8, e.cu8." in found.notes
        assert "Identical files are taken once: c.cu8 is the same as a.cu8 (1 left out)." in found.notes

    def test_a_pattern_names_them(self, tmp_path: Path) -> None:
        names = [("lab", "A"), ("lab", "B"), ("yard", "A"), ("yard", "B")]
        for seed, (place, device) in enumerate(names):
            (tmp_path / f"{place}-{device}.cf32").write_bytes(encoded(noise(1, 900, seed=seed), "cf32"))
        pattern = "{environment}-{device}.cf32"
        found = plan(tmp_path, ImportOptions(sample_rate_hz=1e6, pattern=pattern))
        assert [(spec.environment, spec.device) for spec in found.dataset.captures] == names
        with pytest.raises(ConfigError, match=r"--device-name X: the pattern .* names it"):
            plan(tmp_path, ImportOptions(sample_rate_hz=1e6, pattern=pattern, device="X"))

    def test_paths_of_different_depths_need_one(self, tmp_path: Path) -> None:
        (tmp_path / "A").mkdir()
        for path in (tmp_path / "x.cf32", tmp_path / "A" / "y.cf32"):
            path.write_bytes(encoded(noise(1, 900), "cf32"))
        with pytest.raises(ConfigError, match=r"0 and 1 folders deep\. Say what the paths mean by --pattern"):
            plan(tmp_path, RATE)


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.cs16", b"", RATE, "holds 0 bytes.*It is empty"),
        ("a.npy", b"", RATE, "is empty; expected an array"),
        ("a.cs16", bytes(40_000), RATE, "all its samples are 0.*expected a received signal"),
        ("a.cu8", b"\x7f" * 40_000, RATE, "all its samples are .*expected a received signal"),
        ("a.cs16", encoded(noise(1, 9000), "cs16"), ImportOptions(), "say no sample rate. Give --sample-rate"),
        ("a.cf32", encoded(noise(1, 9000), "cs16"), RATE, "absurd size. Read as ci16_le it is .*Give --format ci16_le"),
        ("a.cs8", encoded(noise(1, 9000), "cu8"), RATE, "Give --format cu8"),
        ("a.cs16", encoded(noise(1, 9000), "cf32"), RATE, "Read as cf32_le they are plausible. Give --format cf32_le"),
        ("a.cs8", encoded(noise(1, 9000, 0.02), "cs16"), RATE, "Give --format ci16_le"),
        ("a.cs16", encoded(noise(1, 9000), "cs8"), RATE, "in whole bytes.*Give --format ci8"),
        ("a.dat", encoded(noise(1, 9000), "cs16"), RATE, "Give --format, as ci16_le, which it looks like"),
        ("a.wav", b"RIFF", ImportOptions(), "is no WAV file"),
        ("a.npy", b"\x93NUMPY\x01\x00", RATE, "a.npy: cannot be read"),
        ("a.txt", b"words", RATE, "is text|cannot tell its format"),
    ],
)
def test_what_cannot_be_samples_is_refused(
    name: str, content: bytes, options: ImportOptions, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises((DataError, ConfigError), match=message):
        import_dataset("iq", tmp_path / name, tmp_path / "out", options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ImportOptions(sample_rate_hz=0.0), "--sample-rate 0.0: expected Hz, more than zero"),
        (ImportOptions(sample_rate_hz=1e6, window=0.0), "--window 0: expected seconds"),
        (ImportOptions(sample_rate_hz=1e6, window=10.0), "windows of 10,000,000 samples.*at most the 144,000"),
        (ImportOptions(sample_rate_hz=1e6, hop=1e-3), "--hop 0.001: needs a --window"),
        (ImportOptions(sample_rate_hz=1e6, waveform="wifi"), "are found by `pisa detect --waveform wifi --out`"),
        (ImportOptions(sample_rate_hz=1e6, waveform="burst", window=1e-3), "expected one of them"),
        (ImportOptions(sample_rate_hz=1e6, pattern="{device}.cs16"), "is one file"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: ImportOptions, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.cs16").write_bytes(encoded(bursts(), "cs16"))
    with pytest.raises((DataError, ConfigError), match=message):
        plan(tmp_path / "a.cs16", options)


@pytest.mark.parametrize("channels", [1, 2])
def test_wav_of_sound_and_of_other_widths_is_refused(channels: int, tmp_path: Path) -> None:
    form = struct.pack("<HHIIHH", 1, channels, 48000, 48000 * 3, 3, 24)
    (tmp_path / "a.wav").write_bytes(
        b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<I", 16) + form + b"data\x08\0\0\0" + bytes(8)
    )
    match = "has 1 channel; expected two, I and Q" if channels == 1 else "with 24 bits; expected whole numbers of 8, 16"
    with pytest.raises(DataError, match=match):
        plan(tmp_path / "a.wav", ImportOptions())
