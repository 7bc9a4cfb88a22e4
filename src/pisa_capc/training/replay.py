"""Rehearsals of a deployment on the source alone: leave one source environment out, train on the others.

What a calibration does on the environment that was left out can be checked, because its labels are the source's own.
That is how the guard (`pisa_capc.calibration.guard`) learns what a calibration that helps looks like.
"""

from __future__ import annotations

from pisa_capc.protocol import split
from pisa_capc.training.bank import union
from pisa_capc.training.runs import Run


def replay_runs(run: Run, validation: float = 0.2) -> dict[str, Run]:
    """For each source environment the run that trains on the others and has it as its target.

    Seeds are those of `run`; a source of one environment has no replays. validation: as of `protocol.split`.
    """
    source = union([run.split.train, run.split.validation])
    names = [source.environments[i] for i in sorted(set(source.environment.tolist()))]
    if len(names) < 2:
        return {}
    return {
        name: Run(
            split(source, [other for other in names if other != name], name, run.split_seed, validation, few_shot=0),
            run.split_seed,
            run.seed,
        )
        for name in names
    }
