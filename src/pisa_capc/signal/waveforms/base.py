"""What a waveform is, and the registry of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.core.registry import Registry

Draw = Callable[[str], np.random.Generator]


class Waveform:
    """What devices send, at complex baseband and before any hardware touches it: unit mean power while it lasts.

    A subclass gives the five attributes and `preamble`, and is made known by `@register_waveform("name")`. That is
    enough for frames that end with the preamble; `head` and `frames` are for waveforms that go on behind it.

    name: set by `register_waveform`. title: what people call it.
    sample_rate_hz: at which `preamble` is sampled; frames of this rate are taken to be of this waveform.
    occupied: part of the Nyquist band that the signal uses, below one; what is free makes interpolation exact.
    longest_samples: of a stored frame. periodic: the first samples, which alone tell a frequency offset whatever the
    channel; None: all of the preamble do.
    rebuilds: whether a frame tells what all of it sent, see `rebuilt`.
    taps: samples before and after the first arrival that a channel may reach, where it is estimated. ridge: of that
    estimate, of the preamble's power; for signals that leave much of their band free, in which it would run wild.
    shifts_frequency: whether bits are in the phase of a constant envelope; then its modulator is measured, too.
    block: samples in which all of the band shows, and for which a channel stands still. linewidth_hz: of an oscillator
    that is still ordinary at the carriers where it is sent.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str]
    sample_rate_hz: ClassVar[float]
    occupied: ClassVar[float]
    longest_samples: ClassVar[int]
    periodic: ClassVar[int | None] = None
    rebuilds: ClassVar[bool] = False
    taps: ClassVar[tuple[int, int]] = (4, 13)
    ridge: ClassVar[float] = 0.0
    shifts_frequency: ClassVar[bool] = False
    block: ClassVar[int] = 320
    linewidth_hz: ClassVar[float] = 100.0

    def preamble(self) -> NDArray[np.complex128]:
        """(P,) the known beginning of every frame: what an equaliser refers to."""
        raise NotImplementedError

    @property
    def stored_samples(self) -> int:
        """Of a found frame, where no number is given: the preamble, or all of a frame that tells what it sent."""
        return self.longest_samples if self.rebuilds else len(self.preamble())

    def head(self, samples: int) -> NDArray[np.complex128] | None:
        """(samples,) what all frames have in common, or None where they differ before that; here: then silence.

        Asked for a few samples more than a frame is stored with, for filters that read ahead.
        """
        known = self.preamble()[:samples]
        return np.pad(known, (0, samples - len(known)))

    def frames(self, count: int, draw: Draw) -> NDArray[np.complex128]:
        """(count, T) the next whole frames, where `head` does not reach as far; silence follows.

        draw: the capture's generator for a purpose, which goes on where the last frames left it. "payload" and
        "scrambler" are for waveforms; more purposes should begin with one of these words.
        """
        raise NotImplementedError

    def rebuilt(self, iq: NDArray[np.complexfloating[Any, Any]]) -> list[NDArray[np.complex128] | None]:
        """(S,) all that each of the frames (N, A, T) sent, from its bits; None where its samples do not tell.

        A frame begins with its first sample, within one, and has nearly no frequency offset; antennas that are missing
        are zero. Any samples may be given.
        """
        return [None] * len(iq)


WAVEFORMS: Registry[Waveform] = Registry("waveform")
W = TypeVar("W", bound=type[Waveform])


def register_waveform(name: str) -> Callable[[W], W]:
    """Make a waveform known as `name`, which scenes (`waveform.kind`) and equalisers (`waveform`) then go by."""

    def add(cls: W) -> W:
        for attribute in ("title", "sample_rate_hz", "occupied", "longest_samples"):
            if not hasattr(cls, attribute):
                raise ConfigError(f"waveform {name!r}: {cls.__name__} has no {attribute}; see waveforms.Waveform.")
        if not 0 < cls.occupied < 1:
            raise ConfigError(f"waveform {name!r}: occupied: expected between 0 and 1, found {cls.occupied}.")
        WAVEFORMS.add(name, cls())
        cls.name = name
        return cls

    return add
