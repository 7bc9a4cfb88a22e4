"""The front end of channel state: what a card's clocks and amplifiers put into it is taken off before a method sees it.

    none      as the card reports it
    common    one phase and one slope over the subcarriers from all antennas together (`sanitise`)
    antenna   gain, phase and slope of each antenna by itself: H_a(k) e^{−j(φ_a + s_a k)} / g_a

The card's gain, phase and timing are new with every packet. What is common to the antennas can be taken off without
touching the phases between them. But those phases are the place's: they say from where the signal came, not who sent
it, so a model that has them learns the place. Hence `antenna` is the default.

Subcarriers that never hold anything are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError
from pisa_capc.data.frames import UnlabelledFrames
from pisa_capc.data.sources import CfoTrace, FrameSource, Iq, Rows
from pisa_capc.data.store.dataset import AS_REPORTED, COMMON, FRONTS, PER_ANTENNA, Subcarriers
from pisa_capc.signal.measurement.channel_state import level
from pisa_capc.signal.measurement.phases import sanitise

AUTO = "auto"
SILENT = 1e-30  # power

AnyFrames = TypeVar("AnyFrames", bound=UnlabelledFrames)


@dataclass(frozen=True)
class BehindFrontEnd:
    """A source whose channel state has passed a front end, for as many subcarriers as `kept` names."""

    source: FrameSource
    given: Subcarriers
    kept: Subcarriers

    @property
    def antennas(self) -> int:
        return self.source.antennas

    @property
    def samples(self) -> int:
        return len(self.kept.numbers)

    def read_iq(self, rows: Rows, samples: int, out: Iq | None = None) -> Iq:
        csi = self.source.read_iq(rows, len(self.given.numbers))[..., np.isin(self.given.numbers, self.kept.numbers)]
        if self.kept.front != self.given.front:
            csi = TAKEN_OFF[self.kept.front](csi, np.array(self.kept.numbers))
        if out is None:
            return np.ascontiguousarray(csi[..., :samples])
        out[...] = csi[..., :samples]
        return out

    def read_cfo_hz(self, rows: Rows) -> NDArray[np.float64] | None:
        return self.source.read_cfo_hz(rows)

    def cfo_traces(self, rows: Rows) -> Iterator[CfoTrace]:
        return self.source.cfo_traces(rows)


def each_antenna(csi: NDArray[np.complexfloating[Any, Any]], subcarriers: NDArray[np.int64]) -> NDArray[np.complex64]:
    """(N, A, K) without gain, phase and slope of each antenna: mean power one, mean phase 0. Silent ones stay so."""
    power = np.mean(np.abs(csi) ** 2, axis=-1, keepdims=True, dtype=np.float64)
    there = np.isfinite(power) & (power > SILENT)
    angle = level(np.where(there, csi, 1), subcarriers).imag
    flat = np.abs(csi) * np.exp(1j * angle) / np.sqrt(np.where(there, power, 1))
    return np.asarray(np.where(there, flat, csi), dtype=np.complex64)


TAKEN_OFF = {COMMON: sanitise, PER_ANTENNA: each_antenna}


def front_end_for(given: Subcarriers | None, asked: str = AUTO) -> Subcarriers | None:
    """What frames are to be when they have passed the front end that was asked for.

    auto: `antenna`, and `common` where that has been taken off at the import. Frames that do not say what their values
    stand for are taken as they are.
    """
    if asked not in (AUTO, *FRONTS):
        raise ConfigError(f"front {asked}: expected {', '.join((AUTO, *FRONTS))}.")
    if given is None:
        if asked != AUTO:
            raise ConfigError(
                f"front {asked}: is for channel state that says which subcarriers it holds. Import it again with this "
                "version; signals over time have none."
            )
        return None
    front = asked if asked != AUTO else COMMON if given.front == COMMON else PER_ANTENNA
    if front != given.front and (front == AS_REPORTED or given.front == PER_ANTENNA):
        raise ConfigError(f"front {front}: {_gone(given.front)}")
    return Subcarriers(given.used, (), given.spacing_hz, front)


def through(frames: AnyFrames, wanted: Subcarriers | None) -> AnyFrames:
    """The frames as they are behind a front end; read when they are asked for."""
    given = frames.subcarriers
    if wanted is None or given is None or wanted == given:
        return frames
    source = BehindFrontEnd(frames.source, given, wanted)
    return replace(frames, source=source, samples=source.samples, subcarriers=wanted)


def reason_against(given: Subcarriers | None, wanted: Subcarriers | None) -> str:
    """Why frames cannot be given to a model that was trained behind a front end; empty where they can."""
    if given == wanted:
        return ""
    if wanted is None:
        return (
            "the model was trained by an earlier version, which does not say what was taken off the phases of its "
            "channel state, and these frames are as the card reported them. Train it again on a new import"
        )
    if given is None:
        return (
            f"the model was trained behind the front end {wanted.front!r}, and these frames do not say what was taken "
            "off their phases. Import them again from the original files"
        )
    if missing := sorted(set(wanted.numbers) - set(given.numbers)):
        return (
            f"the model was trained on {len(wanted.numbers)} subcarriers, and these frames lack number {missing[0]}. "
            "Use frames of the same card and bandwidth"
        )
    if given.spacing_hz != wanted.spacing_hz:
        return (
            f"the model's subcarriers are {wanted.spacing_hz:g} Hz apart, those of these frames {given.spacing_hz:g} "
            "Hz. Use frames of the same kind"
        )
    if given.front != wanted.front and (wanted.front == AS_REPORTED or given.front == PER_ANTENNA):
        return f"the model was trained with front end {wanted.front!r}: {_gone(given.front)}".rstrip(".")
    return ""


def _gone(front: str) -> str:
    what = {COMMON: "one phase and slope common to all antennas", PER_ANTENNA: "each antenna's gain, phase and slope"}
    return f"these frames have lost {what[front]} already. Import them again from the original files, without --phases."
