"""A model's card: README.md with the front matter that model hubs read, beside the weights and the ONNX file.

Everything in it is from the run and its statistics; what only the owner knows is a line to fill in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from pisa_capc.core.progress import visible
from pisa_capc.data.chance import QUANTILE
from pisa_capc.data.protocol import stage_title
from pisa_capc.data.store.dataset import SUBCARRIERS
from pisa_capc.evidence.evaluation import RunScores
from pisa_capc.model.inference import TrainedModel

FILE = "README.md"
LISTED = 40  # devices
OTHER = "other"  # the licence of which hubs know nothing


class CardScore(NamedTuple):
    """Macro-F1 with its 95 % interval over the devices: mean ± 1.96 s/√C, s² the variance of their F1."""

    where: str
    macro_f1: float
    margin: float

    @classmethod
    def of(cls, where: str, per_device: Mapping[str, float]) -> CardScore:
        values = np.array(list(per_device.values()), dtype=np.float64)
        spread = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
        return cls(where, float(values.mean()), QUANTILE * float(spread))

    def __str__(self) -> str:
        low, high = max(0.0, self.macro_f1 - self.margin), min(1.0, self.macro_f1 + self.margin)
        return f"{self.macro_f1:.3f} ({low:.3f}–{high:.3f})"


def scores_of(trained: TrainedModel, target: RunScores | None) -> list[CardScore]:
    """Of the held-out frames of the source, and of the target where it was scored."""
    found = []
    if trained.statistics.confusion is not None:
        per_device = f1_by_class(np.asarray(trained.statistics.confusion, dtype=np.float64).T)
        names = dict(zip(trained.devices, per_device, strict=True))
        where = f"held-out frames of {', '.join(trained.run.source)}, where it was trained"
        found.append(CardScore.of(where, {name: f1 for name, f1 in names.items() if np.isfinite(f1)}))
    for stage, scores in (target.stages if target is not None else {}).items():
        where = f"{', '.join(trained.run.target)}, where it was not, {stage_title(stage)}"
        found.append(CardScore.of(where, scores.per_device))
    return found


def f1_by_class(confusion: NDArray[np.float64]) -> list[float]:
    """F1 of each class from counts (C, C), true class by row; NaN of a class without frames."""
    right, true, decided = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    f1 = np.where(true > 0, 2 * right / np.maximum(true + decided, 1), np.nan)
    return [float(one) for one in f1]


def model_card(
    trained: TrainedModel, target: RunScores | None = None, licence: str = OTHER, files: tuple[str, ...] = ()
) -> str:
    """The text of the card. target: scores of the run in its target. licence: of the weights, as hubs name it."""
    run, scores = trained.run, scores_of(trained, target)
    name = f"{run.title}, {len(trained.devices)} devices"
    front: dict[str, Any] = {
        "license": licence,
        "library_name": "pisa-capc",
        "tags": ["rf-fingerprinting", "specific-emitter-identification", run.method],
        "metrics": ["f1"],
    }
    if scores:
        results = [{"type": "f1", "name": f"Macro-F1, {one.where}", "value": round(one.macro_f1, 4)} for one in scores]
        data = {"name": run.dataset or "own recordings", "type": "iq"}
        task = {"type": OTHER, "name": "transmitter identification"}
        front["model-index"] = [{"name": name, "results": [{"task": task, "dataset": data, "metrics": results}]}]
    kind = "channel state" if run.domain == SUBCARRIERS else "I/Q samples"
    listed = ", ".join(_plain(one) for one in trained.devices[:LISTED])
    more = f" and {len(trained.devices) - LISTED} more" if len(trained.devices) > LISTED else ""
    changes = [_plain(str(one.get("enrolled") or one.get("removed"))) for one in run.changes]
    rows = "\n".join(f"| {_plain(one.where)} | {one} |" for one in scores) or "| not scored | – |"
    fingerprint = f" (fingerprint `{run.dataset}`)" if run.dataset else ""
    lines = f"""# {name}

Tells which of {len(trained.devices)} radio transmitters sent a frame, by the flaws of their hardware. Trained with
PISA-CAPC {run.version}, method {run.method}.

## Data

- Frames of {kind}: {trained.geometry.antennas} antennas, {run.samples} values each, {run.sample_rate_hz:g} samples/s, \
carrier {run.carrier_hz / 1e6:g} MHz{"" if run.cfo else ", without carrier offsets"}.
- Trained in {_plain(", ".join(run.source)) or "–"}; kept out of the training: \
{_plain(", ".join(run.target)) or "–"}{fingerprint}.
- Recorded by, with what, when and under which licence: *to be filled in*.

## Devices

{listed}{more}.{f" Enrolled or removed after the training: {', '.join(changes)}." if changes else ""}

## Scores

| frames | Macro-F1 (95 % interval over the devices) |
|---|---|
{rows}

Guessing would give {1 / max(1, len(trained.devices)):.2f}. {_unscored(trained, target)}

## Intended use

To recognise these devices, and to set aside others, with the same receive array, sample rate and kind of frames.
Decisions are statistical: confirm one by other means before a person is accused or shut out because of it.

## Limits

- It knows the devices above and no others; unknown ones are rejected by a threshold that some of them pass.
- Another receiver, antenna array or waveform shifts all measurements: enrol or train again there.
- Frames of one recording share a channel; scores in a place that was not among these may be lower.
- Calibration by U-CAPC as published assumes that all devices send equally often.

## Use

```
pisa predict FOLDER recording.sigmf-meta --csv rows.csv       # FOLDER: this one
```

```python
from pisa_capc import load_model, predict
who = predict(load_model("FOLDER"), frames)
```

Files: {", ".join(f"`{_plain(one)}`" for one in files)}.
"""
    return f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---\n\n{lines}"


def _unscored(trained: TrainedModel, target: RunScores | None) -> str:
    if target is not None:
        return "Scores in the target are those that count."
    return "It was not scored where it was not trained: --data DATASET of `pisa export-model --card` does that."


def _plain(text: str) -> str:
    """Names as Markdown shows them: they may be of other people's files."""
    return "".join(f"\\{c}" if c in r"\`*_{}[]<>()#|!" else c for c in visible(text))
