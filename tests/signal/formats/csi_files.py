"""Files of channel state as the cards' tools write them, from the published layouts: plain, and slow."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.complexfloating[Any, Any]]  # complex with whole parts


def whole(shape: tuple[int, ...], most: int, seed: int = 0) -> NDArray[np.complex128]:
    """Complex numbers whose parts are whole, from −most − 1 to most."""
    rng = np.random.default_rng(seed)
    return rng.integers(-most - 1, most + 1, shape) + 1j * rng.integers(-most - 1, most + 1, shape)


def packed(fields: Iterable[tuple[int, int]]) -> bytes:
    """(value, bits) one after the other, lowest bits first; negative values as two's complement."""
    total = length = 0
    for value, bits in fields:
        total |= (value & (1 << bits) - 1) << length
        length += bits
    return total.to_bytes(-(-length // 8), "little")


def parts(value: complex) -> tuple[int, int]:
    return int(value.real), int(value.imag)


def intel_record(csi: Integers, order: Sequence[int] = (0, 1, 2), ht40: bool = False) -> bytes:
    """csi (30, antennas, streams); order: the antenna of each chain."""
    _, received, sent = csi.shape
    fields: list[tuple[int, int]] = []
    for subcarrier in csi:
        fields.append((0b101, 3))
        for chain in range(received):
            for value in subcarrier[order[chain]]:
                fields += [(part, 8) for part in parts(value)]
    state = packed(fields)
    selected = sum(antenna << 2 * chain for chain, antenna in enumerate(order[:received]))
    rate = 0x4108 | (0x800 if ht40 else 0)
    header = struct.pack("<IHHBBBBBbBBHH", 77, 5, 0, received, sent, 40, 41, 42, -92, 33, selected, len(state), rate)
    return intel_framed(b"\xbb" + header + state)


def intel_framed(body: bytes) -> bytes:
    return struct.pack(">H", len(body)) + body


def atheros_record(csi: Integers, order: str = "<", payload: bytes = b"data", channel_mhz: int = 2437) -> bytes:
    """csi (56 or 114, antennas, streams), imaginary part first."""
    tones, received, sent = csi.shape
    state = packed((part, 10) for value in csi.ravel() for part in reversed(parts(complex(value))))
    width = {56: 0, 114: 1}[tones]
    numbers = (0, 161, 135, width, tones, received, sent, 50, 45, 44, 43)
    header = struct.pack(f"{order}QHH11BH", 123456, len(state), channel_mhz, *numbers, len(payload))
    body = header + state + payload
    return struct.pack(f"{order}H", len(body)) + body


def pcap(packets: Iterable[bytes], order: str = "<", linktype: int = 1) -> bytes:
    head = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, linktype)
    return head + b"".join(struct.pack(f"{order}IIII", 1, 2, len(p), len(p)) + p for p in packets)


def nexmon_packet(
    words: NDArray[np.uint32],
    number: int,
    core: int = 0,
    stream: int = 0,
    chip: int = 0x0065,
    spec: int = 0xD024,
    magic: bytes = b"\x11\x11\x11\x11",
) -> bytes:
    """words: (64, 128 or 256,), as an FFT has them."""
    route = core | stream << 3
    header = magic + bytes([2, 0, 0, 0, 0, 7]) + struct.pack("<HHHH", number, route, spec, chip)
    ethernet = b"\xff" * 6 + b"NEXMON" + b"\x08\x00"
    ip = b"\x45\x00" + struct.pack(">H", 28 + 18 + 4 * len(words)) + bytes(5) + b"\x11" + bytes(10)
    udp = struct.pack(">HHHH", 5500, 5500, 8 + 18 + 4 * len(words), 0)
    return ethernet + ip + udp + header + words.astype("<u4").tobytes()


def integer_words(csi: Integers) -> NDArray[np.uint32]:
    words = [int.from_bytes(struct.pack("<hh", *parts(complex(value))), "little") for value in csi]
    return np.array(words, dtype=np.uint32)


def float_words(real: Sequence[int], imag: Sequence[int], power: Sequence[int], m: int, e: int) -> NDArray[np.uint32]:
    """Sign and m − 1 bits of either part, and e bits of the exponent, the lowest."""

    def sign(value: int) -> int:
        return (abs(value) | (1 << m - 1 if value < 0 else 0)) & (1 << m) - 1

    rows = zip(real, imag, power, strict=True)
    return np.array([(sign(r) << m | sign(i)) << e | p & (1 << e) - 1 for r, i, p in rows], dtype=np.uint32)


def esp32_line(csi: Integers, channel: int = 6, secondary: int = 0, further: int = 0) -> str:
    """csi (64,) as the card has them; `further` numbers of other training fields after it."""
    numbers = [part for value in csi for part in reversed(parts(complex(value)))] + [1] * further
    before = f"CSI_DATA,AP,24:6F:28:00:00:01,-40,11,1,7,0,1,1,0,0,0,1,-92,0,{channel},{secondary},5000,0,60,0,1,1.5"
    return f"{before},{len(numbers)},[{' '.join(map(str, numbers))} ]\n"


def espressif_line(numbers: Sequence[int], columns: int = 25, channel: int = 13, secondary: int = 0) -> str:
    """A line of Espressif's esp-csi; numbers: imaginary and real part in turn, as the chip has them."""
    rest = f'0,{len(numbers)},1,"[{",".join(map(str, numbers))}]"\n'
    if columns == 15:
        return f"CSI_DATA,7,1a:00:00:00:00:00,-23,11,-96,32,4,{channel},372852,47,{rest}"
    return f"CSI_DATA,0,94:d9:b3:80:8c:81,-30,11,1,6,1,0,1,0,1,0,0,-93,0,{channel},{secondary},2751923,0,67,{rest}"


AX_SENDER = bytes.fromhex("021a7dda7107")


def picoscenes_packet(
    csi: Integers,
    device: int = 0x2100,
    form: int = 1,
    width: int = 20,
    version: int = 4,
    sender: bytes = AX_SENDER,
    carrier_hz: int = 5_180_000_000,
    order: int = 0b100100,
) -> bytes:
    """csi (subcarriers, antennas, streams), pilots with it; order: of the antennas of an Intel 5300."""
    tones, received, sent = csi.shape
    if device == 0x9300:
        values = csi.transpose(0, 2, 1).ravel()
        state = packed((part, 10) for value in values for part in reversed(parts(complex(value))))
    elif device == 0x5300:
        fields: list[tuple[int, int]] = []
        for subcarrier in csi:
            fields.append((0b101, 3))
            fields += [(part, 8) for value in subcarrier.ravel() for part in parts(complex(value))]
        state = packed(fields)
        state += bytes(60 * received * sent + 12 - len(state))
    else:
        state = b"".join(struct.pack("<hh", *parts(complex(value))) for value in csi.transpose(2, 1, 0).ravel())
    firmware = b"\x43" if version == 4 else b""
    content = struct.pack("<H", device) + firmware
    content += struct.pack("<bHQQIHBBB", form, width, carrier_hz, width * 10**6, 312500, tones, sent, received, 0)
    content += {1: b"", 2: b"", 3: b"\x01\x00", 4: b"\x01\x00"}[version] + bytes([order])
    content += (b"" if version == 1 else b"\x00\x00") + struct.pack("<I", len(state)) + state
    mpdu = b"\x08\x00\x00\x00" + b"\xff" * 6 + sender + b"\x01" * 6 + b"\x10\x00" + b"payload"
    segments = _segment(b"RxSBasic", 3, bytes(33)) + _segment(b"CSI", version, content)
    body = struct.pack("<IHB", 0x20150315, 1, 2) + segments + mpdu
    return struct.pack("<I", len(body)) + body


def _segment(name: bytes, version: int, content: bytes) -> bytes:
    rest = bytes([len(name)]) + name + struct.pack("<H", version) + content
    return struct.pack("<I", len(rest)) + rest
