"""
From frames to decisions
========================

Six radios send the same 802.11 preamble in three places. A model is trained in two of them and has to tell the radios
apart in the third, which it never saw; then its decisions are calibrated there without labels.
"""

# %%
# Frames
# ------
# :func:`pisa_capc.simulate` makes a dataset from physics and opens it. ``radios.yaml``, beside this script, lays a few
# settings over the built-in scene ``wifi``. ``scale`` shrinks the captures, never the layout.

from pathlib import Path
from tempfile import mkdtemp

import pisa_capc

folder = Path(mkdtemp())
frames = pisa_capc.simulate(
    "wifi",
    folder / "wifi",
    scene="radios.yaml",
    scale=0.05,
    workers=1,
    show_progress=False,
)
print(frames)

# %%
# What is in it: a frame of the first capture on each antenna, its spectrum, the frequency offsets, and how long echoes
# last in each environment.

from pisa_capc.evidence.figures.dataset import dataset_picture

picture = folder / "dataset.png"
dataset_picture(folder / "wifi", picture)

# %%
# A split that keeps the target's labels away
# -------------------------------------------
# The source is labelled; the target is a place of its own, and ``part.target`` has no device column at all. Only
# ``part.evaluator`` knows who sent what, and it gives out scores, never labels.

part = pisa_capc.split(frames, source=["E2", "E3"], target="E1", seed=2026)
print(
    len(part.train),
    "frames to train on,",
    len(part.validation),
    "to choose the epoch with,",
    len(part.target),
    "to decide",
)

# %%
# Train
# -----
# ``equalised`` is Single, one encoder on all antennas, behind an equaliser on the known preamble: the quickest to train
# where frames begin with a preamble. ``pisa-equalised`` is PISA behind the same equaliser, and better on hard sets.

[model] = pisa_capc.fit(
    pisa_capc.Run(part, seed=2026),
    method="equalised",
    encoder="cnn",
    epochs=8,
    batch=32,
    learning_rate=0.003,
    device="cpu",
    show=False,
)
print(f"source validation Macro-F1: {model.run.metrics.validation_f1:.3f}")

# %%
# Decide, and calibrate
# ---------------------
# U-CAPC looks at one capture at a time. It knows no labels: it assumes that the capture holds every device about
# equally often, builds a prototype of each device from the frames themselves, and lets both vote.

scores = pisa_capc.embed(model, part.target)
calibrated = pisa_capc.UCAPC().calibrate(
    scores.embedding, scores.logits, scores.capture
)
stages = {
    "direct": part.evaluator.score(scores.logits),
    "after U-CAPC": part.evaluator.score(calibrated.probability),
}
print(f"chance is {1 / len(model.devices):.3f}")
for name, found in stages.items():
    print(f"{name:12} Macro-F1 {found.macro_f1:.3f}, accuracy {found.accuracy:.3f}")

# %%
# Where the decisions go, before and after:

from pisa_capc.evidence.figures.confusion import plot_confusions

picture = folder / "confusion.png"
plot_confusions(picture, stages)
# sphinx_gallery_thumbnail_number = 2
