"""The ground truth of a simulated recording, as SigMF metadata: an annotation per frame, with its true sender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pisa_capc.signal.recordings import sigmf
from pisa_capc.signal.recordings.encoding import Encoding
from pisa_capc.signal.simulation.networks import NETWORKS
from pisa_capc.signal.simulation.stream import Reception
from pisa_capc.signal.simulation.traffic import Transmission

ENCODING = Encoding.named("cs16")  # of the samples
EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)  # recordings are dated within a year from here, by their seed


def metadata(
    heard: Reception,
    sent: Sequence[Transmission],
    snr_db: Mapping[int, Sequence[float]],
    enrolled: Sequence[str],
    digest: str,
    made_with: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of a .sigmf-meta file. digest: SHA-512 of the data. snr_db: on each antenna, by a frame's number."""
    waveform, geometry = heard.scene.waveform, heard.scene.receiver.geometry
    date = EARLIEST + timedelta(seconds=int(heard.stream("date").integers(365 * 24 * 3600)))
    tone = heard.interferer
    said = {
        "sha512": digest,
        "recorder": "pisa-capc",
        "description": f"Simulated {waveform.kind} traffic in {heard.environment}, {heard.capture}.",
    }
    simulated = {
        **made_with,
        "noise_rms": round(heard.noise_rms, 3),
        "interferer": None if tone is None else vars(tone),
    }
    own = {
        "environment": heard.environment,
        "capture": heard.capture,
        "geometry": geometry.to_json(),
        "simulated": simulated,
    }
    began = date.isoformat().replace("+00:00", "Z")
    return {
        "global": sigmf.global_info(ENCODING, waveform.sample_rate_hz, geometry.antennas, said, own),
        "captures": [sigmf.capture(waveform.carrier_hz, began)],
        "annotations": [annotation(heard, one, snr_db[one.number], enrolled) for one in sent],
    }


def annotation(heard: Reception, one: Transmission, snr_db: Sequence[float], enrolled: Sequence[str]) -> dict[str, Any]:
    """One frame. pisa:address is the claimed sender, signal:emitter the true one."""
    waveform, message = heard.scene.waveform, one.message
    network = NETWORKS[waveform.kind]
    edge_hz = waveform.occupied * waveform.sample_rate_hz / 2
    return sigmf.annotation(
        one.start,
        message.samples,
        message.device,
        emitter={"label": message.device},
        band_hz=(waveform.carrier_hz - edge_hz, waveform.carrier_hz + edge_hz),
        pisa={
            "kind": message.kind,
            "address": message.transmitter,
            "receiver": message.receiver,
            network.rate_name: int(message.rate) if message.rate.is_integer() else message.rate,
            "length": len(message.octets),
            "cfo_hz": [round(value, 3) for value in heard.cfo_hz(one).tolist()],
            "snr_db": [round(value, 2) for value in snr_db],
            "delay_samples": round(one.delay_samples, 4),
            "collides": one.collides,
            "spoofed": spoofed(heard, one),
            "enrolled": message.device in enrolled,
        },
    )


def spoofed(heard: Reception, one: Transmission) -> bool:
    """Whether a frame gives the address of another device."""
    own = NETWORKS[heard.scene.waveform.kind].address(one.message.device)
    return one.message.transmitter not in (None, own)
