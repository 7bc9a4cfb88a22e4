"""
A stream, frame by frame
========================

A receiver that runs all day cannot wait until a capture is whole.
:class:`~pisa_capc.decide.calibration.OnlineCalibrator` decides every frame as it arrives, finds the captures by itself,
and never needs more memory than at the start.
"""

# %%
# A model and a stream
# --------------------
# The frames of three positions in the new room arrive one position after the other, devices in random order.

from pathlib import Path
from tempfile import mkdtemp

import numpy as np

import pisa_capc

folder = Path(mkdtemp())
frames = pisa_capc.simulate(
    "wifi",
    folder / "wifi",
    scene="radios.yaml",
    scale=0.1,
    workers=1,
    show_progress=False,
)
part = pisa_capc.split(frames, source=["E2", "E3"], target="E1", seed=2026)
[model] = pisa_capc.fit(
    pisa_capc.Run(part, seed=2026),
    method="equalised",
    encoder="cnn",
    epochs=4,
    batch=32,
    learning_rate=0.003,
    device="cpu",
    show=False,
)
scores = pisa_capc.embed(model, part.target)

rng = np.random.default_rng(0)
order = np.concatenate(
    [
        rng.permutation(np.flatnonzero(scores.capture == name))
        for name in np.unique(scores.capture)
    ]
)

# %%
# Decide
# ------
# One frame at a time. The first frames of a group are decided by their logits alone; then prototypes of what has been
# seen join in, and are brought up to date as the stream goes on. From a pipe: ``… | pisa calibrate stream``.

from pisa_capc.decide.calibration import Online, OnlineCalibrator

stream = OnlineCalibrator(
    classes=len(model.devices),
    features=scores.embedding.shape[1],
    settings=Online(warmup=24, refresh=48),
)
before = stream.nbytes
decisions = [
    stream.push(scores.embedding[i : i + 1], scores.logits[i : i + 1]) for i in order
]
print(
    f"{len(order)} frames, state of {before / 2**20:.1f} MiB before and {stream.nbytes / 2**20:.1f} MiB after"
)

# %%
# Scores
# ------

probability = np.empty((len(order), len(model.devices)))
probability[order] = np.concatenate([one.probability for one in decisions])
whole = pisa_capc.UCAPC().calibrate(scores.embedding, scores.logits, scores.capture)
for name, outputs in {
    "direct": scores.logits,
    "as they arrived": probability,
    "capture by capture, afterwards": whole.probability,
}.items():
    print(f"{name:31} Macro-F1 {part.evaluator.score(outputs).macro_f1:.3f}")

# %%
# The share of right decisions among the last hundred frames, and where the stream moves to another position.

import matplotlib.pyplot as plt

from pisa_capc.evidence.figures.style import mark_chance, stage_colour

labels = part.evaluator.labels_for_drawing()[order]
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for name, outputs in (("direct", scores.logits), ("calibrated", probability)):
    right = outputs[order].argmax(axis=1) == labels
    axes.plot(
        np.convolve(right, np.ones(100) / 100, "valid"),
        color=stage_colour(name),
        label=name,
    )
mark_chance(axes, 1 / len(model.devices), upright=True)
for edge in np.flatnonzero(
    np.diff(np.unique(scores.capture[order], return_inverse=True)[1])
):
    axes.axvline(max(edge - 99, 0), color="black", linewidth=0.5, linestyle="--")
axes.set(ylim=(0, 1.02), xlabel="frame", ylabel="right among the last 100")
_ = figure.legend(loc="outside upper center", ncols=3, frameon=False)

# %%
# What it has learnt can be kept, ``stream.save("state")``, and loaded tomorrow: see :doc:`../streams`.
