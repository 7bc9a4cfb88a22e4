"""
An encoder of your own
======================

An encoder is a plain PyTorch module under a decorator. It then works with every training method, in ``pisa train``, in
protocols, and beside the built-in ones.
"""

# %%
# The module
# ----------
# It is built with the number of channels, two for each stream (in-phase parts first, then quadrature), and maps
# (N, channels, T) to (N, 32, T′). In a file ``mine.py`` the same lines are a plugin::
#
#     pisa train wifi --source E2,E3 --target E1 --out run --plugin mine.py --encoder dilated

from torch import nn

from pisa_capc.model.encoders import register_encoder


@register_encoder("dilated", ordinary=True)
class Dilated(nn.Sequential):
    """Four convolutions of kernel 3 whose reach doubles from one to the next."""

    title = "Dilated"

    def __init__(self, channels: int) -> None:
        layers = []
        for i, inputs in enumerate((channels, 32, 32, 32)):
            conv = nn.Conv1d(
                inputs, 32, 3, stride=2 if i == 0 else 1, dilation=2**i, padding=2**i
            )
            layers += [conv, nn.BatchNorm1d(32), nn.ReLU()]
        super().__init__(*layers)


# %%
# Train it beside a built-in one
# ------------------------------
# Same frames, same split, same method, optimiser and seed: what differs is the encoder.

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
part = pisa_capc.split(frames, source=["E2", "E3"], target="E1", seed=2026)

models = {}
for encoder in ("cnn", "dilated"):
    [models[encoder]] = pisa_capc.fit(
        pisa_capc.Run(part, seed=2026),
        method="equalised",
        encoder=encoder,
        epochs=8,
        batch=32,
        learning_rate=0.003,
        device="cpu",
        show=False,
    )

# %%
# Score both
# ----------

stages = {}
for encoder, model in models.items():
    scores = pisa_capc.embed(model, part.target)
    calibrated = pisa_capc.UCAPC().calibrate(
        scores.embedding, scores.logits, scores.capture
    )
    stages[f"{encoder}, direct"] = part.evaluator.score(scores.logits)
    stages[f"{encoder}, calibrated"] = part.evaluator.score(calibrated.probability)
for name, found in stages.items():
    print(f"{name:20} Macro-F1 {found.macro_f1:.3f}")

# %%
# Capture by capture, one run each. One run of a small set says nothing about which encoder is better; a
# :doc:`protocol <plot_benchmark>` of several splits and seeds does.

from pisa_capc.evidence.figures.confusion import capture_scores

picture = folder / "captures.png"
capture_scores({name: [found] for name, found in stages.items()}, picture)
