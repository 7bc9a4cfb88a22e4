"""Channel state of commodity Wi-Fi cards: a frame is what one packet told of the channel, (antennas, subcarriers).

Files are not trusted: each card's module checks every length before anything is unpacked. csiread, which unpacks what
Intel and Atheros pack in bits, reads into buffers of fixed size by lengths that it takes from the file; so it is given
one checked packet at a time, and never a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pisa_capc.core.errors import ConfigError, DataError, unknown_name
from pisa_capc.data.store.dataset import AS_REPORTED, COMMON, SUBCARRIERS, CaptureSpec, Subcarriers
from pisa_capc.data.store.files import fields_of, find_captures
from pisa_capc.data.store.outside import files_under
from pisa_capc.signal.formats.base import (
    EVERYWHERE,
    CsiOptions,
    Format,
    ImportOptions,
    Plan,
    Samples,
    check_unnamed,
    described,
    register_format,
)
from pisa_capc.signal.formats.csi.atheros import Atheros
from pisa_capc.signal.formats.csi.cards import CsiCard, Kind
from pisa_capc.signal.formats.csi.esp32 import Esp32
from pisa_capc.signal.formats.csi.files import EXPECTED, Look, check_flaws, look, most_common, opened, usable
from pisa_capc.signal.formats.csi.intel import Intel
from pisa_capc.signal.formats.csi.nexmon import Nexmon
from pisa_capc.signal.formats.csi.picoscenes import PicoScenes

# In the order in which they are tried on a file: Intel's asks for least.
CARDS: dict[str, type[CsiCard]] = {
    "nexmon": Nexmon,
    "picoscenes": PicoScenes,
    "esp32": Esp32,
    "atheros": Atheros,
    "intel": Intel,
}
CARRIER_HZ = 5.825e9  # where the card does not say
SANITISED, RAW = "sanitised", "raw"
LOCAL = 2  # this bit of an address's first byte: not of the manufacturer


def plan(source: Path, options: ImportOptions) -> Plan:
    """One file, or a folder of files whose paths name environment, device and capture."""
    how = _checked(options.csi or CsiOptions())
    found = _captures(source, options, how)
    how = replace(how, card=how.card or _recognised(found[0][0], how))
    card = CARDS[str(how.card)](how)
    looks = [look(path, path.relative_to(source.parent).as_posix(), card) for path, _ in found]
    kind = most_common(looks, options.antennas)
    sorted_out = [usable(each, kind, card) for each in looks]
    places = {each.path: own.places for each, own in zip(looks, sorted_out, strict=True)}
    flaws = [(each.name, flaw) for each, own in zip(looks, sorted_out, strict=True) for flaw in own.flaws]
    check_flaws(flaws, sum(map(len, places.values())), how.skip_bad, source)

    captures: dict[CaptureSpec, tuple[Path, NDArray[np.int64]]] = {}
    for each, (_, names) in zip(looks, found, strict=True):
        for device, own in _devices(each, places[each.path], names["device"], how.by_address).items():
            captures[CaptureSpec(names["environment"], device, names["capture"], len(own))] = each.path, own
    if not captures:
        raise DataError(f"{source}: holds no frame that can be used. Expected {EXPECTED}.")
    subcarriers = card.subcarriers(kind)
    empty = subcarriers[~np.any([own.filled for own in sorted_out if len(own.places)], axis=0)]

    def read(spec: CaptureSpec) -> Samples:
        path, own = captures[spec]
        with opened(path) as data:
            csi = card.read(data, own, kind)
        if how.phases == SANITISED:
            from pisa_capc.signal.measurement.phases import sanitise  # its package takes seconds to import

            csi = sanitise(csi, subcarriers)
        return csi, None

    shapes = dict.fromkeys(captures, (len(kind.chains), len(subcarriers)))
    dataset = described(shapes, options, kind.bandwidth_mhz * 1e6, kind.carrier_hz or CARRIER_HZ, domain=SUBCARRIERS)
    about = {**asdict(how), "left_out": len(flaws), "subcarriers": subcarriers.tolist()}
    front = COMMON if how.phases == SANITISED else AS_REPORTED
    numbered = Subcarriers(tuple(subcarriers.tolist()), tuple(empty.tolist()), front=front)
    return Plan(
        replace(dataset, provenance={"csi": about}, subcarriers=numbered),
        read,
        lambda spec, i: f"byte {captures[spec][1][i, 0]:,} of {captures[spec][0].name}",
        tuple(_assumed(kind, options)),
        tuple(_notes(card, kind, looks, len(flaws), empty.tolist())),
    )


def _devices(found: Look, places: NDArray[np.int64], name: str, by_address: bool) -> dict[str, NDArray[np.int64]]:
    """The frames of a file by device: all of one name, or by the addresses that they carry."""
    if not len(places):
        return {}
    if not by_address:
        return {name: places}
    senders = [found.sender[int(at)] for at in places[:, 0]]
    if not all(senders):
        raise DataError(
            f"{found.name}: {senders.count(b'')} of {len(senders)} frames say no address. Expected logs of Nexmon, "
            "PicoScenes or an ESP32, which have them; without --by-address all frames of a file are of one device."
        )
    numbers = np.array([int.from_bytes(sender) for sender in senders])
    return {int(n).to_bytes(6).hex("-"): places[numbers == n] for n in np.unique(numbers)}


def _checked(how: CsiOptions) -> CsiOptions:
    if how.card is not None and how.card not in CARDS:
        raise ConfigError("--csi-card: " + unknown_name("card", how.card, CARDS))
    if how.phases not in (SANITISED, RAW):
        raise ConfigError(f"--phases {how.phases}: expected {SANITISED} or {RAW}.")
    if how.stream < 0:
        raise ConfigError(f"--stream {how.stream}: expected 0 or more.")
    return how


def _captures(source: Path, options: ImportOptions, how: CsiOptions) -> list[tuple[Path, dict[str, str]]]:
    defaults = options.names(device="D01")
    if how.by_address:
        check_unnamed(options, ("device",), "--by-address")
    if source.is_file():
        return [(source, defaults)]
    if options.pattern is not None:
        fields = fields_of(options.pattern)
        if how.by_address and "device" in fields:
            raise ConfigError(f"--by-address: the pattern {options.pattern} names the device. Leave one of them out.")
        check_unnamed(options, fields, f"the pattern {options.pattern}")
        return find_captures(source, options.pattern, defaults)
    there = {path.suffix for path in files_under(source)}
    suffixes = sorted({card.suffix for name, card in CARDS.items() if how.card in (None, name)} & there)
    if len(suffixes) > 1:
        raise DataError(f"{source}: holds files that end in {' and '.join(suffixes)}. Say which, with --pattern.")
    folders = "{environment}" if how.by_address else "{environment}/{device}"
    return find_captures(source, f"{folders}/{{capture}}{(suffixes or ['.dat'])[0]}", defaults)


def _recognised(first: Path, how: CsiOptions) -> str:
    """The card whose files begin as the first one does."""
    with opened(first) as data:
        for name, card in CARDS.items():
            if card(how).recognises(data):
                return name
    raise DataError(
        f"{first}: does not begin as any card's file does. Expected {EXPECTED}; name the card with --csi-card of "
        "`pisa import csi`."
    )


def _assumed(kind: Kind, options: ImportOptions) -> Iterator[str]:
    if kind.carrier_hz is None and options.carrier_hz is None:
        yield f"{CARRIER_HZ / 1e6:g} MHz of carrier (--carrier)"
    if options.geometry is None and len(kind.chains) > 1:
        yield "antennas half a wavelength apart (--array)"


def _notes(card: CsiCard, kind: Kind, looks: list[Look], left_out: int, empty: list[int]) -> Iterator[str]:
    subcarriers = card.subcarriers(kind)
    yield (
        f"{card.title}: {len(kind.chains)} antennas × {len(subcarriers)} subcarriers, {subcarriers[0]} to "
        f"{subcarriers[-1]}, of {kind.bandwidth_mhz} MHz; transmit stream {card.how.stream} (--stream)."
    )
    if empty:
        yield f"Subcarriers that never hold anything, which training leaves out: {', '.join(map(str, empty))}."
    if card.how.phases == SANITISED:
        yield "Phases sanitised: one slope and one phase, common to all antennas, are taken off every frame."
    else:
        yield "Phases as the card reports them. Training takes gain, phase and slope off each antenna (see --front)."
    if left_out:
        yield f"Left out, because they cannot be used: {left_out} packets."
    for each in looks:
        senders = {*each.sender.values()} - {b""}
        if len(senders) > 1 and not card.how.by_address:
            yield f"{each.name}: {len(senders)} senders, taken for one device. --by-address tells them apart."
    if card.how.by_address:
        everyone = {sender for each in looks for sender in each.sender.values() if sender}
        yield f"Devices are the {len(everyone)} addresses in the logs."
        if chosen := sum(bool(sender[0] & LOCAL) for sender in everyone):
            yield f"{chosen} of them were chosen by the device itself: it may have sent under others, too."


@register_format("csi")
class CsiFormat(Format):
    """Channel state of Wi-Fi cards."""

    uses = EVERYWHERE | {"pattern", "device", "csi"}
    plan = staticmethod(plan)
