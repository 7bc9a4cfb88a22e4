"""Measuring what a calibration may know of the source: statistics of its embeddings, kept with the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from pisa_capc.model.inference.devices import frames_at_a_time
from pisa_capc.model.inference.statistics import SourceStatistics, openset_statistics
from pisa_capc.model.training.bank import Bank, even_pieces

SUMMARISED = 2  # runs at a time: one takes a CPU longer than its frames take a GPU


@torch.no_grad()
def source_statistics(
    models: Iterable[nn.Module],
    bank: Bank,
    train: Sequence[NDArray[np.int64]],
    validation: Sequence[NDArray[np.int64]],
) -> list[SourceStatistics]:
    """Statistics of each trained run, from the rows of its training and validation frames in the bank.

    mean (D,) of the training embeddings; weight (C, D) and bias (C,) of the classifier; confusion (C, C), counts of
    validation frames decided as [row] that are of class [column]; temperature (), which divides the logits so that the
    validation frames are most likely (Guo et al., 2017); and those of `openset_statistics`.
    """
    label = bank.label.cpu()
    where = np.stack([bank.frames.environment, bank.frames.capture], axis=1)
    cfo_hz = bank.frames.cfo_hz
    facts = (label, where) if cfo_hz is None else (label, where, cfo_hz.mean(axis=1))  # by row
    with ThreadPoolExecutor(SUMMARISED) as pool:  # while a GPU embeds the frames of the next run
        found = []
        for model, own, held_out in zip(models, train, validation, strict=True):
            embedding, _ = _forward(model, bank, own)
            scores = _forward(model, bank, held_out)
            known: list[Any] = [each[rows] for each in facts for rows in (own, held_out)]
            found.append(pool.submit(_summary, model.classifier, embedding, *scores, *known))
        return [one.result() for one in found]


@torch.no_grad()
def compile_statistics(model: nn.Module, bank: Bank, *parts: NDArray[np.int64]) -> None:
    """Embed one piece of the frames of each part, for the kernels that `source_statistics` will need of a GPU."""
    model.eval()
    for rows in parts:
        for iq, descriptor in _inputs(bank, _pieces(bank, rows)[:1]):
            model(iq, descriptor)


@torch.no_grad()
def _summary(
    classifier: Any,
    embedding: Tensor,
    held_out: Tensor,
    logits: Tensor,
    label: Tensor,
    truth: Tensor,
    *where_and_carrier: NDArray[Any],
) -> SourceStatistics:
    """Those of one run, from training and validation frames in turn."""
    weight, bias = (part[0].detach().float().cpu().clone() for part in (classifier.weight, classifier.bias))
    classes = len(bias)
    pair = logits.argmax(1) * classes + truth
    found = {
        "weight": weight,
        "bias": bias,
        "mean": embedding.double().mean(0).float(),
        "confusion": torch.bincount(pair, minlength=classes**2).view(classes, classes).float(),
        "temperature": torch.tensor(_temperature(logits.double(), truth), dtype=torch.float32),
        **openset_statistics(embedding, label, held_out, logits, truth, *where_and_carrier),
    }
    return SourceStatistics.from_arrays(found, prefix="")


def _forward(model: nn.Module, bank: Bank, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    model.eval()
    embedding, logits = [], []
    for iq, descriptor in _inputs(bank, _pieces(bank, rows)):
        output = model(iq, descriptor)
        embedding.append(output.embedding.float().cpu())
        logits.append(output.logits.float().cpu())
    return torch.cat(embedding)[: len(rows)], torch.cat(logits)[: len(rows)]


def _pieces(bank: Bank, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows (N,) in pieces of one size: a GPU would need other kernels for each."""
    return even_pieces(rows[None], frames_at_a_time(bank.device, bank.frames.samples))[:, 0]


def _inputs(bank: Bank, pieces: NDArray[np.int64]) -> Iterator[tuple[Tensor, Tensor | None]]:
    """I/Q and descriptors of each piece."""
    with closing(bank.stream(pieces)) as batches:
        for piece, iq in zip(pieces, batches, strict=True):
            yield iq, None if bank.descriptor is None else bank.descriptor[piece]


def _temperature(logits: Tensor, label: Tensor) -> float:
    def loss(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits / float(np.exp(log_temperature)), label))

    return float(np.exp(minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x))
