"""The scene: who transmits what where. Dataclasses; every value stands in `scenes/*.yaml` with unit and source.

A built-in scene goes by the name of its file, and what it sends by `waveform.kind`, a name of `waveforms.WAVEFORMS`. To
simulate a waveform of your own, lay a file that names it over the scene of the places and radios that it is sent in, or
write a whole scene:

    waveform: {kind: mine, carrier_hz: 2.45e+9, sample_rate_hz: 4.0e+6, frame_interval_s: 0.01}

    pisa simulate wifi --scene mine.yaml --out mine         # places and hardware of the Wi-Fi scene
    pisa simulate mine-all-of-it.yaml --out mine            # every setting in the file
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pisa_capc.core.config import from_mapping, merged, read_yaml
from pisa_capc.core.errors import ConfigError, unknown_name
from pisa_capc.data.geometry import ArrayGeometry, square
from pisa_capc.data.store.native import CaptureSpec
from pisa_capc.signal.simulation.channel import SPECTRA
from pisa_capc.signal.simulation.hardware import HardwareSpread, Spread
from pisa_capc.signal.simulation.receiver import FrequencySpread
from pisa_capc.signal.waveforms import WAVEFORMS

SCENES = Path(__file__).parent / "scenes"
PACKAGE = Path(__file__).parents[2]
SHORTEST_SAMPLES = 320  # the segment that every model reads
FEWEST_FRAMES = 8  # a capture is never scaled below this


@dataclass(frozen=True)
class Signal:
    """What is sent. kind: the waveform's name. channel_half_width_samples: kernel of the multipath taps, see
    `numerics.delay_kernel`."""

    kind: str
    carrier_hz: float  # of the radio channel
    sample_rate_hz: float  # of the stored frames
    samples: int  # stored length of a frame
    frame_interval_s: float  # between the frames of a capture
    channel_half_width_samples: int

    def __post_init__(self) -> None:
        if self.kind not in WAVEFORMS:
            raise ConfigError("waveform.kind: " + unknown_name("waveform", self.kind, WAVEFORMS))
        longest = WAVEFORMS[self.kind].longest_samples
        if not SHORTEST_SAMPLES <= self.samples <= longest:
            raise ConfigError(
                f"samples: a {self.kind} frame can be stored with {SHORTEST_SAMPLES} to {longest} samples, "
                f"found {self.samples}."
            )
        for name in ("carrier_hz", "sample_rate_hz", "frame_interval_s"):
            _require_positive(f"waveform.{name}", getattr(self, name))
        _require_positive("waveform.channel_half_width_samples", self.channel_half_width_samples, most=1024)

    @property
    def occupied(self) -> float:
        """Part of the Nyquist band that the signal uses."""
        return WAVEFORMS[self.kind].occupied


@dataclass(frozen=True)
class Receiver:
    """The array and what the receiver does to a frame before it is stored."""

    spacing_wavelengths: float  # side of the square of four antennas
    timing_jitter_samples: float  # standard deviation of the beginning of a frame
    equalise_antennas: bool  # whether all antennas are brought to equal power

    def __post_init__(self) -> None:
        _require_positive("receiver.spacing_wavelengths", self.spacing_wavelengths)
        if not 0 <= self.timing_jitter_samples <= 0.3:
            raise ConfigError(
                f"receiver.timing_jitter_samples: expected 0 to 0.3 (standard deviation), found "
                f"{self.timing_jitter_samples}."
            )

    @property
    def geometry(self) -> ArrayGeometry:
        return square(self.spacing_wavelengths)


OWNERS = ("device", "place")


@dataclass(frozen=True)
class Propagation:
    """Whether channel and noise of a capture belong to each device in it, or to the place (environment and capture).

    rays: the delays, directions, powers and Doppler shifts of the paths. Devices that stand metres apart have paths of
    their own, `device`; put down at one spot, theirs are centimetres longer or shorter and otherwise the same, `place`.
    phases: of the paths at the carrier, to which centimetres are turns. Devices put down by hand have phases of their
    own, `device`; in one holder, or behind one antenna, they share them, `place`. The walk of a mobile capture is
    always the device's own.
    noise: the SNR of a capture, and the size of the jitter of its CFO, recorded and residual. Drawn for each device in
    each capture, `device`, they stay over a recording as hardware does, and name the device to a model that has seen
    the recording: the CFO descriptor measures such jitters. With noise of the `place` all devices of a capture share
    them.
    """

    rays: str = "device"
    phases: str = "device"
    noise: str = "device"

    def __post_init__(self) -> None:
        for name in ("rays", "phases", "noise"):
            if getattr(self, name) not in OWNERS:
                raise ConfigError(f"propagation.{name}: " + unknown_name("owner", getattr(self, name), OWNERS))
        if (self.rays, self.phases) == ("device", "place"):
            raise ConfigError(
                "propagation: phases of the place need rays of the place: found rays: device, phases: place."
            )


@dataclass(frozen=True)
class Environment:
    """A place: how long echoes last, where they come from, how strong the direct path is."""

    delay_spread_s: Spread  # r.m.s. delay spread
    k_factor_db: Spread  # power of the direct ray over all others, in line of sight
    clusters: int  # of scatterers
    rays_per_cluster: int  # of each cluster
    cluster_std_db: float  # spread of the power of clusters
    angle_spread_deg: float  # within a cluster
    axis_deg: float | None  # where clusters lie; null: all around
    axis_spread_deg: float  # around that axis
    snr_offset_db: float  # added to the SNR of its captures

    def __post_init__(self) -> None:
        _require_positive("environment.delay_spread_s.low", self.delay_spread_s.low)
        _require_positive("environment.clusters", self.clusters, most=1000)
        _require_positive("environment.rays_per_cluster", self.rays_per_cluster, most=1000)


@dataclass(frozen=True)
class CaptureSetting:
    """A position of the transmitter and how it and the people around it move.

    moving_fraction: part of the scattered power that comes by way of people and what they move, and so fades from
    frame to frame; the direct path and the rest stand still while the transmitter does.
    scatterer_speed_m_s, scatterer_spectrum: of that part, see `channel.SPECTRA`.
    """

    frames: int  # of a device, at scale 1
    line_of_sight: bool  # whether there is a direct ray
    snr_db: Spread  # mean over the capture's frames
    speed_m_s: float  # of the transmitter; 0 stands still
    turning_rad_per_sqrt_s: float  # how fast its direction wanders
    moving_fraction: float
    scatterer_speed_m_s: float
    scatterer_spectrum: str = "clarke"

    def __post_init__(self) -> None:
        _require_positive("capture.frames", self.frames, most=10_000_000)
        if not 0 <= self.moving_fraction <= 1:
            raise ConfigError(f"capture.moving_fraction: expected 0 to 1, found {self.moving_fraction}.")
        if min(self.speed_m_s, self.scatterer_speed_m_s) < 0:
            raise ConfigError(f"capture: speeds must not be negative, found {self}.")
        if self.scatterer_spectrum not in SPECTRA:
            raise ConfigError(
                "capture.scatterer_spectrum: " + unknown_name("spectrum", self.scatterer_spectrum, SPECTRA)
            )


@dataclass(frozen=True)
class Scene:
    """Everything that determines a simulated set but its seed."""

    waveform: Signal  # what is sent
    receiver: Receiver  # the array and the export
    devices: int  # how many, named D01, D02, …
    absent: tuple[str, ...]  # captures that the set does not have, as E3/D05/L1
    hardware: HardwareSpread  # how devices differ
    frequency: FrequencySpread  # how oscillators move
    environments: dict[str, Environment]  # the places by name
    captures: dict[str, CaptureSetting]  # positions and motion by name
    propagation: Propagation = field(default_factory=Propagation)  # whose the channel and the noise are

    def __post_init__(self) -> None:
        _require_positive("devices", self.devices, most=10_000)
        captures = len(self.environments) * self.devices * len(self.captures)
        _require_positive("environments × devices × captures", captures, most=100_000)
        known = {spec.name for spec in self._grid(1.0)}
        for name in self.absent:
            if name not in known:
                raise ConfigError("absent: " + unknown_name("capture", name, known))

    def to_json(self) -> dict[str, Any]:
        """As a dataset's provenance has it; what came later is left out where a scene does not use it."""
        described = asdict(self)
        if self.propagation.noise == Propagation.noise:
            del described["propagation"]["noise"]
        return described

    def layout(self, scale: float = 1.0) -> tuple[CaptureSpec, ...]:
        """Every capture of the set; `scale` shrinks the frames of each, never below eight, and leaves none out."""
        return tuple(spec for spec in self._grid(scale) if spec.name not in self.absent)

    def _grid(self, scale: float) -> list[CaptureSpec]:
        return [
            CaptureSpec(environment, f"D{device:02d}", capture, _scaled(setting.frames, scale))
            for environment in self.environments
            for device in range(1, self.devices + 1)
            for capture, setting in self.captures.items()
        ]


