"""Found frames as SigMF annotations."""

from __future__ import annotations

import uuid
from typing import Any

from pisa_capc.signal.detection.finding import Found, FoundFrame

GENERATOR = "pisa detect"


def as_annotations(found: Found, antennas: slice) -> list[dict[str, Any]]:
    """An annotation per frame: what SigMF has fields for, and in our namespace CFO, SNR and quality of antennas."""
    return [_annotation(found, frame, antennas) for frame in found.frames]


def _annotation(found: Found, frame: FoundFrame, antennas: slice) -> dict[str, Any]:
    about, waveform, header = found.recording.about, found.waveform, frame.header
    samples = frame.samples or len(waveform.preamble())
    centre, half = about.carrier_hz or 0.0, waveform.occupied * waveform.sample_rate_hz / 2
    said = frame.to_json()
    note: dict[str, Any] = {
        "core:sample_start": frame.start,
        "core:sample_count": round(samples * about.sample_rate_hz / waveform.sample_rate_hz),
        "core:freq_lower_edge": centre - half,
        "core:freq_upper_edge": centre + half,
        "core:label": header.transmitter or header.kind or waveform.name,
        "core:uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{GENERATOR} {frame.recording} {frame.start}")),
        "pisa:cfo_hz": said["cfo_hz"][antennas],
        "pisa:snr_db": said["snr_db"][antennas],
    }
    if header.transmitter is not None:
        note["signal:emitter"] = {"label": header.transmitter}
    others = ("quality", "kind", "rate_mbps", "length", "receiver", "fcs")
    return {**note, **{f"pisa:{name}": said[name] for name in others if said[name] is not None}}
