"""Records of a protocol with deployments: the scores of one method's runs, by deployment and stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from pisa_capc.data.deployments import Deployment
from pisa_capc.data.protocol import DIRECT
from pisa_capc.evidence.benchmark.protocols import Protocol
from pisa_capc.evidence.benchmark.records import Record
from pisa_capc.evidence.benchmark.results import Key, Results


@dataclass(frozen=True)
class Deployed:
    """The runs of one method and variant. place: dataset and direction. stages: direct inference comes first."""

    place: tuple[str, str]
    method: str
    variant: str
    stages: tuple[str, ...]
    deployments: tuple[Deployment, ...]
    records: dict[str, list[Record]]  # by encoder

    @property
    def runs(self) -> int:
        return sum(map(len, self.records.values()))

    def mean(self, deployment: Deployment, stage: str, encoder: str | None = None) -> float | None:
        """Mean Macro-F1 over the runs, of one encoder or of all; none where the stage is not scored there."""
        values = [f1 for f1, _ in self._pairs(deployment, stage, encoder)]
        return fmean(values) if values else None

    def gain(self, deployment: Deployment, stage: str, encoder: str | None = None) -> float:
        """Mean change of Macro-F1 against direct inference in the same deployment."""
        return fmean(f1 - direct for f1, direct in self._pairs(deployment, stage, encoder))

    def worst(self, deployment: Deployment, stage: str) -> tuple[float, str]:
        """The least gain of an encoder, and which it is."""
        return min((self.gain(deployment, stage, encoder), encoder) for encoder in self.records)

    def _pairs(self, deployment: Deployment, stage: str, encoder: str | None) -> Iterator[tuple[float, float]]:
        """Macro-F1 of each run after the stage, and by direct inference."""
        for own, records in self.records.items():
            for record in records if encoder in (None, own) else ():
                if after := record.stages.get(deployment.stage(stage)):
                    yield after["macro_f1"], record.stages[deployment.stage(DIRECT)]["macro_f1"]


def deployed(protocol: Protocol, results: Results, place: tuple[str, str]) -> list[Deployed]:
    """Every method and variant that is recorded at a dataset and direction."""
    found = []
    for row in protocol.methods:
        for variant in row.variants:
            keys = [Key(*place, row.method, variant, encoder) for encoder in protocol.encoders]
            records = {key.encoder: list(results.runs[key].values()) for key in keys if key in results.runs}
            if records:
                stages = (DIRECT, *row.calibration)
                found.append(Deployed(place, row.method, variant, stages, protocol.deployments, records))
    return found
