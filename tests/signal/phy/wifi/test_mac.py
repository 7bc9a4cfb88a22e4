"""MAC frames say whom they are from and to."""

from __future__ import annotations

import pytest

from pisa_capc.core.errors import ConfigError
from pisa_capc.signal.phy.wifi import mac

A, B, C, D = (f"02:00:00:00:00:0{n}" for n in "abcd")


@pytest.mark.parametrize(("to_ds", "from_ds"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("tid", "kind"), [(None, "data"), (5, "qos-data")])
def test_data_names_receiver_and_transmitter_whatever_the_distribution_system(
    to_ds: bool, from_ds: bool, tid: int | None, kind: str
) -> None:
    both = to_ds and from_ds
    frame = mac.data(A, B, C, b"body", to_ds=to_ds, from_ds=from_ds, fourth=D if both else None, tid=tid)
    assert mac.parse(frame) == mac.MacHeader(kind, A, B)
    assert mac.fcs_is_right(frame)
    assert len(frame) == 24 + 6 * both + 2 * (tid is not None) + 4 + 4


def test_control_frames() -> None:
    assert mac.parse(mac.ack(A)) == mac.MacHeader("ack", A, None)
    assert mac.parse(mac.cts(A)) == mac.MacHeader("cts", A, None)
    assert mac.parse(mac.rts(A, B)) == mac.MacHeader("rts", A, B)
    assert [len(f) for f in (mac.ack(A), mac.cts(A), mac.rts(A, B))] == [14, 14, 20]


def test_an_acknowledgement_has_the_octets_of_the_standard() -> None:
    assert mac.ack("e8:de:27:90:6e:42")[:10].hex() == "d4000000e8de27906e42"


def test_the_transmitter_of_a_bandwidth_signalling_rts_is_without_its_group_bit() -> None:
    header = mac.parse(mac.rts(A, "03:00:00:00:00:0b"))
    assert header is not None
    assert header.transmitter == B


def test_block_acknowledgements_and_polls_name_their_transmitter() -> None:
    for first, kind in ((0x84, "block-ack-request"), (0x94, "block-ack"), (0xA4, "ps-poll")):
        frame = bytes([first, 0]) + mac.rts(A, B)[2:]
        assert mac.parse(frame) == mac.MacHeader(kind, A, B)


def test_a_beacon_is_from_its_access_point_to_all() -> None:
    frame = mac.beacon(A, "net", sequence=4095)
    assert mac.parse(frame) == mac.MacHeader("beacon", mac.BROADCAST, A)
    assert mac.fcs_is_right(frame)


@pytest.mark.parametrize("cut", [0, 1, 9, 15, 23])
def test_what_is_too_short_has_no_header(cut: int) -> None:
    assert mac.parse(mac.data(A, B, C)[:cut]) is None


def test_unknown_versions_and_types_have_no_header() -> None:
    frame = mac.data(A, B, C)
    assert mac.parse(b"\x09" + frame[1:]) is None  # version 1
    assert mac.parse(b"\x0c" + frame[1:]) is None  # type 3
    assert mac.parse(b"\x04" + frame[1:]) is None  # control, subtype 0


def test_one_wrong_bit_is_noticed() -> None:
    frame = bytearray(mac.ack(A))
    for bit in range(8 * len(frame)):
        frame[bit // 8] ^= 1 << bit % 8
        assert not mac.fcs_is_right(bytes(frame))
        frame[bit // 8] ^= 1 << bit % 8


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(ConfigError, match="six octets"):
        mac.ack("02:00:00")
    with pytest.raises(ConfigError, match="fourth"):
        mac.data(A, B, C, to_ds=True, from_ds=True)


def test_the_first_frame_of_an_aggregate_is_found_behind_empty_delimiters() -> None:
    frames = [mac.data(A, B, C, b"x"), mac.data(A, D, C)]
    empty = mac.aggregate([b""])
    assert len(empty) == 4
    for before in (b"", empty, 3 * empty):
        psdu = before + mac.aggregate(frames)
        assert mac.first_of_aggregate(psdu) == (frames[0], len(frames[0]))
        assert mac.first_of_aggregate(psdu[: len(before) + 20]) == (frames[0][:16], len(frames[0]))
    assert mac.first_of_aggregate(empty) is None
    assert mac.first_of_aggregate(b"") is None
    assert mac.first_of_aggregate(b"\x00" + mac.aggregate(frames)) is None
