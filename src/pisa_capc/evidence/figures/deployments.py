"""What calibrations change in every kind of deployment, by encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pisa_capc.data.deployments import Deployment
from pisa_capc.data.protocol import DIRECT, PAPER, SAFE
from pisa_capc.evidence.benchmark.deployed import Deployed
from pisa_capc.evidence.benchmark.tables import stage_name
from pisa_capc.evidence.figures.style import PAGE_INCHES, Picture, canvas
from pisa_capc.model.encoders import encoder_title

TITLES = {PAPER: "U-CAPC as published", SAFE: "safe preset"}
LARGEST = 0.3  # change that has the deepest colour


def column_title(deployment: Deployment) -> str:
    """What a deployment is like, in a few words.

    >>> column_title(Deployment("missing", frames=512, missing=0.3)), column_title(Deployment("balanced"))
    ('30 % of devices missing', 'as received')
    """
    named = (
        (deployment.dirichlet, "skewed, Dirichlet {:g}"),
        (100 * (deployment.missing or 0), "{:.0f} % of devices missing"),
        (100 * deployment.unknown, "{:.0f} % unknown devices"),
        (deployment.devices, "devices in a capture: {}"),
        (not deployment.identifiers, "captures not named"),
        (deployment.frozen, "fitted on half, applied"),
        (deployment.frames, "{} frames, balanced"),
    )
    return next((words.format(value) for value, words in named if value), "as received")


def deployment_changes(found: Deployed, path: Path) -> Picture:
    """Change of Macro-F1 against direct inference, mean over runs: encoders by row, deployments by column.

    A panel each for U-CAPC as published and under the guard, or for the first two calibrations where there are others.
    """
    shown = [stage for stage in (PAPER, SAFE) if stage in found.stages] or found.stages[1:3]
    # What is scored on the second half without being frozen is there to be compared with what is.
    columns = [d for d in found.deployments if d.scored == "all" or d.frozen]
    columns = [d for d in columns if all(found.mean(d, stage) is not None for stage in shown)]
    encoders = list(found.records)
    with canvas(path, PAGE_INCHES, 1.7 + 0.3 * len(encoders)) as figure:
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        for axes, stage in zip(panels, shown, strict=True):
            gains = np.array([[found.gain(d, stage, encoder) for d in columns] for encoder in encoders])
            image = axes.imshow(gains, cmap="PuOr_r", vmin=-LARGEST, vmax=LARGEST, aspect="auto")
            for (i, j), value in np.ndenumerate(gains):
                ink = "white" if abs(value) > 2 / 3 * LARGEST else "black"
                axes.text(j, i, f"{value:+.2f}".replace("0.", "."), ha="center", va="center", fontsize=5, color=ink)
            axes.set_xticks(
                range(len(columns)), [column_title(d) for d in columns], rotation=60, ha="right", fontsize=6
            )
            axes.set_yticks(range(len(encoders)), [encoder_title(e) for e in encoders], fontsize=6)
            axes.set_title(TITLES.get(stage, stage))
        figure.colorbar(image, ax=panels, label="change of Macro-F1", extend="both", aspect=30, pad=0.01)
        figure.suptitle(f"{found.place[0]}: change of Macro-F1 against direct inference")
    what = f"{stage_name(found.method, DIRECT, found.variant)}, {', '.join(found.place)}"
    change = "Change of Macro-F1 against direct inference by encoder and deployment"
    columns_are = "Columns are kinds of captures: as received, and drawn from these as their names say"
    return Picture(path, f"{what}. {change}, mean over runs ({found.runs} in all). {columns_are}.")
