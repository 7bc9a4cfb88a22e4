"""Channel state of Wi-Fi cards: what went into byte-exact files comes out, and damaged ones are refused in words."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pisa_capc import load
from pisa_capc.core.errors import ConfigError, DataError, MissingExtraError
from pisa_capc.data.store.dataset import Dataset
from pisa_capc.signal.formats import CsiOptions, ExportOptions, ImportOptions, export_dataset, import_dataset
from pisa_capc.signal.formats.csi import CARDS
from pisa_capc.signal.formats.csi.cards import FoundPacket, Kind
from pisa_capc.signal.formats.csi.nexmon import unpack_floats
from pisa_capc.signal.measurement.phases import sanitise
from tests.signal.formats.csi_files import (
    atheros_record,
    esp32_line,
    espressif_line,
    float_words,
    integer_words,
    intel_framed,
    intel_record,
    nexmon_packet,
    packed,
    pcap,
    picoscenes_packet,
    whole,
)

RAW = CsiOptions(phases="raw")
FRAMES = 6


def imported(content: bytes, folder: Path, how: CsiOptions = RAW, **options: Any) -> tuple[Dataset, NDArray[Any]]:
    """A dataset made from one file, and its frames."""
    (folder / "log").write_bytes(content)
    dataset = import_dataset("csi", folder / "log", folder / "out", ImportOptions(csi=how, **options))
    return dataset, load(folder / "out").iq


@pytest.mark.parametrize("ht40", [False, True])
@pytest.mark.parametrize(("antennas", "streams"), [(3, 2), (2, 1), (1, 3)])
def test_intel_frames_are_those_that_were_written(antennas: int, streams: int, ht40: bool, tmp_path: Path) -> None:
    csi = whole((FRAMES, 30, antennas, streams), 127)
    orders = [np.random.default_rng(i).permutation(antennas).tolist() for i in range(FRAMES)]
    records = [intel_record(h, order, ht40) for h, order in zip(csi, orders, strict=True)]
    packet = intel_framed(b"\xc1" + bytes(40))
    dataset, iq = imported(packet + packet.join(records), tmp_path, CsiOptions(phases="raw", stream=streams - 1))
    assert np.array_equal(iq, csi[..., -1].transpose(0, 2, 1))
    assert (dataset.sample_rate_hz, dataset.domain) == (40e6 if ht40 else 20e6, "subcarriers")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("tones", [56, 114])
def test_atheros_frames_are_those_that_were_written(tones: int, order: str, tmp_path: Path) -> None:
    csi = whole((FRAMES, tones, 3, 1), 511)
    silent = atheros_record(whole((56, 1, 1), 511)[:, :0], order)  # not sounding: a packet without channel state
    records = [atheros_record(h, order, payload=bytes(range(i))) for i, h in enumerate(csi)]
    dataset, iq = imported(silent + b"".join(records), tmp_path)
    assert np.array_equal(iq, csi[..., 0].transpose(0, 2, 1))
    assert (dataset.sample_rate_hz, dataset.carrier_hz) == ({56: 20e6, 114: 40e6}[tones], 2.437e9)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("fft", "highest", "spec", "carrier_hz"), [(64, 28, 0x1006, 2.437e9), (256, 122, 0xE02A, 5.21e9)]
)
def test_nexmon_cores_of_a_packet_are_the_antennas_of_a_frame(
    fft: int, highest: int, spec: int, carrier_hz: float, order: str, tmp_path: Path
) -> None:
    csi = whole((FRAMES, 2, 2, fft), 32767)  # frames, cores, streams
    other = b"\x00" * 60  # a packet of somebody else's
    packets = [other] + [
        nexmon_packet(integer_words(csi[n, core, stream]), n, core, stream, spec=spec)
        for n in range(FRAMES)
        for core in (1, 0)
        for stream in (0, 1)
    ]
    dataset, iq = imported(pcap(packets, order), tmp_path, CsiOptions(phases="raw", stream=1))
    shifted = np.fft.fftshift(csi[:, :, 1], axes=-1)
    numbers = np.arange(-fft // 2, fft // 2)
    used = (abs(numbers) <= highest) & (abs(numbers) >= (1 if fft == 64 else 2))
    assert np.array_equal(iq, shifted[..., used].astype(np.complex64))
    assert dataset.carrier_hz == carrier_hz


@pytest.mark.parametrize(("chip", "number", "m", "e"), [("4358", 0x0003, 9, 5), ("4366c0", 0x006A, 12, 6)])
def test_nexmon_floats_keep_their_scale(chip: str, number: int, m: int, e: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    most = (1 << m - 1) - 1
    real, imag = rng.integers(-most, most + 1, (2, 64)).tolist()
    power = rng.integers(-(1 << e - 1), 1 << e - 1, 64).tolist()
    words = float_words(real, imag, power, m, e)
    expected = (np.array(real) + 1j * np.array(imag)) * np.exp2(power)
    assert np.array_equal(unpack_floats(words, m, e), expected.astype(np.complex64))
    *_, iq = imported(pcap([nexmon_packet(words, 1, chip=number)]), tmp_path)
    assert np.array_equal(iq[0, 0], expected[[*range(-28, 0), *range(1, 29)]].astype(np.complex64))


@pytest.mark.parametrize(("chip", "m", "e"), [("4358", 9, 5), ("4366c0", 12, 6)])
def test_nexmon_floats_are_those_of_csiread_but_for_its_scale(chip: str, m: int, e: int) -> None:
    csiread = pytest.importorskip("csiread")
    rng = np.random.default_rng(2)
    most = (1 << m - 1) - 1
    real, imag = rng.integers(most // 2, most, (2, 64)) * rng.choice([-1, 1], (2, 64))
    words = float_words(real.tolist(), imag.tolist(), [3] * 64, m, e)
    parser = csiread.Nexmon(None, chip, 20, if_report=False)
    parser.pmsg(nexmon_packet(words, 1)[42:])
    ratio = parser.csi[0] / unpack_floats(words, m, e)
    assert np.allclose(ratio, ratio[0], rtol=0.02)
    assert ratio[0].real > 0


@pytest.mark.parametrize("further", [0, 128, 256])
def test_esp32_frames_are_of_the_legacy_training_field(further: int, tmp_path: Path) -> None:
    csi = whole((FRAMES, 64), 127)
    lines = "".join(esp32_line(h, channel=11, further=further) for h in csi)
    dataset, iq = imported(f"type,role,mac\n{lines}".encode(), tmp_path)
    assert np.array_equal(iq[:, 0], csi[:, [*range(-26, 0), *range(1, 27)]])
    assert (dataset.carrier_hz, dataset.sample_rate_hz) == (2.462e9, 20e6)


def test_esp32_with_a_secondary_channel_counts_from_the_lowest_subcarrier(tmp_path: Path) -> None:
    csi = whole((1, 64), 127)
    *_, iq = imported(esp32_line(csi[0], secondary=1).encode(), tmp_path)
    assert np.array_equal(iq[0, 0], np.delete(csi[0], 32)[6 : 6 + 52])


# The example of Espressif's own guide (esp-csi, examples/get-started/README.md): 64 pairs of channel 13, with channel 9
# below it, so from −32 on. The first two pairs are of no use, as column first_word says.
EXAMPLE = (
    "67,48,4,0,0,0,0,0,0,0,5,0,20,1,20,1,19,0,17,1,16,2,15,2,14,1,12,0,12,-1,12,-3,12,-4,13,-6,15,-7,16,-8,16,-8,16,-8,"
    "16,-6,15,-5,15,-4,14,-4,13,-4,12,-4,11,-4,10,-4,9,-5,8,-6,4,-4,8,-9,9,-10,9,-10,10,-11,11,-10,11,-10,12,-9,11,-8,"
    "11,-7,10,-6,9,-6,7,-6,6,-7,5,-7,5,-8,5,-9,5,-10,5,-11,5,-11,6,-11,7,-11,8,-11,9,-10,9,-9,8,-8,8,-7,1,-2,0,0,0,0,0,"
    "0,0,0"
)


def test_espressifs_own_example_is_read(tmp_path: Path) -> None:
    numbers = [int(n) for n in EXAMPLE.split(",")]
    heading = "type,id,mac,rssi,rate,sig_mode,mcs,bandwidth\n"
    log = f"I (512) csi_recv: ========\n{heading}{espressif_line(numbers, secondary=2)}"
    dataset, iq = imported(log.encode(), tmp_path)
    assert dataset.carrier_hz == 2.472e9
    assert (iq[0, 0, 0], iq[0, 0, 25], iq[0, 0, 26], iq[0, 0, -1]) == (1 + 20j, -6 + 8j, -9 + 8j, -7 + 8j)


FIELDS = [(53, 1, 26, 20), (57, 1, 28, 20), (64, 1, 28, 20), (117, 2, 58, 40), (128, 2, 58, 40), (245, 2, 122, 20)]


@pytest.mark.parametrize("as_fft", [False, True])
@pytest.mark.parametrize(("pairs", "lowest", "highest", "bandwidth"), FIELDS)
def test_the_field_of_c5_and_c6_follows_from_its_length_and_its_empty_pairs(
    pairs: int, lowest: int, highest: int, bandwidth: int, as_fft: bool, tmp_path: Path
) -> None:
    k = np.arange(pairs) - pairs // 2
    csi = np.where((abs(k) >= lowest) & (abs(k) <= highest), whole((pairs,), 120) + 1 + 1j, 0)
    kept = csi[csi != 0]
    sent = np.fft.ifftshift(csi) if as_fft else csi
    numbers = np.stack([sent.imag, sent.real], -1).astype(int).ravel().tolist()
    dataset, iq = imported(espressif_line(numbers, columns=15, channel=36).encode(), tmp_path)
    assert np.array_equal(iq[0, 0], kept)
    assert (dataset.sample_rate_hz, dataset.carrier_hz) == (bandwidth * 1e6, 5.18e9)


def test_a_field_of_which_the_order_cannot_be_told_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="so the order cannot be told"):
        imported(espressif_line([3] * 106, columns=15).encode(), tmp_path)


@pytest.mark.parametrize(("form", "width", "version", "pilots", "kept"), [
    (1, 20, 4, {7, 21}, 52),
    (2, 80, 3, {11, 39, 75, 103}, 234),
    (3, 40, 4, {10, 36, 78, 104, 144, 170, 212, 238}, 468),
])  # fmt: skip
def test_picoscenes_frames_of_an_ax210_are_those_that_were_written(
    form: int, width: int, version: int, pilots: set[int], kept: int, tmp_path: Path
) -> None:
    lowest, highest = {20: (1, 28), 80: (2, 122), 40: (3, 244)}[width]
    k = np.array([i for i in range(-highest, highest + 1) if abs(i) >= lowest])
    csi = whole((FRAMES, len(k), 2, 2), 30000)
    data = b"".join(picoscenes_packet(h, form=form, width=width, version=version) for h in csi)
    dataset, iq = imported(data, tmp_path, CsiOptions(stream=1))
    used = ~np.isin(abs(k), list(pilots))
    assert np.array_equal(iq, csi[..., 1][:, used].transpose(0, 2, 1))
    assert (iq.shape[2], dataset.carrier_hz, dataset.sample_rate_hz) == (kept, 5.18e9, width * 1e6)


@pytest.mark.parametrize(("packet", "message"), [
    (picoscenes_packet(whole((56, 1, 1), 9), device=0x1234), "of device 0x1234; expected AX200, AX210, 9300, 5300"),
    (picoscenes_packet(whole((57, 1, 1), 9)), "57 subcarriers at 20 MHz; expected 56"),
    (picoscenes_packet(whole((56, 1, 1), 9), width=160), "format 1 of 160 MHz, which is not read"),
    (picoscenes_packet(whole((56, 5, 1), 9)), "5 antennas and 1 streams; expected 1 to 4"),
    (picoscenes_packet(whole((56, 1, 1), 9), carrier_hz=5180), "a carrier of 5,180 Hz"),
])  # fmt: skip
def test_what_is_wrong_with_a_packet_of_picoscenes_is_said(packet: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        imported(picoscenes_packet(whole((56, 1, 1), 9)) + packet, tmp_path)


def test_addresses_in_the_logs_are_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    senders = [bytes.fromhex(text) for text in ("021a7dda7107", "94d9b3808c81")]
    csi = whole((FRAMES, 56, 1, 1), 500)
    packets = [picoscenes_packet(h, sender=senders[i % 3 == 0]) for i, h in enumerate(csi)]
    (tmp_path / "logs/lab").mkdir(parents=True)
    (tmp_path / "logs/lab/monday.csi").write_bytes(b"".join(packets))
    options = ImportOptions(csi=CsiOptions(by_address=True))
    import_dataset("csi", tmp_path / "logs", tmp_path / "out", options, show=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "Devices are the 2 addresses in the logs. 1 of them were chosen by the device itself" in said
    frames = load(tmp_path / "out")
    assert frames.devices == ("02-1a-7d-da-71-07", "94-d9-b3-80-8c-81")
    rows = frames.device == 1
    assert np.array_equal(frames.iq[rows, 0], np.delete(csi[::3, :, 0, 0], [7, 21, 34, 48], axis=1))
    assert (frames.environments, frames.captures, len(frames)) == (("lab",), ("monday",), FRAMES)


@pytest.mark.parametrize(("options", "message"), [
    ({"device": "phone"}, "--device-name phone: --by-address names it"),
    ({"pattern": "{device}.dat"}, "the pattern {device}.dat names the device"),
    ({}, "6 of 6 frames say no address"),
])  # fmt: skip
def test_addresses_that_cannot_be_devices_are_refused(options: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "logs/lab").mkdir(parents=True)
    (tmp_path / "logs/lab/log.dat").write_bytes(contents()["intel"])
    with pytest.raises((ConfigError, DataError), match=message):
        import_dataset(
            "csi", tmp_path / "logs", tmp_path / "out", ImportOptions(csi=CsiOptions(by_address=True), **options)
        )
    assert not (tmp_path / "out").exists()


def channels(n: int, antennas: int, k: NDArray[np.int64]) -> NDArray[np.complex128]:
    """A direct path and a weaker echo on every antenna."""
    rng = np.random.default_rng(3)
    phase = rng.uniform(-np.pi, np.pi, (2, n, antennas, 1))
    echo = 0.4 * np.exp(1j * (phase[1] - 2 * np.pi * k * 2 / 64))
    return np.exp(1j * phase[0]) * (1 + echo)


@pytest.mark.parametrize(("card", "bandwidth"), [("intel", 20), ("intel", 40), ("atheros", 40), ("nexmon", 80)])
def test_sanitising_removes_any_timing_and_phase(card: str, bandwidth: int) -> None:
    k = CARDS[card](CsiOptions()).subcarriers(Kind((0, 1, 2), bandwidth))
    h = channels(40, 3, k)
    rng = np.random.default_rng(4)
    samples = rng.uniform(-10, 10, (40, 1, 1))  # by which a frame is cut late
    fft = 64 * bandwidth / 20
    turned = h * np.exp(1j * (rng.uniform(-np.pi, np.pi, (40, 1, 1)) - 2 * np.pi * k * samples / fft))
    assert np.allclose(sanitise(turned, k), sanitise(h, k), atol=1e-5)


def test_sanitising_is_exact_on_a_planted_line_and_keeps_differences_between_antennas() -> None:
    k = CARDS["atheros"](CsiOptions()).subcarriers(Kind((0, 1), 20))
    amplitude = np.random.default_rng(5).uniform(0.5, 2, (1, 2, 56)) * np.exp(1j * np.array([[[0.0], [1.1]]]))
    assert np.allclose(sanitise(amplitude * np.exp(1j * (0.3 * k + 2)), k), amplitude, atol=1e-6)


def test_subcarriers_ascend_around_the_carrier() -> None:
    for name, bandwidths in {"intel": (20, 40), "atheros": (20, 40), "nexmon": (20, 40, 80), "esp32": (20,)}.items():
        for bandwidth in bandwidths:
            k = CARDS[name](CsiOptions()).subcarriers(Kind((0,), bandwidth))
            assert (np.diff(k) > 0).all()
            assert k[0] == -k[-1]
            assert 0 not in k


def contents(seed: int = 0) -> dict[str, bytes]:
    """A small good file of each card."""
    tone = whole((FRAMES, 56, 2, 1), 511, seed)
    nexmon = [nexmon_packet(integer_words(h), n) for n, h in enumerate(whole((FRAMES, 64), 9999, seed))]
    return {
        "intel": b"".join(intel_record(h, (1, 0, 2)) for h in whole((FRAMES, 30, 3, 1), 127, seed)),
        "atheros": b"".join(atheros_record(h) for h in tone),
        "nexmon": pcap(nexmon),
        "picoscenes": b"".join(picoscenes_packet(h, 0x9300) for h in tone),
        "esp32": "".join(esp32_line(h) for h in whole((FRAMES, 64), 127, seed)).encode(),
    }


@pytest.mark.parametrize("card", CARDS)
def test_cards_are_recognised_and_what_is_done_is_said(
    card: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_bytes(contents()[card])
    dataset = import_dataset("csi", tmp_path / "log", tmp_path / "out", show=True)
    about = json.loads((tmp_path / "out/dataset.json").read_text())["provenance"]["csi"]
    assert (about["card"], about["phases"], about["left_out"], dataset.domain) == (card, "raw", 0, "subcarriers")
    said = capsys.readouterr().err
    assert "Phases as the card reports them. Training takes gain, phase and slope off each antenna" in said
    assert dataset.subcarriers is not None
    assert (list(dataset.subcarriers.numbers), dataset.subcarriers.front) == (about["subcarriers"], "none")
    assert ("5825 MHz of carrier" in said) == (card == "intel")  # the others say


def test_csiread_finds_the_same_in_good_files(tmp_path: Path) -> None:
    csiread = pytest.importorskip("csiread")
    path = str(tmp_path / "log")
    parsers = {
        "intel": lambda: csiread.Intel(path, 3, 1, if_report=False),
        "atheros": lambda: csiread.Atheros(path, 2, 1, tones=56, if_report=False, bufsize=FRAMES),
        "nexmon": lambda: csiread.Nexmon(path, "43455c0", 20, if_report=False),
        "picoscenes": lambda: _picoscenes_of_csiread(path, (56, 2, 1)),
        "esp32": lambda: csiread.ESP32(path, if_report=False),
    }
    fft = {"nexmon": [*range(-28, 0), *range(1, 29)], "esp32": [*range(-26, 0), *range(1, 27)]}
    for card, content in contents().items():
        folder = tmp_path / card
        folder.mkdir()
        *_, iq = imported(content, folder)
        (tmp_path / "log").write_bytes(content)
        parser = parsers[card]()
        parser.read()
        csi = parser.csi[:, None, fft[card]] if card in fft else parser.csi[..., 0].transpose(0, 2, 1)
        assert np.array_equal(iq, csi.astype(np.complex64)), card


def _picoscenes_of_csiread(path: str, shape: tuple[int, int, int]) -> Any:
    import csiread

    parser = csiread.Picoscenes(path, {"CSI": list(shape), "MPDU": 100}, if_report=False)
    parser.csi = None  # filled by `read`
    read = parser.read

    def reading() -> None:
        read()
        parser.csi = parser.raw["CSI"]["CSI"]

    parser.read = reading
    return parser


def test_names_come_from_the_pattern(tmp_path: Path) -> None:
    for name in ("lab/phone", "lab/laptop", "hall/phone"):
        (tmp_path / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"logs/{name}-3.dat").write_bytes(contents(len(name))["atheros"])
    import_dataset("csi", tmp_path / "logs", tmp_path / "out", ImportOptions("{environment}/{device}-{capture}.dat"))
    frames = load(tmp_path / "out")
    assert (frames.environments, frames.devices, frames.captures) == (("hall", "lab"), ("laptop", "phone"), ("3",))
    assert len(frames) == 3 * FRAMES


@pytest.mark.parametrize("card", CARDS)
def test_a_cut_file_is_refused_and_its_whole_packets_can_be_kept(card: str, tmp_path: Path) -> None:
    good = contents()[card]
    with pytest.raises(DataError, match="1 packets cannot be used beside 5 frames") as refused:
        imported(good[:-20], tmp_path)
    assert "--skip-bad" in str(refused.value)
    assert not (tmp_path / "out").exists()
    dataset, iq = imported(good[:-20], tmp_path, CsiOptions(phases="raw", skip_bad=True))
    assert dataset.provenance["csi"]["left_out"] == 1
    import_dataset("csi", _written(tmp_path / "whole", good), tmp_path / "out2", ImportOptions(csi=RAW))
    assert np.array_equal(iq, load(tmp_path / "out2").iq[:5])


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


H = whole((30, 3, 2), 127)


def _changed(record: bytes, at: int, value: int) -> bytes:
    return record[:at] + bytes([value]) + record[at + 1 :]


BAD: dict[str, tuple[bytes, str]] = {
    "an order of antennas that is none": (_changed(intel_record(H), 18, 0b000000), r"antennas \[0, 0, 0\]"),
    "four antennas": (_changed(intel_record(H), 11, 4), "4 antennas and 2 streams"),
    "a wrong size": (_changed(intel_record(H), 19, 1), "bytes of channel state; 3 antennas and 2 streams have 372"),
    "an unknown record": (intel_framed(b"\x42 what is this"), "a record of code 0x42"),
    "a header alone": (intel_framed(b"\xbb" + bytes(5)), "5 bytes; its header alone has 20"),
    "no length": (b"\x00\x00\xbb", "its length leads beyond the end of the file, or nowhere"),
    "other antennas": (intel_record(H[:, :2]), "chains 0, 1 and 20 MHz; most frames have chains 0, 1, 2"),
    "another bandwidth": (intel_record(H, ht40=True), "and 40 MHz; most frames have chains 0, 1, 2 and 20 MHz"),
    "one stream": (intel_record(H[..., :1]), "transmit streams 0 to 0; --stream 1 was asked for"),
    "silence": (intel_record(0 * H), "all of its channel state is zero"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_with_a_packet_is_said(name: str, tmp_path: Path) -> None:
    bad, message = BAD[name]
    good = intel_record(H)
    with pytest.raises(DataError, match=message) as refused:
        imported(good + good + bad, tmp_path, CsiOptions(stream=1))
    assert f"log, byte {2 * len(good):,}" in str(refused.value)
    assert not (tmp_path / "out").exists()
    dataset, iq = imported(good + good + bad, tmp_path, CsiOptions(stream=1, skip_bad=True))
    assert (len(iq), dataset.provenance["csi"]["left_out"]) == (2, 1)


OTHERS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "is empty"),
    "something else": (b"\x89PNG\r\n\x1a\n" + bytes(100), "does not begin as any card's file does"),
    "pcap of radio": (pcap([b"\x00" * 60], linktype=127), "no pcap file of Ethernet frames"),
    "pcap without channel state": (pcap([b"\x00" * 60]), "no frame"),
    "unknown chip": (pcap([nexmon_packet(np.ones(64, np.uint32), 1, chip=0x7777)]), "0x7777 is not known.*--chip"),
    "CSV of others": (b"CSI_DATA,1,2,3\n", "a line of 4 columns"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_channel_state_is_refused(name: str, tmp_path: Path) -> None:
    content, message = OTHERS[name]
    with pytest.raises(DataError, match=message):
        imported(content, tmp_path)
    assert not (tmp_path / "out").exists()


def test_nexmon_frames_without_all_cores_are_not_frames(tmp_path: Path) -> None:
    words = integer_words(whole((64,), 99))
    packets = [nexmon_packet(words, n, core) for n in range(4) for core in (0, 1) if (n, core) != (2, 0)]
    with pytest.raises(DataError, match=r"chains 1 and 20 MHz.*; most frames have chains 0, 1 and 20"):
        imported(pcap(packets), tmp_path)
    *_, iq = imported(pcap(packets), tmp_path, CsiOptions(skip_bad=True))
    assert iq.shape == (3, 2, 56)


@pytest.mark.parametrize(("how", "message"), [
    (CsiOptions(card="intl"), "Did you mean 'intel'"),
    (CsiOptions(phases="clean"), "expected sanitised or raw"),
    (CsiOptions(stream=-1), "expected 0 or more"),
    (CsiOptions(card="nexmon", chip="43"), "unknown chip '43'"),
])  # fmt: skip
def test_settings_are_checked(how: CsiOptions, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        imported(contents()["intel"], tmp_path, how)


@pytest.mark.parametrize("card", ["intel", "atheros"])
def test_without_csiread_the_extra_is_named(card: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "csiread", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pisa-capc\[csi\]'"):
        imported(contents()[card], tmp_path)


def flipped(content: bytes, rng: np.random.Generator) -> bytes:
    damaged = bytearray(content)
    for at in rng.integers(0, 8 * len(content), int(rng.integers(1, 20))).tolist():
        damaged[at // 8] ^= 1 << at % 8
    return bytes(damaged)


def zeroed(content: bytes, rng: np.random.Generator) -> bytes:
    first, last = sorted(rng.integers(0, len(content) + 1, 2).tolist())
    return content[:first] + bytes(last - first) + content[last:]


def cut(content: bytes, rng: np.random.Generator) -> bytes:
    first, last = sorted(rng.integers(0, len(content) + 1, 2).tolist())
    return content[:first] + content[last:]


@pytest.mark.parametrize("damage", [flipped, zeroed, cut])
@pytest.mark.parametrize("card", CARDS)
def test_damage_is_refused_or_left_out(
    card: str, damage: Callable[[bytes, np.random.Generator], bytes], tmp_path: Path
) -> None:
    """csiread overruns its buffers on such files: nothing of them may reach it but packets whose lengths are right."""
    rng = np.random.default_rng(len(card))
    good = contents()[card]
    how = CsiOptions(card=card, phases="raw", skip_bad=True)
    for i in range(40):
        (tmp_path / "log").write_bytes(damage(good, rng))
        try:
            dataset = import_dataset("csi", tmp_path / "log", tmp_path / f"out{i}", ImportOptions(csi=how))
        except DataError:
            assert not (tmp_path / f"out{i}").exists()
        else:
            assert sum(spec.frames for spec in dataset.captures) <= FRAMES


def test_channel_state_is_exported_where_it_can_be_said_to_be_that(tmp_path: Path) -> None:
    imported(contents()["atheros"], tmp_path)
    frames = load(tmp_path / "out")
    for name in ("mat", "sigmf", "hdf5"):
        with pytest.raises(ConfigError, match=r"cannot say that these are frames of subcarriers.*Use npz"):
            export_dataset(name, frames, tmp_path / name, ExportOptions())
    with pytest.raises(ConfigError, match="'csi' cannot be written"):
        export_dataset("csi", load(_as_time(tmp_path)), tmp_path / "csi", ExportOptions())
    export_dataset("npz", frames, tmp_path / "frames.npz")
    import_dataset("npz", tmp_path / "frames.npz", tmp_path / "again")
    again = load(tmp_path / "again")
    assert again.domain == "subcarriers"
    assert np.array_equal(again.iq, frames.iq)


def _as_time(folder: Path) -> Path:
    from tests.datasets import write_random

    return write_random(folder / "time", environments=["E1"], devices=1, captures=["L1"])


def test_packets_of_a_frame_may_be_found_in_any_bytes() -> None:
    """`walk` ends, and finds only what lies in the file, whatever it is given."""
    rng = np.random.default_rng(9)
    for card in CARDS.values():
        for size in (0, 1, 2, 3, 24, 40, 500, 5000):
            data = bytes(rng.integers(0, 256, size, dtype=np.uint8))
            for packet in card(CsiOptions()).walk(data):
                assert not isinstance(packet, FoundPacket) or max(packet.places) < size
    assert packed([(1, 3), (-1, 2)]) == bytes([0b11001])
