"""Small sets to look at: scenes thinned in time, and frames in memory that a fault can be planted in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.frames import Frames
from pisa_capc.signal.simulation.generate import simulate
from pisa_capc.signal.simulation.scene import load_scene

THINNED = 20  # every 20th frame: recordings last as long as those of the whole scene


def small_scene(name: str, folder: Path, devices: int = 5) -> Frames:
    """A built-in scene with fewer devices and frames, in recordings of the same duration."""
    interval_s = THINNED * load_scene(name).waveform.frame_interval_s
    override = folder / f"{name}.yaml"
    override.write_text(f"devices: {devices}\nabsent: []\nwaveform: {{frame_interval_s: {interval_s}}}\n")
    return simulate(name, folder / name, scale=1 / THINNED, scene=override, workers=1, show_progress=False)


@dataclass
class Plain:
    """Frames as arrays, to be changed at will."""

    iq: NDArray[np.complex64]
    device: NDArray[np.str_]
    environment: NDArray[np.str_]
    capture: NDArray[np.str_]
    frame: NDArray[np.int64]
    cfo_hz: NDArray[np.float64] | None
    sample_rate_hz: float

    @classmethod
    def of(cls, frames: Frames) -> Plain:
        def names(kind: str) -> NDArray[np.str_]:
            return np.array(getattr(frames, f"{kind}s"))[getattr(frames, kind)]

        columns = [names(kind) for kind in ("device", "environment", "capture")]
        cfo_hz = frames.cfo_hz
        assert cfo_hz is not None
        return cls(frames.iq.copy(), *columns, frames.frame.copy(), cfo_hz.copy(), frames.sample_rate_hz)

    def where(self, environment: str, device: str, capture: str) -> NDArray[np.intp]:
        here = (self.environment == environment) & (self.device == device) & (self.capture == capture)
        return np.flatnonzero(here)

    def keep(self, which: NDArray[np.bool_]) -> Plain:
        columns = {name: getattr(self, name)[which] for name in ("iq", "device", "environment", "capture", "frame")}
        return replace(self, **columns, cfo_hz=None if self.cfo_hz is None else self.cfo_hz[which])

    def frames(self) -> Frames:
        return Frames.from_arrays(
            self.iq,
            self.device,
            self.environment,
            self.capture,
            self.frame,
            self.cfo_hz,
            sample_rate_hz=self.sample_rate_hz,
        )
