"""U-CAPC in plain float64 loops, frame by frame and class by class: what the fast code must equal."""

from __future__ import annotations

import math

import numpy as np

TIE = 1e-12


def softmax(row: np.ndarray) -> np.ndarray:
    weights = np.array([math.exp(value - max(row)) for value in row])
    return weights / weights.sum()


def log_sum_exp(values: list[float]) -> float:
    largest = max(values)
    return largest + math.log(sum(math.exp(value - largest) for value in values))


def sinkhorn(scores: np.ndarray, iterations: int, epsilon: float) -> np.ndarray:
    """B(S) on logarithms: start at the softmax, then columns to n/C and rows to one, `iterations` times."""
    frames, classes = scores.shape
    log_plan = scores / epsilon
    for i in range(frames):
        log_plan[i] -= log_sum_exp(list(log_plan[i]))
    for _ in range(iterations):
        for k in range(classes):
            log_plan[:, k] += math.log(frames / classes) - log_sum_exp(list(log_plan[:, k]))
        for i in range(frames):
            log_plan[i] -= log_sum_exp(list(log_plan[i]))
    return np.exp(log_plan)


def prototype(weights: np.ndarray, embedding: np.ndarray, top: int, threshold: float) -> np.ndarray:
    """p_k from the assignments (n,) of one class. Frames tied for the last places share them equally."""
    kept = [i for i in range(len(weights)) if weights[i] >= threshold]
    total = np.zeros(embedding.shape[1])
    if len(kept) <= top:
        for i in kept:
            total += weights[i] * embedding[i]
    else:
        last = sorted((weights[i] for i in kept), reverse=True)[top - 1]
        above = [i for i in kept if weights[i] > last * (1 + TIE)]
        tied = [i for i in kept if last * (1 - TIE) <= weights[i] <= last * (1 + TIE)]
        for i in above:
            total += weights[i] * embedding[i]
        for i in tied:
            total += (top - len(above)) / len(tied) * weights[i] * embedding[i]
    length = math.sqrt(sum(value * value for value in total))
    return total / length if length > 0 else total


def calibrate_group(
    embedding: np.ndarray,
    logits: np.ndarray,
    threshold: float = 0.0,
    top: int = 512,
    temperature: float = 0.2,
    fusion: float = 2.0,
    passes: int = 3,
    balance: float = 1.0,
    sinkhorn_iterations: int = 20,
    epsilon: float = 1.0,
    prior: str = "balanced",
) -> tuple[np.ndarray, np.ndarray]:
    """Probability and score (n, C) of one capture group, the paper's Algorithm line by line."""
    embedding, logits = embedding.astype(np.float64), logits.astype(np.float64)
    frames, classes = logits.shape
    balance = balance if prior == "balanced" else 0.0
    unit = np.zeros_like(embedding)
    for i in range(frames):
        length = math.sqrt(sum(value * value for value in embedding[i]))
        unit[i] = embedding[i] / length if length > 0 else 0.0
    score = logits.copy()
    for _ in range(passes):
        assigned = np.array([softmax(row) for row in score])
        if balance > 0:
            assigned = (1 - balance) * assigned + balance * sinkhorn(score, sinkhorn_iterations, epsilon)
        prototypes = [prototype(assigned[:, k], unit, top, threshold) for k in range(classes)]
        for i in range(frames):
            for k in range(classes):
                score[i, k] = logits[i, k] + fusion * float(unit[i] @ prototypes[k]) / temperature
    if prior == "balanced":
        return sinkhorn(score, sinkhorn_iterations, epsilon), score
    return np.array([softmax(row) for row in score]), score


def calibrate(
    embedding: np.ndarray, logits: np.ndarray, capture: np.ndarray, **parameters: float | int | str
) -> tuple[np.ndarray, np.ndarray]:
    """Probability and score (N, C) with every capture on its own."""
    probability, score = np.zeros(logits.shape), np.zeros(logits.shape)
    for key in sorted(set(capture.tolist())):
        rows = np.flatnonzero(capture == key)
        probability[rows], score[rows] = calibrate_group(embedding[rows], logits[rows], **parameters)  # type: ignore[arg-type]
    return probability, score
