"""MAT files as people have them: any axis order that can be told apart, and a clear word where it cannot."""

from __future__ import annotations

import itertools
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from pisa_capc import load
from pisa_capc.core.errors import ConfigError, DataError, MissingExtraError
from pisa_capc.signal.formats import ExportOptions, ImportOptions, export_dataset, import_dataset
from pisa_capc.signal.formats.arrange import arrange
from pisa_capc.signal.formats.mat import read
from tests.datasets import write_random

RNG = np.random.default_rng(0)
N, T, A = 6, 320, 4
IQ = (RNG.normal(size=(N, A, T)) + 1j * RNG.normal(size=(N, A, T))).astype(np.complex64)
CFO = RNG.normal(size=(N, A))


def file_with(tmp_path: Path, **arrays: object) -> Path:
    path = tmp_path / "a.mat"
    savemat(path, arrays)
    return path


def reading(path: Path, **options: object):
    return read(path, ImportOptions(**options), path.name)  # type: ignore[arg-type]


def test_what_was_read_and_what_was_assumed_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file_with(tmp_path, data=IQ, offsets=CFO).rename(tmp_path / "D1.mat")
    import_dataset("mat", tmp_path, tmp_path / "set", ImportOptions(pattern="{device}.mat"), show=True)
    said = " ".join(capsys.readouterr().err.split())
    assert f"assumed: I/Q in data {IQ.shape} as nAT (--iq-key, --axes), CFO in offsets {CFO.shape}, 4 antennas" in said
    assert "environment E1 (--environment), capture L1 (--capture), 20 MHz of sample rate (--sample-rate)" in said


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_every_order_of_axes_is_recognised_by_size(order: tuple[int, ...], tmp_path: Path) -> None:
    iq, cfo_hz, _ = reading(file_with(tmp_path, data=IQ.transpose(order), offsets=CFO.T, fs=20e6, note="lab"))
    np.testing.assert_array_equal(iq, IQ)
    np.testing.assert_array_equal(cfo_hz, CFO)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(st.integers(2, 9), st.integers(2, 5), st.integers(2, 9)),
    order=st.permutations(range(3)),
    cfo=st.sampled_from(["none", "by frame", "by antenna"]),
)
def test_an_array_is_read_right_or_not_at_all(sizes, order: list[int], cfo: str) -> None:
    frames, antennas, _ = sizes
    iq = (np.arange(1, 1 + np.prod(sizes)).reshape(sizes) * (1 + 1j)).astype(np.complex64)
    arrays = {"x": iq.transpose(order)}
    traces = np.arange(frames * antennas, dtype=float).reshape(frames, antennas)
    if cfo != "none":
        arrays["cfo"] = traces if cfo == "by frame" else traces.T
    try:
        found, found_cfo, _ = arrange(arrays, ImportOptions(antennas=antennas), "a")
    except DataError:
        # Only where two sizes are alike, or nothing says which axis counts frames, may it give up.
        assert len(set(sizes)) < 3 or cfo == "none"
        return
    np.testing.assert_array_equal(found, iq)
    if cfo == "by frame" or (cfo == "by antenna" and frames != antennas):
        np.testing.assert_array_equal(found_cfo, traces)


def test_the_length_of_the_cfo_tells_frames_from_samples(tmp_path: Path) -> None:
    short = IQ[:, :, :50]
    iq, *_ = reading(file_with(tmp_path, x=short.transpose(1, 2, 0), cfo=CFO))
    np.testing.assert_array_equal(iq, short)


def test_what_cannot_be_told_apart_is_an_error_and_axes_settle_it(tmp_path: Path) -> None:
    path = file_with(tmp_path, x=IQ[:, :, :50].transpose(0, 2, 1))
    with pytest.raises(
        DataError, match=r"a.mat: frames and samples of x \(6, 50, 4\) cannot be told apart.*--axes nTA"
    ):
        reading(path)
    np.testing.assert_array_equal(reading(path, axes="nTA")[0], IQ[:, :, :50])
    np.testing.assert_array_equal(reading(path, samples=50)[0], IQ[:, :, :50])


def test_four_frames_of_four_antennas_need_the_axes(tmp_path: Path) -> None:
    path = file_with(tmp_path, x=IQ[:4])
    with pytest.raises(DataError, match="cannot be told apart"):
        reading(path)
    np.testing.assert_array_equal(reading(path, axes="nAT")[0], IQ[:4])


