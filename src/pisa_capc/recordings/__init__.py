"""Raw I/Q as receivers write it: read in blocks, whatever its size."""

from pisa_capc.recordings.base import About, Annotation, Recording
from pisa_capc.recordings.health import Watched
from pisa_capc.recordings.opening import open_recording
from pisa_capc.recordings.resample import resampled

__all__ = ["About", "Annotation", "Recording", "Watched", "open_recording", "resampled"]
