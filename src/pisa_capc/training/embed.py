"""A frozen model on frames: embeddings and logits, the input of the calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pisa_capc.descriptors import cfo_descriptors
from pisa_capc.frames import UnlabelledFrames
from pisa_capc.store.files import atomic
from pisa_capc.training.bank import model_input
from pisa_capc.training.checkpoint import TrainedModel

BATCH = 512


@dataclass(frozen=True)
class Embedding:
    """z and ℓ⁰ of each frame, and what may be known of it without its label.

    embedding (N, D) as the classifier saw it, logits (N, C), capture (N,) grouping key, environment (N,) name,
    frame (N,) index in its recording, source: statistics of the source that some calibration methods use.
    """

    embedding: NDArray[np.float32]
    logits: NDArray[np.float32]
    capture: NDArray[np.str_]
    environment: NDArray[np.str_]
    frame: NDArray[np.int64]
    source: dict[str, NDArray[np.float32]]

    def save(self, path: str | Path) -> None:
        """Write an .npz that `pisa calibrate` reads; the file is whole or not there."""
        arrays: dict[str, Any] = {k: v for k, v in vars(self).items() if k != "source"}
        arrays |= {f"source_{k}": v for k, v in self.source.items()}
        with atomic(Path(path)) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)


@torch.no_grad()
def embed(
    trained: TrainedModel,
    frames: UnlabelledFrames,
    device: str | torch.device = "cpu",
    batch: int = BATCH,
    after_batch: Callable[[int], None] = lambda frames: None,
) -> Embedding:
    """Embeddings and logits of frames under a frozen model, read batch by batch.

    >>> from pisa_capc import Frames
    >>> from pisa_capc.protocol import split
    >>> from pisa_capc.training import Run, TrainingConfig, embed, fit
    >>> frames = Frames.from_arrays(
    ...     np.random.default_rng(0).normal(size=(24, 4, 64)), device=["D1", "D2"] * 12,
    ...     environment=np.repeat(["E1", "E2"], 12))
    >>> run = Run(split(frames, "E2", "E1", seed=2026), split_seed=2026, seed=2026)
    >>> short = TrainingConfig(epochs=1, batch=16)
    >>> [trained] = fit([run], encoder="cnn", training=short, device="cpu", show=False)  # or load_model("run")
    >>> scores = embed(trained, run.split.target)
    >>> scores.embedding.shape, scores.logits.shape
    ((10, 64), (10, 2))
    """
    trained.check_frames(frames)
    frames = frames.segment(trained.about["samples"])
    device = torch.device(device)
    model = trained.model.to(device).eval()
    descriptor = cfo_descriptors(frames)
    weight: torch.Tensor = model.classifier.weight  # type: ignore[union-attr,assignment]
    embedding = np.empty((len(frames), weight.shape[2]), dtype=np.float32)
    logits = np.empty((len(frames), weight.shape[1]), dtype=np.float32)
    start = 0
    for part in frames.batches(batch):
        iq = torch.from_numpy(model_input(part)).to(device)
        here = slice(start, start + len(part))
        output = model(iq, None if descriptor is None else torch.from_numpy(descriptor[here]).to(device))
        embedding[here] = output.embedding.float().cpu().numpy()
        logits[here] = output.logits.float().cpu().numpy()
        start += len(part)
        after_batch(len(part))
    return Embedding(
        embedding,
        logits,
        frames.capture_key,
        np.array(frames.environments)[frames.environment],
        frames.frame,
        {k: v.cpu().numpy() for k, v in trained.source.items()},
    )