def scene_names() -> list[str]:
    """The built-in scenes."""
    return sorted(path.stem for path in SCENES.glob("*.yaml"))


def scene_file(name: str) -> Path:
    """The file of a scene: the built-in one of this name, or your own YAML file."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    if name not in scene_names():
        raise ConfigError(unknown_name("scene", name, scene_names()) + " Or give the path of a .yaml file.")
    return SCENES / f"{name}.yaml"


def shipped(path: Path) -> Path:
    """The file; where there is none of an example's name, as outside a clone, that which the package brings along."""
    own = PACKAGE / path
    return own if path.parent == Path("examples") and not path.exists() and own.is_file() else path


def load_scene(name: str, override: Path | None = None, samples: int | None = None) -> Scene:
    """The built-in scene `name`, or that of a YAML file, with the settings of another file over it.

    A built-in scene may differ from another one, which it names as `like`, in some settings.
    """
    values = read_yaml(scene_file(name))
    if name in scene_names() and (like := values.pop("like", None)) is not None:
        values = merged(read_yaml(scene_file(like)), values)
    if override is not None:
        values = merged(values, read_yaml(shipped(override)))
    if samples is not None:
        values = merged(values, {"waveform": {"samples": samples}})
    return from_mapping(Scene, values, where="")


def check_scale(scale: float) -> None:
    if not 0 < scale <= 1:
        raise ConfigError(f"scale: expected a number above 0 and up to 1, found {scale}.")


def _scaled(frames: int, scale: float) -> int:
    return min(frames, max(FEWEST_FRAMES, round(frames * scale)))


def _require_positive(name: str, value: float, most: float = math.inf) -> None:
    """most: where memory or time follows the number, far beyond any scene."""
    if not 0 < value <= most:
        limit = "" if value <= 0 or most == math.inf else f" up to {most:,}"
        raise ConfigError(f"{name}: expected a positive number{limit}, found {value}.")
