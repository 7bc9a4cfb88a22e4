"""The row of a new device is the one that its definition asks for."""

from __future__ import annotations

import numpy as np
import torch

from pisa_capc.decide.enrolment.row import FLOOR, STRENGTH, within_ridge
from pisa_capc.model.inference import SourceStatistics

CLASSES, FEATURES = 3, 5


def source() -> SourceStatistics:
    rng = np.random.default_rng(0)
    spread = rng.normal(size=(FEATURES, FEATURES))
    return SourceStatistics(
        weight=rng.normal(size=(CLASSES, FEATURES)),
        bias=rng.normal(size=CLASSES),
        bank=rng.normal(size=(40, FEATURES)) + 2,
        covariance=spread @ spread.T,
    )


def test_it_minimises_the_cross_entropy_over_all_devices_with_the_other_rows_as_they_are() -> None:
    known, own = source(), np.random.default_rng(1).normal(size=(12, FEATURES)) - 1
    w, b = within_ridge(known, own)
    weight, bias, bank, covariance = (
        torch.from_numpy(a) for a in (known.weight, known.bias, known.bank, known.covariance)
    )
    row, level = torch.tensor(w, requires_grad=True), torch.tensor(b, requires_grad=True)
    head, levels = torch.cat([weight, row[None]]), torch.cat([bias, level[None]])
    log_p = [torch.log_softmax(z @ head.T + levels, dim=1) for z in (torch.from_numpy(own), bank)]
    others = torch.logsumexp(log_p[1][:, :CLASSES], dim=1)  # whoever of them it was
    share = 1 / (CLASSES + 1)
    off = row - weight.mean(0)
    metric = covariance + FLOOR * torch.eye(FEATURES) * covariance.trace() / FEATURES
    loss = -share * log_p[0][:, CLASSES].mean() - (1 - share) * others.mean() + STRENGTH / 2 * off @ metric @ off
    loss.backward()
    assert row.grad is not None
    assert level.grad is not None
    assert float(row.grad.abs().max()) < 1e-4
    assert float(level.grad.abs()) < 1e-4


def test_directions_in_which_frames_of_a_device_differ_are_hardly_used() -> None:
    rng = np.random.default_rng(2)
    known = source()
    variance = np.array([100.0, 1.0, 1.0, 1.0, 1.0])
    noisy = SourceStatistics(weight=known.weight, bias=known.bias, bank=known.bank, covariance=np.diag(variance))
    own = known.bank[:20] + np.array([3.0, 3.0, 0, 0, 0]) + 0.1 * rng.normal(size=(20, FEATURES))
    w, _ = within_ridge(noisy, own, strength=1.0)
    used = np.abs(w - known.weight.mean(axis=0))
    assert used[0] < used[1] / 10
