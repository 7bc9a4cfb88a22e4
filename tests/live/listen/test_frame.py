"""A frame is one type from the recording to the page: each step adds what it knows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pisa_capc.decide.calibration.peers.base import Direct
from pisa_capc.decide.identification import Choices, identify
from pisa_capc.decide.identification.write import write
from pisa_capc.live.listen import Air, Event, Listener, ListenPlan
from pisa_capc.live.listen.sources import FileSource
from pisa_capc.live.serve.memory import Memory
from pisa_capc.model.inference import TrainedModel
from pisa_capc.signal.detection import FoundFrame, detect
from pisa_capc.signal.recordings import open_recording
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.recordings.sigmf import DATA, META
from pisa_capc.signal.simulation.recording import record
from tests.problems import ANTENNAS
from tests.signal.recordings.tools import write_sigmf

ROW = [
    *("recording", "start", "time_s", "cfo_hz", "snr_db", "quality"),
    *("rate_mbps", "length", "kind", "transmitter", "receiver", "fcs"),
]
DECIDED = [
    *("samples", "time", "device", "like", "probability"),
    *("unknown", "unknown_score", "p_value", "evidence", "fit", "reason"),
]
EVENT = [
    *("event", "number", "time_s", "at", "start", "device", "like", "probability", "address", "receiver"),
    *("kind", "rate_mbps", "cfo_hz", "snr_db", "quality", "verdict"),
]


@pytest.mark.filterwarnings("ignore:.* looks poisoned")
def test_a_frame_is_one_type_from_the_recording_to_the_page(trained: TrainedModel, tmp_path: Path) -> None:
    simulated = open_recording(Path(record("wifi", tmp_path / "made", 0.02, workers=1, duty=0.5).recording))
    path = write_sigmf(tmp_path / "air", simulated.read(0, simulated.about.length)[:ANTENNAS])
    recording = open_recording(path)
    found = detect(recording)
    who = identify(trained, [found], Choices(Direct(), reject=None), "cpu")
    out, memory, events = tmp_path / "who.jsonl", Memory(), list[Event]()
    write(out, who, recording)

    air = Air(20e6, ANTENNAS, Encoding.named("cs16"), recording.about.carrier_hz)
    listener = Listener(trained, FileSource(path.with_name(path.name.replace(META, DATA))), air, ListenPlan())
    listener.run(lambda event: (events.append(event), memory.hear(event)))  # type: ignore[func-returns-value]
    memory.take()
    heard = [event for event in events if isinstance(event, FoundFrame)]
    kept = [listener.frame(frame.number) for frame in heard]
    page = memory.newest_decisions(1000)[::-1]

    assert len(found.frames) > 10
    for frames in (found.frames, who.frames, heard, kept, page):
        assert {type(frame) for frame in frames} == {FoundFrame}
        for frame, first in zip(frames, found.frames, strict=True):
            assert (frame.start, frame.end, frame.time_s, frame.samples) == (
                *(first.start, first.end, first.time_s, first.samples),
            )
            np.testing.assert_allclose(frame.cfo_hz, first.cfo_hz)
            assert frame.claimed == first.claimed
    assert all(frame.identity is None and frame.number < 0 for frame in found.frames)
    assert all(frame.who.like in trained.devices and frame.number < 0 for frame in who.frames)
    assert [frame.number for frame in page] == [frame.number for frame in heard] == list(range(len(heard)))
    assert all(frame.utc and frame.iq.size == 0 for frame in heard)
    assert all(frame is not None and frame.iq.shape[0] == ANTENNAS and frame.embedding is not None for frame in kept)

    assert [list(frame.to_json()) for frame in found.frames] == [ROW] * len(found.frames)
    assert [list(json.loads(line)) for line in out.read_text().splitlines()] == [ROW + DECIDED] * len(found.frames)
    assert [list(frame.to_json()) for frame in page] == [EVENT] * len(page)
