"""
A benchmark of your own
=======================

One YAML file says what is compared with what: data, directions, seeds, encoders, methods and calibrations, with every
setting. What was run can be read off it, and what was stopped goes on.
"""

# %%
# The protocol
# ------------
# Two methods, two splits, before and after calibration. ``pisa bench run mine.yaml`` is the command; its schema,
# with all defaults, is :doc:`../reference/protocol`.

from pathlib import Path
from tempfile import mkdtemp

folder = Path(mkdtemp())
protocol_file = folder / "mine.yaml"
protocol_file.write_text(
    """
title: Two methods on six radios
dataset: {name: radios, simulate: null}
directions:
  - {source: [E2, E3], target: [E1]}
split: {validation: 0.2, few_shot: 4}
split_seeds: [1, 2]
seeds: [1]
encoders: [cnn]
precision: auto
training: {epochs: 8, batch: 32, learning_rate: 0.003, weight_decay: 0.0001, samples: 320}
methods:
  - method: single
    settings: {embedding: 64}
    variants: {full: {}}
    calibration: [paper]
  - method: equalised
    settings: {embedding: 64, waveform: auto, taps: 8, ridge: 0.01, noise: 0.01}
    variants: {full: {}}
    calibration: [paper]
calibration:
  paper: {method: ucapc, threshold: 0.0, top: 512, temperature: 0.2, fusion: 2.0, passes: 3, balance: 1.0,
          sinkhorn_iterations: 20, epsilon: 1.0, prior: balanced, group: capture}
""",
    encoding="utf-8",
)

# %%
# Run it
# ------
# Each run becomes a record, a JSON file with its settings, scores and the machine. A second call would find them all
# and do nothing.

import pisa_capc
from pisa_capc.evidence.benchmark.protocols import read_protocol
from pisa_capc.evidence.benchmark.run import Options, run_protocol

pisa_capc.simulate(
    "wifi",
    folder / "radios",
    scene="radios.yaml",
    scale=0.04,
    workers=1,
    show_progress=False,
)
protocol = read_protocol(str(protocol_file))
options = Options(
    data=folder / "radios",
    results=folder / "results",
    work=folder / "work",
    device="cpu",
)
print(run_protocol(protocol, options))

# %%
# Tables and figures
# ------------------
# From the records alone: ``pisa bench tables mine.yaml``, ``pisa bench figures mine.yaml``.

from pisa_capc.evidence.benchmark.render import markdown
from pisa_capc.evidence.benchmark.results import load_results
from pisa_capc.evidence.benchmark.tables import make_tables

results = load_results(protocol, folder / "results" / protocol.name)
print(markdown(make_tables(protocol, results)))

# %%
# Where each capture stands, by method:

from pisa_capc.evidence.figures.confusion import capture_scores
from pisa_capc.evidence.figures.protocol import stage_scores

[place] = results.places()
picture = folder / "captures.png"
capture_scores(stage_scores(results, place, "cnn"), picture)
# sphinx_gallery_thumbnail_number = 1

# %%
# Single, without the equaliser, knows more than half of its own rooms and is at chance in the new one; behind the
# equaliser the same network carries over, and calibration takes most of what is left. Two runs are an example, not
# evidence: the :doc:`results <../results/findings>` have nine of each.
