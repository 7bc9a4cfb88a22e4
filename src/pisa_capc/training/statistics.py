"""Measuring what a calibration may know of the source: statistics of its embeddings, kept with the model."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from pisa_capc.inference.devices import frames_at_a_time
from pisa_capc.inference.statistics import SourceStatistics, openset_statistics
from pisa_capc.training.bank import Bank, even_pieces


@torch.no_grad()
def source_statistics(
    model: nn.Module, bank: Bank, train: NDArray[np.int64], validation: NDArray[np.int64]
) -> SourceStatistics:
    """Statistics of one trained run.

    mean (D,) of the training embeddings; weight (C, D) and bias (C,) of the classifier; confusion (C, C), counts of
    validation frames decided as [row] that are of class [column]; temperature (), which divides the logits so that the
    validation frames are most likely (Guo et al., 2017); and those of `openset_statistics`.
    """
    weight, bias = model.classifier.weight[0], model.classifier.bias[0]  # type: ignore[union-attr,index]
    classes = len(bias)
    embedding, _ = _forward(model, bank, train)
    held_out, logits = _forward(model, bank, validation)
    label = bank.label.cpu()
    truth = label[validation]
    pair = logits.argmax(1) * classes + truth
    where = np.stack([bank.frames.environment, bank.frames.capture], axis=1)
    cfo_hz = bank.frames.cfo_hz
    carriers = () if cfo_hz is None else (cfo_hz[train].mean(axis=1), cfo_hz[validation].mean(axis=1))
    found = {
        "weight": weight.detach().float().cpu().clone(),
        "bias": bias.detach().float().cpu().clone(),
        "mean": embedding.double().mean(0).float(),
        "confusion": torch.bincount(pair, minlength=classes**2).view(classes, classes).float(),
        "temperature": torch.tensor(_temperature(logits.double(), truth), dtype=torch.float32),
        **openset_statistics(
            embedding, label[train], held_out, logits, truth, where[train], where[validation], *carriers
        ),
    }
    return SourceStatistics.from_arrays(found, prefix="")


def _forward(model: nn.Module, bank: Bank, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    model.eval()
    embedding, logits = [], []
    batch = frames_at_a_time(bank.device, bank.frames.samples)
    pieces = even_pieces(rows[None], batch)[:, 0]  # of one size: a GPU would need other kernels for each
    with closing(bank.stream(pieces)) as batches:
        for piece, iq in zip(pieces, batches, strict=True):
            output = model(iq, None if bank.descriptor is None else bank.descriptor[piece])
            embedding.append(output.embedding.float().cpu())
            logits.append(output.logits.float().cpu())
    return torch.cat(embedding)[: len(rows)], torch.cat(logits)[: len(rows)]


def _temperature(logits: Tensor, label: Tensor) -> float:
    def loss(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits / float(np.exp(log_temperature)), label))

    return float(np.exp(minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x))
