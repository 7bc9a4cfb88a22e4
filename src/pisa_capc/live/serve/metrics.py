"""What Prometheus reads: its text format, version 0.0.4, written by hand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pisa_capc.live.listen.events import ALARMS, CONNECTED, STUCK

if TYPE_CHECKING:
    from pisa_capc.live.listen import Status
    from pisa_capc.live.serve.memory import Memory

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """Counts of values up to each limit."""

    def __init__(self, limits: Sequence[float]) -> None:
        self.limits, self.sum = tuple(limits), 0.0
        self._counts = [0] * (len(limits) + 1)

    def add(self, value: float) -> None:
        self._counts[bisect_left(self.limits, value)] += 1
        self.sum += value

    def lines(self) -> list[tuple[str, Mapping[str, str], float]]:
        """Samples: the ending of their name, labels, value."""
        found: list[tuple[str, Mapping[str, str], float]] = []
        total = 0
        for limit, count in zip((*map("{:g}".format, self.limits), "+Inf"), self._counts, strict=True):
            total += count
            found.append(("_bucket", {"le": limit}, total))
        return [*found, ("_sum", {}, self.sum), ("_count", {}, total)]


def metrics(status: Status, memory: Memory, devices: Sequence[str], clients: int) -> str:
    """Everything there is to count. Labels are names of the model's devices and kinds of alarms, never addresses."""
    by_device = [({"device": name}, memory.counts[name]) for name in devices]
    by_device.append(({"device": ""}, memory.counts[None]))
    withheld = [({"kind": kind}, status.withheld.get(kind, 0)) for kind in ALARMS]
    delay = [({"quantile": q}, 1e-3 * ms) for q, ms in zip(("0.5", "0.99"), status.delay_ms, strict=True)]
    parts = [
        _plain("samples_total", "counter", "Samples of each antenna, those missed included", status.samples),
        _plain("samples_missed_total", "counter", "Samples that were missed", status.missed),
        _plain("interruptions_total", "counter", "Times that the source restarted", status.breaks),
        _plain("source_connected", "gauge", "Whether the source is connected", int(status.source == CONNECTED)),
        _plain("sample_rate_hz", "gauge", "Samples of each antenna that come in a second", status.rate_hz),
        _plain("waiting_seconds", "gauge", "Samples that were not yet looked at", status.waiting_s),
        _plain("antennas_clipped", "gauge", "Antennas that clip", len(status.clipped)),
        _plain("antennas_dead", "gauge", "Antennas without a signal", len(status.dead)),
        _plain("frames_total", "counter", "Frames that were decided", status.frames),
        _several("delay_seconds", "gauge", "From a frame's last sample to its decision", delay),
        _several("decisions_total", "counter", "Frames by device; empty: a device that is not known", by_device),
        _several("alarms_total", "counter", "Alarms", [({"kind": kind}, memory.kinds[kind]) for kind in ALARMS]),
        _several("alarms_withheld_total", "counter", "Alarms that had to wait", withheld),
        _plain("alarms_open", "gauge", "Alarms that are open", status.open_alarms),
        _plain("stuck", "gauge", "Whether only a restart helps", int(status.health == STUCK)),
        _plain("transmitters", "gauge", "Transmitters that are remembered", len(memory.rows)),
        _plain("decisions_not_shown_total", "counter", "Decisions that the page was too late for", memory.lost),
        _plain("websocket_clients", "gauge", "Pages and programs that get events", clients),
        _metric("reception_seconds", "histogram", "From a frame's first sample to its decision", memory.delays.lines()),
        _metric("confidence", "histogram", "Probability of the device that was decided", memory.confidences.lines()),
    ]
    return "".join(parts)


def _plain(name: str, kind: str, help: str, value: float) -> str:
    return _metric(name, kind, help, [("", {}, value)])


def _several(name: str, kind: str, help: str, values: Iterable[tuple[Mapping[str, str], float]]) -> str:
    return _metric(name, kind, help, [("", labels, value) for labels, value in values])


def _metric(name: str, kind: str, help: str, values: Iterable[tuple[str, Mapping[str, str], float]]) -> str:
    lines = [f"# HELP pisa_{name} {help}.", f"# TYPE pisa_{name} {kind}"]
    for ending, labels, value in values:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        lines.append(f"pisa_{name}{ending}{'{' + inside + '}' if inside else ''} {value:.10g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
