"""Raw I/Q as receivers write it: read in blocks, whatever its size."""

from pisa_capc.signal.recordings.base import About, Annotation, Recording
from pisa_capc.signal.recordings.health import Watched
from pisa_capc.signal.recordings.opening import open_recording
from pisa_capc.signal.recordings.resample import resampled

__all__ = ["About", "Annotation", "Recording", "Watched", "open_recording", "resampled"]
