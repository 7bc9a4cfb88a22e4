"""What is listened to, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pisa_capc.live.listen.recognise import LiveChoices
from pisa_capc.signal.detection.finding import Rename
from pisa_capc.signal.recordings.encoding import Encoding


@dataclass(frozen=True)
class Air:
    """What is listened to."""

    sample_rate_hz: float
    antennas: int
    encoding: Encoding
    carrier_hz: float | None = None
    waveform: str | None = None  # of the model unless told


@dataclass(frozen=True)
class ListenPlan:
    """How it is listened to.

    addresses: the device of each enrolled address; None: devices are named by them. rename: pseudonyms for addresses.
    alpha: chance of a false alarm of each test, over all time. spacing_s: seconds between frames of an address that are
    tested; change_spacing_s: the same of a device. state: folder that outlives the listener. alarms: folder of
    snippets, of at most alarms_bytes; alarm_every_s: between alarms of one cause. save_every_s: between states.
    buffer_s: of samples that may wait. own_process: whether frames are found in a process of its own; None: where the
    source does not wait.
    """

    choices: LiveChoices = field(default_factory=LiveChoices)
    addresses: Mapping[str, str] | None = None
    rename: Rename | None = None
    alpha: float = 0.01
    spacing_s: float = 0.0
    change_spacing_s: float = 1.0
    state: Path | None = None
    alarms: Path | None = None
    alarms_bytes: int = 256 << 20
    alarm_every_s: float = 3600.0
    save_every_s: float = 10.0
    buffer_s: float = 0.5
    own_process: bool | None = None
