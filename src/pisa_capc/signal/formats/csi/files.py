"""What a file of channel state holds: frames by kind, and packets that cannot be used."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import DataError
from pisa_capc.data.store.files import reading
from pisa_capc.signal.formats.csi.cards import BadPacket, CsiCard, FoundPacket, Kind

EXPECTED = "channel state of an Intel 5300, an Atheros card, Nexmon (pcap), PicoScenes (.csi) or an ESP32 (CSV)"
TOLD = 3  # packets that a message names
EMPTY = 1e-3  # of the median power: a subcarrier with less is at the band's edge, and holds nothing


@dataclass(frozen=True)
class Look:
    """What was found in a file; name: as messages call it, places: (n, records) of each kind.

    sender: the address of each frame, by where its first record begins.
    """

    path: Path
    name: str
    places: dict[Kind, NDArray[np.int64]]
    flaws: tuple[BadPacket, ...]
    sender: dict[int, bytes]


@contextmanager
def opened(path: Path) -> Iterator[mmap.mmap]:
    """The bytes of a file, which stay on the disk until they are looked at."""
    with reading(path, EXPECTED), path.open("rb") as file:
        if not path.stat().st_size:
            raise DataError(f"{path}: is empty. Expected {EXPECTED}.")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def look(path: Path, name: str, card: CsiCard) -> Look:
    """Walk through a file; nothing is unpacked yet."""
    places: dict[Kind, list[tuple[int, ...]]] = {}
    flaws: list[BadPacket] = []
    sender: dict[int, bytes] = {}
    with opened(path) as data:
        for packet in card.walk(data):
            if isinstance(packet, FoundPacket):
                places.setdefault(packet.kind, []).append(packet.places)
                sender[packet.places[0]] = packet.sender
            else:
                flaws.append(packet)
    arrays = {kind: np.array(found, dtype=np.int64) for kind, found in places.items()}
    return Look(path, name, arrays, tuple(flaws), sender)


def most_common(looks: Sequence[Look], antennas: int | None) -> Kind:
    """The kind that most frames are of; with this number of antennas, where one is given."""
    counts: Counter[Kind] = Counter()
    for found in looks:
        counts.update({kind: len(places) for kind, places in found.places.items()})
    fitting = [kind for kind, _ in counts.most_common() if antennas in (None, len(kind.chains))]
    if not fitting:
        there = ", ".join(sorted({str(len(kind.chains)) for kind in counts}))
        of = f"frames of {there} antennas, not of {antennas} as --antennas says" if counts else "no frame"
        flaws = [(found.name, flaw) for found in looks for flaw in found.flaws]
        raise DataError(f"{looks[0].name}: {of}. {_named(flaws)}Expected {EXPECTED}.")
    return fitting[0]


class Usable(NamedTuple):
    """The frames of one kind that hold a signal, in their order; everything else as flaws.

    filled: (K,) the subcarriers that hold something in most of them.
    """

    places: NDArray[np.int64]
    flaws: list[BadPacket]
    filled: NDArray[np.bool_]


def usable(found: Look, kind: Kind, card: CsiCard) -> Usable:
    flaws = list(found.flaws)
    for other, places in found.places.items():
        if other != kind:
            flaws += [
                BadPacket(int(at), f"{_described(other)}; most frames have {_described(kind)}") for at in places[:, 0]
            ]
    if kind not in found.places:
        return Usable(np.empty((0, len(kind.chains)), np.int64), flaws, np.zeros(len(card.subcarriers(kind)), bool))
    places = found.places[kind]
    with opened(found.path) as data:
        csi = card.read(data, places, kind)
    silent = ~csi.any((-2, -1))
    flaws += [BadPacket(int(at), "all of its channel state is zero") for at in places[silent, 0]]
    return Usable(places[~silent], flaws, filled(csi[~silent]))


def filled(csi: NDArray[np.complex64]) -> NDArray[np.bool_]:
    """(K,) subcarriers of frames (N, A, K) whose median power is not far below that of the others."""
    if not len(csi):
        return np.zeros(csi.shape[2], dtype=bool)
    power = np.median(np.abs(csi) ** 2, axis=(0, 1))
    return np.asarray(power > EMPTY * np.median(power))


def check_flaws(flaws: Sequence[tuple[str, BadPacket]], frames: int, skip: bool, source: Path) -> None:
    """Refuse packets that cannot be used, unless they are to be left out; flaws: with the names of their files."""
    if flaws and not skip:
        raise DataError(
            f"{source}: {len(flaws)} packets cannot be used beside {frames} frames that can. {_named(flaws)}"
            "Repair the files, or leave such packets out with --skip-bad."
        )


def _named(flaws: Sequence[tuple[str, BadPacket]]) -> str:
    told = "".join(f"{name}, byte {flaw.place:,}: {flaw.why}. " for name, flaw in flaws[:TOLD])
    return told + (f"And {len(flaws) - TOLD} more. " if len(flaws) > TOLD else "")


def _described(kind: Kind) -> str:
    at = f" at {kind.carrier_hz / 1e6:g} MHz" if kind.carrier_hz else ""
    return f"chains {', '.join(map(str, kind.chains))} and {kind.bandwidth_mhz} MHz{at}"
