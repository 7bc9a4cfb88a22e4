"""The forward passes of PISA and Single as loops in float64, equation by equation, from a state dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from pisa_capc.data.geometry import ArrayGeometry
from pisa_capc.model.networks import PisaConfig
from tests.reference.encoders import ENCODERS, Array, Weights, layer_norm, linear, relu, sigmoid, softmax


def pisa_forward(
    state: Mapping[str, torch.Tensor],
    iq: Array,
    descriptor: Array | None = None,
    mask: Array | None = None,
    *,
    encoder: str,
    geometry: ArrayGeometry,
    config: PisaConfig,
    training: bool = False,
) -> dict[str, Array]:
    """iq (N, A, T, 2), descriptor (N, 4), mask (N, A); training: batch statistics, no dropout."""
    w = Weights(state)
    frames, antennas = iq.shape[:2]
    mask = np.ones((frames, antennas), dtype=bool) if mask is None else mask
    iq = iq * mask[:, :, None, None]
    features = ENCODERS[encoder](iq.reshape(-1, *iq.shape[2:]), w.below("identity_encoder"), training)
    features = features.reshape(frames, antennas, *features.shape[1:])
    view = np.array([iq[n][mask[n]].mean(0) for n in range(frames)])
    context = ENCODERS[encoder](view, w.below("context_encoder"), training)
    found: dict[str, list[Any]] = {}
    for n in range(frames):
        one = head(w, features[n], context[n], None if descriptor is None else descriptor[n], mask[n], geometry, config)
        for name, value in one.items():
            found.setdefault(name, []).append(value)
    return {name: np.array(values) for name, values in found.items()}


def head(
    w: Weights,
    features: Array,
    context: Array,
    descriptor: Array | None,
    mask: Array,
    geometry: ArrayGeometry,
    config: PisaConfig,
) -> dict[str, Any]:
    """One frame: features (A, L, d), context (L, d)."""
    tokens = [pool(features[a], config.tokens) for a in range(len(features))]
    delta_alpha, rho_t, rho_p = modulation(descriptor, w.below("modulator"), config)
    prior = topology_prior(geometry, config.tokens, config.tau_s, rho_t * config.tau_t, mask)
    propagated, attention = propagate(tokens, prior, rho_p * config.beta, mask, w.below("topology"), config)
    average = [np.mean([propagated[a][k] for a in np.flatnonzero(mask)], axis=0) for k in range(config.tokens)]
    summary, gamma = refine(average, w.below("refinement"), config.eta)
    z_id = project(summary, w.below("project_identity"))
    s = project(context.mean(0), w.below("project_context"))
    gate = w.below("gate")
    phi = sigmoid(linear(relu(linear(np.concatenate([z_id, s]), gate.below("first"))), gate.below("second")))[0]
    alpha = config.alpha_min + (config.alpha_max - config.alpha_min) * phi
    alpha = min(max(alpha + delta_alpha, config.alpha_min), config.alpha_max)
    z = z_id - alpha * np.tanh(s)
    return {
        "embedding": z,
        "logits": linear(z, w.below("classifier")),
        "graph_loss": graph_loss(attention, prior),
        "attention": attention,
        "prior": prior,
        "token_weights": gamma,
        "alpha": alpha,
        "modulation": (delta_alpha, rho_t, rho_p),
    }


def pool(features: Array, tokens: int) -> list[Array]:
    """Adaptive average pooling of (L, d): bin k is from ⌊kL/K⌋ to ⌈(k+1)L/K⌉."""
    length = len(features)
    return [features[k * length // tokens : -((k + 1) * length // -tokens)].mean(0) for k in range(tokens)]


def modulation(descriptor: Array | None, w: Weights, config: PisaConfig) -> tuple[float, float, float]:
    if descriptor is None:
        return 0.0, 1.0, 1.0
    hidden = relu(linear(relu(linear(descriptor, w.below("first"))), w.below("second")))
    a, t, p = np.tanh(linear(hidden, w.below("last")))
    return config.delta_alpha_max * a, np.exp(t), np.exp(p)


def topology_prior(geometry: ArrayGeometry, tokens: int, tau_s: float, tau_t: float, mask: Array) -> Array:
    """P (J, J) with rows normalised over the available nodes; zero where the other node is absent."""
    antennas = geometry.antennas
    prior = np.zeros((antennas, tokens, antennas, tokens))
    for a in range(antennas):
        for k in range(tokens):
            for b in range(antennas):
                for c in range(tokens):
                    distance = np.linalg.norm(geometry.positions[a] - geometry.positions[b])
                    if mask[b]:
                        prior[a, k, b, c] = np.exp(-distance / tau_s) * np.exp(-abs(k - c) / tau_t)
            prior[a, k] /= prior[a, k].sum()
    return prior.reshape(antennas * tokens, antennas * tokens)


def propagate(
    tokens: list[list[Array]], prior: Array, beta: float, mask: Array, w: Weights, config: PisaConfig
) -> tuple[list[list[Array]], Array]:
    """u = x + scale · out(A V), and the attention averaged over heads; absent rows of it are zero."""
    antennas, count = len(tokens), config.tokens
    nodes = [tokens[a][k] for a in range(antennas) for k in range(count)]
    present = [bool(mask[i // count]) for i in range(len(nodes))]
    normed = [layer_norm(x, w.below("norm")) for x in nodes]
    query, key, value = (np.array([linear(x, w.below(name)) for x in normed]) for name in ("query", "key", "value"))
    width = len(nodes[0]) // config.heads
    attention = np.zeros((len(nodes), len(nodes)))
    updated = []
    for i, x in enumerate(nodes):
        mixed = []
        for h in range(config.heads):
            mine = slice(h * width, (h + 1) * width)
            scores = np.full(len(nodes), -np.inf)
            for j in range(len(nodes)):
                if present[j]:
                    scores[j] = query[i, mine] @ key[j, mine] / np.sqrt(width) + beta * np.log(prior[i, j])
            weights = softmax(scores)
            mixed.append(weights @ value[:, mine])
            if present[i]:
                attention[i] += weights / config.heads
        updated.append(x + config.graph_scale * linear(np.concatenate(mixed), w.below("out")))
    return [updated[a * count : (a + 1) * count] for a in range(antennas)], attention


def graph_loss(attention: Array, prior: Array) -> float:
    """1/|Ω| Σ A log(A/P) over the pairs of available nodes: those with attention."""
    total, pairs = 0.0, 0
    for i, j in np.argwhere(attention > 0):
        total += attention[i, j] * np.log(attention[i, j] / prior[i, j])
        pairs += 1
    return total / pairs


def refine(tokens: list[Array], w: Weights, eta: float) -> tuple[Array, Array]:
    scores = [linear(layer_norm(u, w.below("norm")), w.below("score"))[0] for u in tokens]
    gamma = softmax(np.array(scores))
    uniform = np.mean(tokens, axis=0)
    weighted = sum(g * u for g, u in zip(gamma, tokens, strict=True))
    return uniform + eta * (weighted - uniform), gamma


def project(x: Array, w: Weights) -> Array:
    return linear(relu(linear(x, w.below("first"))), w.below("second"))


def single_forward(state: Mapping[str, torch.Tensor], iq: Array, mask: Array, *, encoder: str) -> dict[str, Array]:
    """Antennas as channels, in-phase parts first; encoder, mean over time, head, classifier."""
    w = Weights(state)
    iq = iq * mask[:, :, None, None]
    channels = np.concatenate([iq[..., 0], iq[..., 1]], axis=1).transpose(0, 2, 1)
    features = ENCODERS[encoder](channels, w.below("encoder"), False)
    embedding = np.array([project(f.mean(0), w.below("project")) for f in features])
    return {"embedding": embedding, "logits": np.array([linear(z, w.below("classifier")) for z in embedding])}
