"""Strangers by parts of what a model sees: each antenna alone, and each path of PISA before one suppresses the other.

    python -m studies.embeddings --devices 40 --enrolled 20 --scale 0.5 --frames 64 --parts --out work/embeddings-parts
    python -m studies.parts --embeddings work/embeddings-parts --out results/studies/strangers-parts.json

Each view is scored as `session` scores embeddings. On the source, where E2 and E3 in turn are left out of the
statistics and play the new place, the first ten devices that are not enrolled are the strangers; in the environment
that was never seen, the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from benchmarks.report import begin
from torch import Tensor

from pisa_capc.data.scores import openset_score
from pisa_capc.data.store.files import write_text_atomic
from pisa_capc.decide.calibration.openset.session import Sessions
from pisa_capc.model.inference.statistics import SourceStatistics, session_statistics
from studies.embeddings import kept_in
from studies.strangers import KINDS, Model, Rows, mean

PROXIES = 10  # devices that are not enrolled and are strangers on the source
MOVED = 3.0  # λ, as `session` has it


@dataclass(frozen=True, eq=False)
class Parts:
    """A model's frames and what was kept of each part: (N, …) by name."""

    model: Model
    views: dict[str, Tensor]
    antennas: list[Tensor]  # (N, D) of each alone

    @classmethod
    def read(cls, path: Path) -> Parts:
        model = Model.read(path)
        with np.load(path) as file:
            alone, identity, context = (
                torch.from_numpy(file[name].astype(np.float64)) for name in ("alone", "identity", "context")
            )
        views = {
            "embedding": model.z,
            "identity path": identity,
            "context path": context,
            "both paths": torch.cat([identity, context], dim=1),
            "embedding and context path": torch.cat([model.z, context], dim=1),
            "antennas side by side": alone.flatten(1),
            "mean of antennas alone": alone.mean(dim=1),
        }
        return cls(model, views, list(alone.unbind(dim=1)))

    def distances(self, view: Tensor, train: Rows, senders: Rows) -> tuple[Tensor, Tensor]:
        """Squared distances (n, S) of means of senders (n, frames) to sessions of the frames `train`; their classes."""
        label, where = torch.from_numpy(self.model.device[train]), torch.from_numpy(self.model.where[train])
        made = session_statistics(view[train], label, where, label[:1], where[:1])
        sessions = Sessions.of(SourceStatistics(**{name: value.numpy() for name, value in made.items()}), view[:1])
        project = sessions.project(senders.shape[1], MOVED)
        pooled = view[torch.from_numpy(senders)].mean(dim=1)
        return torch.cdist(pooled @ project, sessions.means @ project).square(), sessions.label

    def scores(self, train: Rows, senders: Rows) -> dict[str, Tensor]:
        """(n,) of senders by every view; by all antennas, which must be like one session; and by whether they agree."""
        found = {name: self.distances(view, train, senders)[0].amin(dim=1) for name, view in self.views.items()}
        whole, label = self.distances(self.model.z, train, senders)
        apart = [self.distances(antenna, train, senders)[0] for antenna in self.antennas]
        found["antennas like one session"] = torch.stack(apart).sum(dim=0).amin(dim=1)
        named = torch.stack([label[far.argmin(dim=1)] for far in apart])
        others = (named != label[whole.argmin(dim=1)]).double().mean(dim=0)
        found["embedding and antennas that name another"] = found["embedding"].log() + others
        return found

    def meetings(self, unseen: bool) -> Iterator[tuple[Rows, Rows, Rows]]:
        """Frames of sessions, of known devices and of strangers: in each source environment, or where nobody was."""
        model, first = self.model, self.model.enrolled
        if unseen:
            away = [e for e in range(len(model.environments)) if e not in model.home]
            last = int(model.device.max()) + 1
            yield model.rows(model.home, 0, first), model.rows(away, 0, first), model.rows(away, first + PROXIES, last)
            return
        for place in model.home:
            train = model.rows([e for e in model.home if e != place], 0, first)
            yield train, model.rows([place], 0, first), model.rows([place], first, first + PROXIES)

    def measured(self, unseen: bool) -> dict[str, dict[str, dict[str, float]]]:
        """AUROC and strangers accepted at 5 % rejected, by view and number of frames."""
        rows: dict[str, dict[str, list[dict[str, float]]]] = {}
        for train, known, unknown in self.meetings(unseen):
            for kind, frames in KINDS.items():
                inside, outside = (self.scores(train, self.model.senders(r, frames)) for r in (known, unknown))
                for name, u in inside.items():
                    of = openset_score(u.numpy(), np.ones(len(u), dtype=bool), outside[name].numpy())
                    row = {"auroc": of.auroc, "false accepts": of.fpr95}
                    rows.setdefault(name, {}).setdefault(kind, []).append(row)
        return {name: {kind: mean(own) for kind, own in of.items()} for name, of in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", type=Path, default=Path("work/embeddings-parts"))
    parser.add_argument("--out", type=Path, default=Path("results/studies/strangers-parts.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    models = {}
    for path in kept_in(options.embeddings):
        parts = Parts.read(path)
        models[path.stem] = {"source": parts.measured(unseen=False), "target": parts.measured(unseen=True)}
        print(path.stem)
    write_text_atomic(options.out, json.dumps({"study": "strangers-parts", "models": models}, indent=1) + "\n")


if __name__ == "__main__":
    begin(main)