@pytest.mark.parametrize("axes", ["nTA", "TAn", "ATn", "AnT"])
def test_axes_hold_for_a_single_frame_and_for_a_single_antenna(axes: str, tmp_path: Path) -> None:
    order = ["nAT".index(letter) for letter in axes]
    one_frame = reading(file_with(tmp_path, x=IQ[:1].transpose(order)), axes=axes)[0]
    np.testing.assert_array_equal(one_frame, IQ[:1])
    one_antenna = reading(file_with(tmp_path, x=IQ[:, :1].transpose(order)), axes=axes, antennas=1)[0]
    np.testing.assert_array_equal(one_antenna, IQ[:, :1])


def test_a_cell_of_frames_and_a_struct_are_read(tmp_path: Path) -> None:
    cell = np.empty(N, dtype=object)
    for i in range(N):
        cell[i] = IQ[i].T
    np.testing.assert_array_equal(reading(file_with(tmp_path, frames=cell))[0], IQ)
    iq, cfo_hz, _ = reading(file_with(tmp_path, rec={"iq": IQ, "cfo": CFO}), iq_key="rec.iq", cfo_key="rec.cfo")
    np.testing.assert_array_equal(iq, IQ)
    np.testing.assert_array_equal(cfo_hz, CFO)


def test_a_matlab_7_3_file_has_reversed_axes_and_compound_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    frames = load(write_random(tmp_path / "set", frames=5))
    export_dataset("mat", frames, tmp_path / "mat", ExportOptions(version="7.3"))
    path = tmp_path / "mat/E1/D01/L1.mat"
    assert path.read_bytes()[:10] == b"MATLAB 7.3"
    with h5py.File(path) as file:
        assert file["iq"].shape == (5, 4, 16)  # (T, A, n) in MATLAB
        assert file["iq"].dtype.names == ("real", "imag")
        assert file["iq"].attrs["MATLAB_class"] == b"single"
        assert file["cfo_hz"].shape == (4, 5)


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        (
            {"iq": IQ[0, :2].T, "cfo": np.zeros(512)},
            {},
            r"a.mat: no complex array with 4 antennas; found iq \(320, 2\), cfo \(512,\). If every .* with --antennas",
        ),
        ({"iq": IQ[:, :3]}, {"axes": "nAT"}, r"no complex array with 4 antennas; .* give it with --antennas"),
        ({"iq": IQ}, {"axes": "nTA"}, r"a.mat: --axes nTA does not fit iq \(6, 4, 320\) with 4 antennas. Correct it"),
        ({"iq": IQ}, {"samples": 100}, r"a.mat: --samples 100 does not fit iq \(6, 4, 320\) with 4 antennas"),
        ({"iq": IQ[:0], "cfo": CFO[:0]}, {}, "a.mat: holds no frames; found iq .*, cfo .*. Leave the file out"),
        ({"iq": IQ[:0].real}, {}, "a.mat: holds no frames"),  # MATLAB keeps nothing complex in an empty array
        ({"iq": IQ.real}, {}, "no complex array with 4 antennas; found iq .* Expected the I/Q as one complex array"),
        ({"note": "empty"}, {}, "no complex array with 4 antennas; found no arrays"),
        ({"a": IQ, "b": IQ}, {}, r"several complex arrays with 4 antennas: a .*, b .*--iq-key"),
        ({"iq": IQ}, {"iq_key": "x"}, r"holds no array 'x' \(--iq-key\); found iq"),
        ({"iq": IQ, "r": CFO}, {"iq_key": "r"}, r"r \(6, 4\) is not a complex array"),
        ({"iq": IQ, "cfo": CFO[:5]}, {}, r"the CFO cfo \(5, 4\) does not fit the frames; expected .* 6 × 4"),
        ({"iq": IQ, "c": CFO[:5]}, {"cfo_key": "c"}, r"the CFO c \(5, 4\) does not fit the frames"),
        ({"iq": IQ, "p": CFO, "q": CFO}, {}, "several arrays could be the CFO: p .*, q .*--cfo-key"),
        ({"iq": IQ}, {"antennas": 3}, "no complex array with 3 antennas"),
    ],
)
def test_errors_say_what_was_found_and_what_to_do(arrays, options, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        reading(file_with(tmp_path, **arrays), **options)


def test_an_array_called_cfo_goes_before_others_that_fit(tmp_path: Path) -> None:
    _, cfo_hz, _ = reading(file_with(tmp_path, iq=IQ, rssi=CFO + 1, CFO_est=CFO))
    np.testing.assert_array_equal(cfo_hz, CFO)


def test_axes_must_be_three_letters(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected the letters n, T and A once each"):
        reading(file_with(tmp_path, iq=IQ), axes="nTT")


def test_the_pattern_names_environment_device_and_capture(tmp_path: Path) -> None:
    for device, place in (("alpha", "hall"), ("beta", "roof")):
        (tmp_path / "src").mkdir(exist_ok=True)
        savemat(tmp_path / "src" / f"{place}_{device}.mat", {"iq": IQ})
    options = ImportOptions(pattern="{environment}_{device}.mat", capture="walk")
    import_dataset("mat", tmp_path / "src", tmp_path / "out", options)
    frames = load(tmp_path / "out")
    assert (frames.environments, frames.devices, frames.captures) == (("hall", "roof"), ("alpha", "beta"), ("walk",))


@pytest.mark.parametrize(("bad", "message"), [(np.inf, "NaN or infinite samples"), (0, "zero power")])
def test_bad_samples_are_named_by_file_before_anything_is_written(bad: float, message: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    savemat(tmp_path / "src/D01.mat", {"iq": IQ})
    spoilt = IQ.copy()
    spoilt[4] = bad
    savemat(tmp_path / "src/D02.mat", {"iq": spoilt})
    with pytest.raises(DataError, match=rf"D02.mat: frame 4 (holds|has) {message}"):
        import_dataset("mat", tmp_path / "src", tmp_path / "out", ImportOptions(pattern="{device}.mat"))
    assert not (tmp_path / "out").exists()


def test_files_of_another_shape_are_named(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    savemat(tmp_path / "src/D01.mat", {"iq": IQ, "cfo": CFO})
    savemat(tmp_path / "src/D02.mat", {"iq": IQ[:, :, :300], "cfo": CFO})
    with pytest.raises(DataError, match=r"E1/D02/L1: frames of 4 antennas and 300 samples, E1/D01/L1 has 4 and 320"):
        import_dataset("mat", tmp_path / "src", tmp_path / "out", ImportOptions(pattern="{device}.mat"))


def test_a_pattern_that_fits_nothing_names_what_is_there(tmp_path: Path) -> None:
    file_with(tmp_path, iq=IQ)
    with pytest.raises(DataError, match=r"no file fits the pattern .*; the first of 1 files is a.mat. Give --pattern"):
        import_dataset("mat", tmp_path, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"unknown field 'devices'. Did you mean 'device'"):
        import_dataset("mat", tmp_path, tmp_path / "out", ImportOptions(pattern="{devices}.mat"))
    assert not (tmp_path / "out").exists()


def test_without_the_extra_there_is_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pymatreader", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pisa-capc\[mat\]'"):
        reading(file_with(tmp_path, iq=IQ))


def test_other_variables_of_every_kind_do_not_stand_in_the_way(tmp_path: Path) -> None:
    from scipy.sparse import csc_array

    others = {
        "text": "lab",
        "texts": np.array(["a", "bcd"], dtype=object),
        "nested": {"a": {"b": [1, 2]}, "c": np.array([[1, "x"]], dtype=object)},
        "sparse": csc_array(np.eye(3)),
        "flag": True,
        "empty": np.zeros((0, 0)),
        "small": np.int8([[1, 2]]),
    }
    for compressed in (False, True):
        savemat(tmp_path / "a.mat", {"iq": IQ, **others}, do_compression=compressed)
        np.testing.assert_array_equal(reading(tmp_path / "a.mat")[0], IQ)


def test_a_type_code_past_the_end_of_the_readers_table_is_refused(tmp_path: Path) -> None:
    path = file_with(tmp_path, iq=IQ)
    content = bytearray(path.read_bytes())
    start = content.index(IQ.real.astype("<f4").transpose(2, 1, 0).tobytes()[:8]) - 8
    assert content[start] == 7  # single
    content[start] = 200
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a.mat: damaged MAT file \(an element of type 200 in an array of class 7\)"):
        reading(path)


@pytest.mark.parametrize("content", [b"", b"x" * 200, bytes(200)])
def test_a_file_of_another_kind_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(DataError, match=r"a.mat: not a MAT file of version 5 or 7.3"):
        reading(tmp_path / "a.mat")


def test_a_pattern_that_would_put_two_captures_into_one_file_is_refused(tmp_path: Path) -> None:
    write_random(tmp_path / "set")
    with pytest.raises(ConfigError, match=r"the same file D01\.mat"):
        export_dataset("mat", load(tmp_path / "set"), tmp_path / "out", ExportOptions("{device}.mat", "5", None))
    assert not (tmp_path / "out").exists()


def test_a_file_where_a_folder_is_expected_is_said_to_be_one(tmp_path: Path) -> None:
    path = file_with(tmp_path, iq=np.ones((3, 320, 4), complex))
    with pytest.raises(DataError, match="is not a folder"):
        import_dataset("mat", path, tmp_path / "out", ImportOptions())
