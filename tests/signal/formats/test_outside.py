"""Foreign files that lead elsewhere, announce too much or never end."""

from __future__ import annotations

import json
import time
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io

from pisa_capc import load
from pisa_capc.core.errors import DataError
from pisa_capc.data.store import hdf5
from pisa_capc.signal.formats import look, mat5
from pisa_capc.signal.formats.transfer import ExportOptions, ImportOptions, export_dataset, import_dataset
from tests.datasets import write_random


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that nobody meant to publish."""
    path = tmp_path / "secret.h5"
    with h5py.File(path, "w") as file:
        file["data"] = np.ones((6, 64), np.float32)
        file["iq"] = np.ones((6, 4, 16), np.complex64)
        file["label"] = np.ones(6)
    return path


def point_elsewhere(file: h5py.File, name: str, how: str, secret: Path) -> None:
    shape, dtype = file[name].shape, file[name].dtype
    del file[name]
    if how == "external storage":
        file.create_dataset(name, shape, dtype, external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
    elif how == "external link":
        file[name] = h5py.ExternalLink(str(secret), f"/{name}")
    elif how == "soft link":
        file[f"kept_{name}"] = np.ones(shape, dtype)
        file[name] = h5py.SoftLink(f"/kept_{name}")
    else:
        layout = h5py.VirtualLayout(shape, dtype)
        layout[...] = h5py.VirtualSource(str(secret), name, shape)
        file.create_virtual_dataset(name, layout)


WAYS = {
    "external storage": "has its numbers in another file",
    "external link": "is a link to another file",
    "soft link": "is a soft link",
    "virtual": "is put together from other arrays",
}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("format", ["native", "hdf5", "mat"])
def test_numbers_of_other_files_are_never_read(format: str, how: str, secret: Path, tmp_path: Path) -> None:
    frames = load(write_random(tmp_path / "set", environments=["E1"], devices=1, captures=["L1"]))
    if format == "native":
        path, name = tmp_path / "set/E1/D01/L1.h5", "iq"
    elif format == "hdf5":
        export_dataset("hdf5", frames, tmp_path / "foreign", ExportOptions(antenna=0))
        path, name = tmp_path / "foreign/E1/L1.h5", "data"
    else:
        export_dataset("mat", frames, tmp_path / "foreign", ExportOptions(version="7.3"))
        path, name = tmp_path / "foreign/E1/D01/L1.mat", "iq"
    with h5py.File(path, "r+") as file:
        point_elsewhere(file, name, how, secret)

    def read() -> object:
        if format == "native":
            return load(tmp_path / "set").iq
        return import_dataset(
            format, tmp_path / "foreign", tmp_path / "out", ImportOptions(samples=None if format == "hdf5" else 16)
        )

    with pytest.raises(DataError, match=rf"{name} {WAYS[how]}"):
        read()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("other", ["../secret.bin", "/etc/passwd", "inner/secret.bin", "link.bin"])
def test_sigmf_data_outside_of_its_folder_is_refused(other: str, tmp_path: Path) -> None:
    export_dataset("sigmf", load(write_random(tmp_path / "set", frames=3)), tmp_path / "sigmf")
    meta = tmp_path / "sigmf/E1/D01/L1.sigmf-meta"
    (tmp_path / "sigmf/E1/secret.bin").write_bytes(bytes(9000))
    (meta.parent / "link.bin").symlink_to(tmp_path / "sigmf/E1/secret.bin")
    described = json.loads(meta.read_text())
    described["global"]["core:dataset"] = other
    meta.write_text(json.dumps(described))
    with pytest.raises(DataError, match=r"core:dataset.*(is not a file beside it|does not match)"):
        import_dataset("sigmf", tmp_path / "sigmf", tmp_path / "out")


class TestSizes:
    def test_an_hdf5_array_that_would_fill_the_memory_is_refused_unread(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "big.h5", "w") as file:
            file["data"] = np.ones((4, 64), np.float32)
            file.create_dataset("label", (1 << 34,), np.int64, chunks=(1 << 20,), compression="gzip")
        with pytest.raises(DataError, match=r"label \(17179869184,\) would unpack to 137,438,953,472 bytes"):
            import_dataset("hdf5", tmp_path / "big.h5", tmp_path / "out")

    def test_labels_are_counted_before_they_are_read(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["data"], file["label"] = np.ones((4, 64), np.float32), np.ones(5)
        with pytest.raises(DataError, match="/label has 5 values; expected 4, one per row of /data"):
            import_dataset("hdf5", tmp_path / "a.h5", tmp_path / "out")

    def test_a_compressed_variable_that_would_fill_the_memory_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mat5, "ROOM", 1 << 20)
        path = tmp_path / "E1/D01/L1.mat"
        path.parent.mkdir(parents=True)
        scipy.io.savemat(path, {"iq": np.zeros((1 << 20, 4))}, do_compression=True)
        with pytest.raises(DataError, match=r"damaged MAT file \(a compressed element of .* unpacks to more than"):
            import_dataset("mat", tmp_path, tmp_path / "out")

    def test_a_compressed_variable_that_is_cut_off_is_refused(self) -> None:
        packed = zlib.compress(bytes(1000))[:-4]
        with pytest.raises(ValueError, match="cut off"):
            mat5._unpacked(memoryview(packed), 2000)


class TestFilesThatDoNotEnd:
    def reader(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> Path:
        (tmp_path / "reader.py").write_text(program)
        monkeypatch.setattr(hdf5, "__file__", str(tmp_path / "reader.py"))
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["data"], file["label"] = np.ones((4, 64), np.float32), np.ones(4)
        return tmp_path / "a.h5"

    def test_are_given_up(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        deaf = "import signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass\n"
        path = self.reader(tmp_path, monkeypatch, deaf)
        monkeypatch.setattr(look, "LIMIT_S", 0.5)
        began = time.monotonic()
        with pytest.raises(DataError, match=r"a.h5: damaged \(reading it did not end within"):
            import_dataset("hdf5", path, tmp_path / "out")
        assert time.monotonic() - began < 10

    def test_a_reader_that_crashes_is_an_error_about_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = self.reader(tmp_path, monkeypatch, "import os\ninput()\nos.abort()\n")
        with pytest.raises(DataError, match=r"a.h5: damaged \(reading it ended the program"):
            import_dataset("hdf5", path, tmp_path / "out")

    def test_groups_that_hold_themselves_are_walked_once(self, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["data"], file["label"] = np.random.default_rng(0).normal(size=(4, 64)), np.ones(4)
            file.create_group("inner")["again"] = file["/"]
        assert len(import_dataset("hdf5", tmp_path / "a.h5", tmp_path / "out").captures) == 1
