"""Trained runs on frames: which frames a run may be scored on, and the one way from a run to its scores."""

from pisa_capc.evidence.evaluation.deployment import deploy
from pisa_capc.evidence.evaluation.inference import (
    METRICS,
    Inference,
    RunScores,
    evaluate,
    infer,
    infer_runs,
    pooled,
    summary,
)
from pisa_capc.evidence.evaluation.runs import (
    Later,
    check_dataset,
    doubts,
    has_split_of,
    later_frames,
    load_runs,
    unseen_frames,
)
from pisa_capc.evidence.evaluation.strangers import UnknownDeviceScores

__all__ = [
    "METRICS",
    "Inference",
    "Later",
    "RunScores",
    "UnknownDeviceScores",
    "check_dataset",
    "deploy",
    "doubts",
    "evaluate",
    "has_split_of",
    "infer",
    "infer_runs",
    "later_frames",
    "load_runs",
    "pooled",
    "summary",
    "unseen_frames",
]
