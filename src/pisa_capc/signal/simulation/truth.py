"""What is known of a simulated recording, as SigMF metadata: an annotation per frame, with who really sent it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pisa_capc.signal.simulation.networks import NETWORKS
from pisa_capc.signal.simulation.stream import Heard
from pisa_capc.signal.simulation.traffic import Transmission

SPECIFICATION = "1.2.0"  # of SigMF
EXTENSIONS = [{"name": name, "version": "1.0.0", "optional": True} for name in ("signal", "pisa")]
EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)  # recordings are dated within a year from here, by their seed


def metadata(
    heard: Heard,
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
    return {
        "global": {
            "core:version": SPECIFICATION,
            "core:datatype": "ci16_le",
            "core:sample_rate": waveform.sample_rate_hz,
            "core:num_channels": geometry.antennas,
            "core:sha512": digest,
            "core:recorder": "pisa-capc",
            "core:description": f"Simulated {waveform.kind} traffic in {heard.environment}, {heard.capture}.",
            "core:extensions": EXTENSIONS,
            "pisa:environment": heard.environment,
            "pisa:capture": heard.capture,
            "pisa:geometry": geometry.to_json(),
            "pisa:simulated": {
                **made_with,
                "noise_rms": round(heard.noise_rms, 3),
                "interferer": None if tone is None else vars(tone),
            },
        },
        "captures": [
            {
                "core:sample_start": 0,
                "core:frequency": waveform.carrier_hz,
                "core:datetime": date.isoformat().replace("+00:00", "Z"),
            }
        ],
        "annotations": [annotation(heard, one, snr_db[one.number], enrolled) for one in sent],
    }


def annotation(heard: Heard, one: Transmission, snr_db: Sequence[float], enrolled: Sequence[str]) -> dict[str, Any]:
    """One frame. pisa:address is whom it claims to be from, signal:emitter who sent it."""
    waveform, message = heard.scene.waveform, one.message
    network = NETWORKS[waveform.kind]
    edge_hz = waveform.occupied * waveform.sample_rate_hz / 2
    return {
        "core:sample_start": one.start,
        "core:sample_count": message.samples,
        "core:freq_lower_edge": waveform.carrier_hz - edge_hz,
        "core:freq_upper_edge": waveform.carrier_hz + edge_hz,
        "core:label": message.device,
        "signal:emitter": {"label": message.device},
        "pisa:kind": message.kind,
        "pisa:address": message.transmitter,
        "pisa:receiver": message.receiver,
        f"pisa:{network.rate_name}": int(message.rate) if message.rate.is_integer() else message.rate,
        "pisa:length": len(message.octets),
        "pisa:cfo_hz": [round(value, 3) for value in heard.cfo_hz(one).tolist()],
        "pisa:snr_db": [round(value, 2) for value in snr_db],
        "pisa:delay_samples": round(one.delay_samples, 4),
        "pisa:collides": one.collides,
        "pisa:spoofed": spoofed(heard, one),
        "pisa:enrolled": message.device in enrolled,
    }


def spoofed(heard: Heard, one: Transmission) -> bool:
    """Whether a frame gives the address of another device."""
    own = NETWORKS[heard.scene.waveform.kind].address(one.message.device)
    return one.message.transmitter not in (None, own)
