"""What a dataset holds, from its description and CFO alone: no I/Q is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.data.store.native import Dataset, StoreSource


def summarise(folder: str | Path) -> dict[str, Any]:
    """Layout, rates, geometry, frame counts and CFO of a dataset; captures not yet written are listed as missing.

    frames: {environment: {capture: {device: count}}} of the captures that are there.
    cfo_hz: per 'environment/capture' and per device: the mean, its `drift` (mean over recordings and antennas of the
    standard deviation over time) and its `antenna_spread` (mean over time of the standard deviation over antennas).
    """
    folder = Path(folder)
    dataset = Dataset.read(folder)
    missing = {c.name for c in dataset.missing(folder)}
    there = [i for i, c in enumerate(dataset.captures) if c.name not in missing]
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for i in there:
        c = dataset.captures[i]
        counts.setdefault(c.environment, {}).setdefault(c.capture, {})[c.device] = c.frames
    return {
        "folder": str(folder),
        "made_by": dataset.provenance.get("command"),
        "environments": sorted({c.environment for c in dataset.captures}),
        "devices": sorted({c.device for c in dataset.captures}),
        "captures": sorted({c.capture for c in dataset.captures}),
        "total_frames": sum(dataset.captures[i].frames for i in there),
        "antennas": dataset.geometry.antennas,
        "samples": dataset.samples,
        "domain": dataset.domain,
        **({} if dataset.subcarriers is None else {"subcarriers": dataset.subcarriers.to_json()}),
        "sample_rate_hz": dataset.sample_rate_hz,
        "carrier_hz": dataset.carrier_hz,
        "geometry": dataset.geometry.to_json(),
        "frames": counts,
        "missing": sorted(missing),
        "cfo_hz": _cfo(StoreSource(folder, dataset), there),
    }


def _cfo(source: StoreSource, there: list[int]) -> dict[str, dict[str, dict[str, float]]] | None:
    per_capture: dict[str, list[NDArray[np.float64]]] = {}
    per_device: dict[str, list[NDArray[np.float64]]] = {}
    for trace, i in zip(source.cfo_traces(source.starts[there]), there, strict=True):
        if trace.cfo_hz is None:
            return None
        spec = source.dataset.captures[i]
        values = np.array([trace.cfo_hz.mean(), trace.cfo_hz.std(axis=0).mean(), trace.cfo_hz.std(axis=1).mean()])
        per_capture.setdefault(f"{spec.environment}/{spec.capture}", []).append(values)
        per_device.setdefault(spec.device, []).append(values)

    def means(groups: dict[str, list[NDArray[np.float64]]]) -> dict[str, dict[str, float]]:
        names = ("mean", "drift", "antenna_spread")
        return {k: dict(zip(names, np.mean(v, axis=0).tolist(), strict=True)) for k, v in sorted(groups.items())}

    return {"per_capture": means(per_capture), "per_device": means(per_device)}
