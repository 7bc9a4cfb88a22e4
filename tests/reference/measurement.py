"""Flaws of one frame by plain least squares in float64: no compression onto few directions, no blocks of frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pisa_capc.signal.measurement import FLAWS
from pisa_capc.signal.waveforms import Waveform

Array = NDArray[Any]


def delayed(x: Array, samples: int, before: int, after: int) -> Array:
    """(samples, taps) a column for each delay l: x[n − l]."""
    columns = np.zeros((samples, before + 1 + after), dtype=complex)
    for n in range(samples):
        for column, delay in enumerate(range(-before, after + 1)):
            if 0 <= n - delay < len(x):
                columns[n, column] = x[n - delay]
    return columns


def flaws_of_frame(y: Array, waveform: Waveform, names: Sequence[str]) -> tuple[Array, Array, Array]:
    """θ̂ (J,), its covariance and the noise (A,) of a frame (A, T) that begins with the waveform."""
    before, after = waveform.taps
    x = waveform.preamble()
    samples = min(y.shape[-1], len(x) - before)
    copies = delayed(x, samples, before, after)
    basis, size, _ = np.linalg.svd(copies, full_matrices=False)
    basis = basis[:, size > 1e-7 * size[0]]
    beyond = np.eye(samples) - basis @ basis.conj().T
    ridge = waveform.ridge * samples * np.diag([10.0 ** abs(delay) for delay in range(-before, after + 1)])
    information, c = np.zeros((len(names), len(names)), dtype=complex), np.zeros(len(names), dtype=complex)
    noises = []
    for received in y[:, :samples]:
        h = np.linalg.solve(copies.conj().T @ copies + ridge, copies.conj().T @ (basis @ (basis.conj().T @ received)))
        shapes = np.stack([beyond @ delayed(FLAWS[name].of(x), samples, before, after) @ h for name in names], axis=1)
        left = beyond @ received
        own = np.linalg.lstsq(shapes, left, rcond=None)[0]
        noise = np.sum(np.abs(left - shapes @ own) ** 2) / (samples - basis.shape[1] - len(names))
        noises.append(noise)
        information += shapes.conj().T @ shapes / noise
        c += shapes.conj().T @ left / noise
    covariance = np.linalg.inv(information)
    return covariance @ c, covariance, np.array(noises)


def flaws_of_data(
    y: Array, sent: Array, waveform: Waveform, flaws: Sequence[str], size: int, blocks: int
) -> tuple[Array, Array]:
    """θ̂ and its covariance of what is behind a preamble, (A, T) samples, block by block and antenna by antenna."""
    before, after = waveform.taps
    first = len(waveform.preamble())
    amplifier = [np.abs(sent) ** power * sent for power in (2, 4, 6)]
    rows = []
    by_chance: Array = np.zeros((len(flaws) + 4, len(flaws) + 4), dtype=complex)
    for block in range(blocks):
        n = first + block * size + np.arange(size)

        def late(x: Array, n: Array = n) -> Array:
            return np.stack([x[n - delay] for delay in range(-before, after + 1)], axis=1)

        x = late(sent)
        ramp = (np.arange(size) / size - 0.5)[:, None]
        shapes = [late(FLAWS[name].of(sent)) for name in flaws] + [late(own) for own in amplifier] + [x * ramp]
        beyond = np.eye(size) - x @ np.linalg.pinv(x)
        shapes = [beyond @ own for own in shapes]
        unit = np.linalg.inv(x.conj().T @ x)
        chance = np.array([[np.trace(unit @ one.conj().T @ other) for other in shapes] for one in shapes])
        heard = [x @ np.linalg.pinv(x) @ antenna[n] for antenna in y]
        left = steady([beyond @ antenna[n] for antenna in y], heard)
        by_chance += len(y) * chance
        channels = [np.linalg.pinv(x) @ antenna[n] for antenna in y]
        rows.append([(np.stack([own @ h for own in shapes], axis=1), r) for h, r in zip(channels, left, strict=True)])
    theta = np.zeros(len(by_chance), dtype=complex)
    freedom = size - before - 1 - after - len(theta) / (blocks * len(y))
    for _ in range(3):
        weights = [[freedom / np.linalg.norm(left - model @ theta) ** 2 for model, left in own] for own in rows]
        pairs = [(w, *one) for each, own in zip(weights, rows, strict=True) for w, one in zip(each, own, strict=True)]
        information = sum(w * model.conj().T @ model for w, model, _ in pairs)
        match = sum(w * model.conj().T @ left for w, model, left in pairs)
        inverse = np.linalg.inv(information - by_chance)
        theta = inverse @ match
    scatter, count = np.zeros_like(by_chance), 0
    for each, own in zip(weights, rows, strict=True):
        for piece in np.array_split(np.arange(size), 16):
            errors = [
                w * m[piece].conj().T @ (r[piece] - m[piece] @ theta) for w, (m, r) in zip(each, own, strict=True)
            ]
            score = np.sum(errors, axis=0)
            scatter, count = scatter + np.outer(score, score.conj()), count + 1
    covariance = inverse @ scatter @ inverse * count / (count - len(theta))
    return theta[: len(flaws)], covariance[: len(flaws), : len(flaws)]


def steady(left: Sequence[Array], heard: Sequence[Array]) -> list[Array]:
    """Residuals of the antennas without a phase of third order that is common to them, by real least squares."""
    t = np.linspace(-1, 1, len(left[0]))
    bends = [t, (3 * t**2 - 1) / 2, (5 * t**3 - 3 * t) / 2]
    shapes = [np.stack([1j * bend * y for bend in bends], axis=1) for y in heard]
    columns = np.concatenate([own / np.linalg.norm(r) for own, r in zip(shapes, left, strict=True)])
    target = np.concatenate([r / np.linalg.norm(r) for r in left])
    both = np.concatenate([columns.real, columns.imag]), np.concatenate([target.real, target.imag])
    phase = np.linalg.lstsq(*both, rcond=None)[0]
    return [r - own @ phase for own, r in zip(shapes, left, strict=True)]
