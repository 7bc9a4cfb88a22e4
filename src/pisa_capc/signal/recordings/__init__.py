"""Raw I/Q as receivers write it: read in blocks, whatever its size."""

from typing import Any

from pisa_capc.core.moved import by_old_name
from pisa_capc.signal.recordings.base import About, Annotation, Recording
from pisa_capc.signal.recordings.health import WatchedRecording
from pisa_capc.signal.recordings.opening import open_recording
from pisa_capc.signal.recordings.resample import resampled

__all__ = ["About", "Annotation", "Recording", "WatchedRecording", "open_recording", "resampled"]


def __getattr__(name: str) -> Any:
    return by_old_name(__name__, {"Watched": "WatchedRecording"}, name)
