"""Found frames as a dataset."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.data.frames import load
from pisa_capc.data.protocol import split
from pisa_capc.data.store.native import summarise
from pisa_capc.data.store.origins import NAME, read_origins
from pisa_capc.signal.detection import Found, detect
from pisa_capc.signal.detection.dataset import DatasetChoices, read_frames, without_cfo, write_frames
from pisa_capc.signal.phy import Header
from pisa_capc.signal.recordings import Annotation
from tests.signal.detection.senders import AP, CFO_HZ, PHONE, Marks, conversation, marked
from tests.signal.recordings.tools import InMemory

AP_NAME, PHONE_NAME = AP.replace(":", "-"), PHONE.replace(":", "-")


def found_in(x: NDArray[np.complex64], rate_hz: float = 20e6, name: str = "roof.cs16", **about: object) -> Found:
    recording = InMemory(x, rate_hz)
    recording.about = replace(recording.about, name=name, carrier_hz=5.2e9, **about)  # type: ignore[arg-type]
    return detect(recording)


@pytest.fixture(scope="module")
def talk() -> Found:
    return found_in(conversation())


def marks(starts: tuple[int, ...], header: Header | None = None, annotations: tuple[Annotation, ...] = ()) -> Found:
    recording = InMemory(marked(starts), annotations=annotations)
    recording.about = replace(recording.about, carrier_hz=5.2e9)
    return detect(recording, detector=Marks(header=header), decode=False)


def test_frames_are_grouped_by_the_address_that_their_checksum_confirms(talk: Found, tmp_path: Path) -> None:
    written = write_frames(tmp_path / "set", [talk])
    assert written.left_out == {"whose device nothing says": 1}
    frames = load(tmp_path / "set")
    assert frames.devices == (AP_NAME, PHONE_NAME)
    assert summarise(tmp_path / "set")["frames"] == {"E1": {"roof": {AP_NAME: 2, PHONE_NAME: 1}}}
    assert (frames.sample_rate_hz, frames.carrier_hz, frames.samples) == (20e6, 5.2e9, 320)


def test_frames_are_aligned_and_their_offset_is_beside_them(talk: Found, tmp_path: Path) -> None:
    """Compensated, a preamble repeats itself with its L-STF's period: what is left of the offset is its error."""
    write_frames(tmp_path / "set", [talk])
    write_frames(tmp_path / "kept", [talk], DatasetChoices(keep_cfo=True))
    taken_out, kept = load(tmp_path / "set"), load(tmp_path / "kept")
    assert taken_out.cfo_hz is not None
    assert taken_out.cfo_hz.mean(axis=1) == pytest.approx([CFO_HZ[0], CFO_HZ[3], CFO_HZ[1]], abs=800)
    for frames, left_hz in ((taken_out, np.zeros((3, 2))), (kept, taken_out.cfo_hz)):
        turn = np.angle(np.sum(frames.iq[..., :144].conj() * frames.iq[..., 16:160], axis=-1))
        assert turn * 20e6 / (2 * np.pi * 16) == pytest.approx(left_hz, abs=2000)
    own = talk.recording.read(talk.frames[0].start, 320)
    assert np.array_equal(kept.iq[0], own)
    assert np.allclose(taken_out.iq[0], without_cfo(own, taken_out.cfo_hz[0], 20e6), atol=1e-7)


def test_frames_in_memory_are_those_on_disk(talk: Found, tmp_path: Path) -> None:
    """All of them, whoever sent them, in the order of time."""
    frames, found = read_frames([talk])
    assert tuple(found) == talk.frames
    write_frames(tmp_path / "set", [talk], DatasetChoices("none"))
    written = load(tmp_path / "set")
    assert np.array_equal(frames.iq, written.iq)
    assert np.array_equal(frames.cfo_hz, written.cfo_hz)
    assert (frames.sample_rate_hz, frames.carrier_hz, frames.samples) == (20e6, 5.2e9, 320)


def test_a_dead_antenna_is_zero_in_memory_and_has_the_offset_of_the_others(talk: Found) -> None:
    half = tuple(replace(frame, cfo_hz=(frame.cfo_hz[0], np.nan)) for frame in talk.frames)
    frames, _ = read_frames([replace(talk, frames=half)])
    assert not frames.iq[:, 1].any()
    assert np.array_equal(frames.iq[:, 0], read_frames([talk])[0].iq[:, 0])
    assert frames.cfo_hz is not None
    assert np.array_equal(frames.cfo_hz[:, 1], frames.cfo_hz[:, 0])
    dead = tuple(replace(frame, cfo_hz=(np.nan, np.nan)) for frame in talk.frames)
    with pytest.raises(DataError, match=r"roof\.cs16: no Wi-Fi frame was found whole"):
        read_frames([replace(talk, frames=dead)])


def test_frames_of_another_rate_are_cut_from_the_resampled_recording(tmp_path: Path) -> None:
    from scipy.signal import resample_poly

    faster = resample_poly(conversation().astype(np.complex128), 5, 4, axis=1).astype(np.complex64)
    found = found_in(faster, 25e6)
    write_frames(tmp_path / "set", [found], DatasetChoices(keep_cfo=True))
    frames, plain = load(tmp_path / "set"), conversation()
    assert frames.sample_rate_hz == 20e6
    for row, place in enumerate((0, 3, 1)):
        expected = plain[:, found.frames[place].at :][:, :320]
        assert np.linalg.norm(frames.iq[row] - expected) < 0.02 * np.linalg.norm(expected)


