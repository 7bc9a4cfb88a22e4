"""Replays see the source and nothing else."""

import numpy as np

from pisa_capc import Frames
from pisa_capc.protocol import split
from pisa_capc.training import Run
from pisa_capc.training.replay import replay_runs


def example() -> Frames:
    rng = np.random.default_rng(0)
    return Frames.from_arrays(
        rng.normal(size=(60, 2, 16)), device=["D1", "D2"] * 30, environment=np.repeat(["E1", "E2", "E3"], 20)
    )


def test_each_source_environment_is_left_out_once() -> None:
    run = Run(split(example(), ["E2", "E3"], "E1", seed=1), 1, 7)
    replays = replay_runs(run)
    assert list(replays) == ["E2", "E3"]
    source = set(run.split.train.rows) | set(run.split.validation.rows)
    for name, replay in replays.items():
        part = replay.split
        seen = set(part.train.rows) | set(part.validation.rows)
        assert {part.train.environments[i] for i in part.train.environment} == {"E2", "E3"} - {name}
        assert {part.target.environments[i] for i in part.target.environment} == {name}
        assert seen | set(part.target.rows) == source
        assert not seen & set(part.target.rows)
        assert (replay.split_seed, replay.seed) == (1, 7)


def test_a_source_of_one_environment_has_no_replays() -> None:
    assert replay_runs(Run(split(example(), "E2", "E1", seed=1), 1, 1)) == {}
