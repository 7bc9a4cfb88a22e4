"""
A training method of your own
=============================

A method builds a model and gives the loss of a batch. Most extend one that is there; this one adds a term to Single
behind an equaliser, and its weight becomes a setting that ``--set`` and protocols know.
"""

# %%
# The method
# ----------
# Every quantity has a leading run axis R, because runs may be trained in one stack: the loss is (R,), one value of
# each.

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pisa_capc.model.methods import Batch, register_method
from pisa_capc.model.methods.equalised import EqualisedMethod, EqualisedSettings
from pisa_capc.model.objective import cross_entropy


@dataclass(frozen=True)
class CentredSettings(EqualisedSettings):
    """centre: weight of the distance to the mean of the device's embeddings in the batch."""

    centre: float = 0.05


@register_method("centred")
class CentredMethod(EqualisedMethod):
    """Equalised Single whose embeddings gather around their device's mean: L_ce + λ E ‖z − m_y‖²."""

    title = "Centred"
    citation = "this page"
    Settings = CentredSettings
    terms = ("cls", "centre")

    def loss(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        output = model(batch.iq)
        z = nn.functional.normalize(output.embedding.float(), dim=-1)  # (R, B, D)
        same = (batch.label[:, :, None] == batch.label[:, None, :]).float()  # (R, B, B)
        mean = same @ z / same.sum(dim=-1, keepdim=True)
        distance = (z - mean).square().sum(dim=-1).mean(dim=1)  # (R,)
        return {
            "cls": cross_entropy(output.logits, batch.label),
            "centre": self.settings.centre * distance,
        }


# %%
# Train it with two weights
# -------------------------
# ``centre: 0`` is equalised Single again. ``settings`` is what ``--set centre=0.2`` gives on the command line.

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

found = {}
for weight in (0.0, 0.2):
    [model] = pisa_capc.fit(
        pisa_capc.Run(part, seed=2026),
        method="centred",
        encoder="cnn",
        settings={"centre": weight},
        epochs=8,
        learning_rate=0.003,
        batch=32,
        device="cpu",
        show=False,
    )
    found[weight] = pisa_capc.embed(model, part.target)
    score = part.evaluator.score(found[weight].logits)
    source = model.run.metrics.validation_f1
    print(
        f"λ = {weight}: source validation {source:.3f}, target Macro-F1 {score.macro_f1:.3f}"
    )

# %%
# One run of each: it shows how a method is written, not that this one is good. What the
# term does to the target's embeddings, on their two principal axes, coloured by device. Labels of a target are
# the evaluator's; it gives them out for drawing only.

import matplotlib.pyplot as plt

from pisa_capc.evidence.figures.style import COLOURS

labels = part.evaluator.labels_for_drawing()
figure, places = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
for axes, (weight, scores) in zip(places, found.items(), strict=True):
    z = nn.functional.normalize(torch.as_tensor(scores.embedding), dim=1)
    _, _, directions = torch.linalg.svd(z - z.mean(dim=0), full_matrices=False)
    x, y = ((z - z.mean(dim=0)) @ directions[:2].T).T.numpy()
    for k, device in enumerate(model.devices):
        axes.scatter(
            *(values[labels == k] for values in (x, y)),
            s=8,
            color=COLOURS[k],
            label=device,
        )
    axes.set(
        title=f"λ = {weight}",
        xlabel="first principal axis",
        ylabel="second principal axis",
    )
_ = places[1].legend(
    title="device", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False
)