def test_every_frame_keeps_recording_first_sample_and_time(tmp_path: Path) -> None:
    began = datetime(2026, 5, 1, tzinfo=UTC)
    found = found_in(conversation(), time=began)
    write_frames(tmp_path / "set", [found])
    origins = read_origins(tmp_path / "set")
    assert origins is not None
    assert [(o.device, o.frame, o.recording, o.start) for o in origins] == [
        (AP_NAME, 0, "roof.cs16", found.frames[0].start),
        (AP_NAME, 1, "roof.cs16", found.frames[3].start),
        (PHONE_NAME, 0, "roof.cs16", found.frames[1].start),
    ]
    late = origins[1]
    assert late.time_s == late.start / 20e6
    assert (datetime.fromisoformat(late.time) - began).total_seconds() == pytest.approx(late.time_s, abs=1e-6)
    assert late.transmitter == AP
    path = tmp_path / "set" / NAME
    path.write_text(path.read_text().replace("roof", "cellar"))
    with pytest.raises(DataError, match=r"frames.csv: has changed since it was written"):
        read_origins(tmp_path / "set")


def test_what_was_stopped_is_gone_on_with(talk: Found, tmp_path: Path) -> None:
    write_frames(tmp_path / "set", [talk])
    gone = tmp_path / "set/E1" / PHONE_NAME / "roof.h5"
    whole = load(tmp_path / "set").iq
    gone.unlink()
    (tmp_path / "set" / NAME).unlink()
    write_frames(tmp_path / "set", [talk])
    assert np.array_equal(load(tmp_path / "set").iq, whole)
    assert read_origins(tmp_path / "set")
    with pytest.raises(DataError, match="already holds another dataset"):
        write_frames(tmp_path / "set", [talk], DatasetChoices(samples=400))


def test_recordings_are_captures_of_one_dataset(tmp_path: Path) -> None:
    parts = [found_in(conversation(), name=name, environment="roof") for name in ("noon-6.5.cs16", "night")]
    write_frames(tmp_path / "set", parts)
    assert list(summarise(tmp_path / "set")["frames"]["roof"]) == ["night", "noon-6.5"]
    named = [{"environment": "X", "capture": "c1"}, {"environment": "X", "capture": "c2"}]
    write_frames(tmp_path / "named", parts, DatasetChoices(), named)
    assert list(summarise(tmp_path / "named")["frames"]["X"]) == ["c1", "c2"]
    write_frames(tmp_path / "one", parts, DatasetChoices(environment="E9", capture="L1"))
    assert summarise(tmp_path / "one")["frames"]["E9"]["L1"][AP_NAME] == 4


class TestLabels:
    def test_annotations_name_devices(self, tmp_path: Path) -> None:
        notes = (Annotation(95, 50, "left: one"), Annotation(990, 50, "right"))
        write_frames(
            tmp_path / "set", [marks((100, 500, 1000), annotations=notes)], DatasetChoices("annotation", samples=20)
        )
        assert load(tmp_path / "set").devices == ("left- one", "right")

    def test_unlabelled_frames_can_be_read_but_not_trained_on(self, tmp_path: Path) -> None:
        write_frames(tmp_path / "set", [marks((100, 500))], DatasetChoices("none", samples=20))
        frames = load(tmp_path / "set")
        assert (len(frames.unlabelled()), frames.devices) == (2, ("unlabelled",))
        with pytest.raises(DataError, match="frames that are unlabelled"):
            split(frames, "E1", "E2", 1)


class TestWhatIsRefused:
    def test_frames_that_the_recording_ends_in_are_left_out_and_counted(self, tmp_path: Path) -> None:
        written = write_frames(tmp_path / "set", [marks((100, 2990))], DatasetChoices("none", samples=20))
        assert written.left_out == {"cut off by the end of the recording before 20 samples": 1}
        assert len(load(tmp_path / "set")) == 1

    def test_a_dataset_of_no_frame_is_not_begun(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"no frame is left .*: 2 whose device nothing says"):
            write_frames(tmp_path / "set", [marks((100, 500))])
        assert not (tmp_path / "set").exists()

    def test_a_carrier_that_nobody_gave(self, talk: Found, tmp_path: Path) -> None:
        nowhere = InMemory(conversation())
        with pytest.raises(DataError, match="Give --carrier"):
            write_frames(tmp_path / "set", [replace(talk, recording=nowhere)])

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda about: replace(about, carrier_hz=2.4e9), "carrier_hz is 2400000000.0; roof.cs16 has 5200000000.0"),
            (lambda about: replace(about, antennas=3), "antennas is 3; roof.cs16 has 2"),
        ],
    )
    def test_recordings_that_do_not_go_together(
        self, change: Callable[[object], object], words: str, talk: Found, tmp_path: Path
    ) -> None:
        other = InMemory(conversation())
        other.about = change(talk.recording.about)  # type: ignore[assignment]
        with pytest.raises(DataError, match=words):
            write_frames(tmp_path / "set", [talk, replace(talk, recording=other)])


def test_nothing_of_a_payload_is_written(talk: Found, tmp_path: Path) -> None:
    write_frames(tmp_path / "set", [talk])
    for path in (tmp_path / "set").rglob("*"):
        if path.is_file():
            assert b"hello" not in path.read_bytes()
    assert json.loads((tmp_path / "set/dataset.json").read_text())["provenance"]["cfo"] == "compensated"
