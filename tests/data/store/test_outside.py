"""Files of others: bounded before they are unpacked, checked where they have a checksum, never left out in silence."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.core.errors import DataError
from pisa_capc.data.store import outside
from pisa_capc.data.store.files import find_captures
from pisa_capc.data.store.outside import files_under, read_arrays
from pisa_capc.decide.calibration.scores_file import read_scores
from pisa_capc.evidence.benchmark.records import read_records
from pisa_capc.signal.formats.transfer import import_dataset


def packed(values: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    path = tmp_path / "scores.npz"
    np.savez(path, embedding=np.ones((3, 2)), logits=np.ones((3, 4)), source_bias=np.ones(4), frame=np.arange(3))
    return path


class TestArchives:
    def test_only_what_a_calibration_knows_is_unpacked(self, scores: Path) -> None:
        with zipfile.ZipFile(scores, "a") as archive:
            archive.writestr("photographs.npy", b"not even an array")
        assert set(read_scores(scores)) == {"embedding", "logits", "source_bias", "frame"}

    def test_a_small_archive_that_would_fill_the_memory_is_refused_unread(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(outside, "ROOM", 1 << 20)
        path = tmp_path / "bomb.npz"
        np.savez_compressed(path, embedding=np.zeros((1 << 17, 2)), logits=np.zeros((1 << 17, 2)))
        monkeypatch.setattr(zipfile.ZipExtFile, "read", None)
        with pytest.raises(DataError, match=r"would unpack .* to 4,194,\d+; expected at most 100 times as many"):
            read_scores(path)

    @pytest.mark.parametrize("shape", [(1 << 50, 2), (2, 2), (-3, -2)])
    def test_a_header_that_does_not_fit_its_bytes_is_refused(self, shape: tuple[int, int], tmp_path: Path) -> None:
        content = packed(np.ones((3, 2))).replace(b"(3, 2), }", f"{shape}, }}".encode())
        excess = len(content) - len(packed(np.ones((3, 2))))
        content = content.replace(b" " * excess + b"\n", b"\n", 1)
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("embedding.npy", content)
        with pytest.raises(DataError, match=r"embedding .* needs .* bytes; the archive has 48"):
            read_scores(tmp_path / "a.npz")

    @pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_any_compression_of_the_standard_is_read(self, kind: int, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "a.npz", "w", kind) as archive:
            archive.writestr("embedding.npy", packed(np.ones((3, 2))))
            archive.writestr("logits.npy", packed(np.ones((3, 2), order="F")))
        assert read_scores(tmp_path / "a.npz")["logits"].shape == (3, 2)

    def test_whatever_the_parser_raises_is_one_error_that_names_the_file(self, scores: Path) -> None:
        for raised in (MemoryError(), NotImplementedError("compression type 99"), SyntaxError("token")):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(outside, "read_header", lambda *_, e=raised: (_ for _ in ()).throw(e))
                with pytest.raises(DataError, match=r"scores.npz: cannot be read"):
                    read_scores(scores)

    def test_two_arrays_of_one_name_are_refused(self, scores: Path) -> None:
        with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(scores, "a") as archive:
            archive.writestr("logits.npy", packed(np.zeros((3, 4))))
        with pytest.raises(DataError, match="two arrays of one name"):
            read_arrays(scores)

    def test_an_optional_array_whose_name_is_damaged_in_the_list_is_not_taken_for_absent(self, scores: Path) -> None:
        content = bytearray(scores.read_bytes())
        place = content.rindex(b"logits.npy")
        content[place : place + 3] = b"\xff\xff\xff"
        scores.write_bytes(content)
        with pytest.raises(zipfile.BadZipFile, match="File name in directory"):
            read_arrays(scores, ["embedding"], optional="logits")

    def test_samples_that_do_not_match_the_checksum_of_the_archive_are_not_imported(self, tmp_path: Path) -> None:
        path = tmp_path / "frames.npz"
        iq = np.random.default_rng(0).normal(size=(4, 2, 32)).astype(np.complex64)
        np.savez(path, iq=iq, device=["a", "a", "b", "b"])
        content = path.read_bytes()
        place = content.index(iq[2].tobytes()) + 9
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DataError, match=r"frames.npz: cannot be read \(BadZipFile: Bad CRC-32"):
            import_dataset("npz", path, tmp_path / "out")
        assert not (tmp_path / "out").exists()


class TestFolders:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A folder with one inside it that may not be read; whoever runs tests as root may read everything."""
        for name in ("E1/D01/L1.mat", "E2/D01/L1.mat"):
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).touch()
        scandir = os.scandir

        def refusing(path):  # type: ignore[no-untyped-def]
            if Path(path).name == "E2":
                raise PermissionError(13, "Permission denied", str(path))
            return scandir(path)

        monkeypatch.setattr(os, "scandir", refusing)
        return tmp_path

    def test_one_that_may_not_be_read_ends_an_import(self, folder: Path) -> None:
        with pytest.raises(DataError, match=r"E2: cannot be read \(Permission denied\), so what is in it would"):
            find_captures(folder, "{environment}/{device}/{capture}.mat", {})
        for format in ("mat", "sigmf"):
            with pytest.raises(DataError, match=r"E2: cannot be read \(Permission denied\)"):
                import_dataset(format, folder, folder / "out")

    def test_records_in_one_that_may_not_be_read_are_not_none(self, folder: Path) -> None:
        with pytest.raises(DataError, match=r"E2: cannot be read \(Permission denied\)"):
            read_records(folder / "E2")
        assert read_records(folder / "nowhere") == []

    def test_files_are_found_in_order_and_by_their_ending(self, tmp_path: Path) -> None:
        for name in ("b.mat", "a/c.mat", "a/d.txt"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        assert [p.relative_to(tmp_path).as_posix() for p in files_under(tmp_path, ".mat")] == ["a/c.mat", "b.mat"]
        assert [p.name for p in files_under(tmp_path, deep=False)] == ["b.mat"]
