"""The seven encoders as loops in float64, from their parameters: (N, T, 2) → (N, T', 32)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]


class Weights:
    """The parameters of one run by name, below a prefix."""

    def __init__(self, state: Mapping[str, torch.Tensor], prefix: str = "", run: int = 0) -> None:
        self.state, self.prefix, self.run = state, prefix, run

    def __getitem__(self, name: str) -> Array:
        values: Array = self.state[self.prefix + name][self.run].detach().double().numpy()
        return values

    def below(self, name: str) -> Weights:
        return Weights(self.state, f"{self.prefix}{name}.", self.run)


def linear(x: Array, w: Weights) -> Array:
    return w["weight"] @ x + w["bias"]


def layer_norm(x: Array, w: Weights) -> Array:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * w["weight"] + w["bias"]


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max())
    return e / e.sum()


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def convolve(x: Array, weight: Array, bias: Array, dilation: int = 1) -> Array:
    """y[n, t] = b + Σ_i w[:, :, i] x[n, t + (i − k//2)·dilation], with zeros outside the frame."""
    taps = weight.shape[2]
    y = np.zeros((*x.shape[:2], len(bias)), dtype=np.result_type(x, weight))
    for n in range(len(x)):
        for t in range(x.shape[1]):
            y[n, t] = bias
            for i in range(taps):
                u = t + (i - taps // 2) * dilation
                if 0 <= u < x.shape[1]:
                    y[n, t] += weight[:, :, i] @ x[n, u]
    return y


def batch_norm(x: Array, w: Weights, training: bool) -> Array:
    mean, var = (x.mean((0, 1)), x.var((0, 1))) if training else (w["running_mean"], w["running_var"])
    return (x - mean) / np.sqrt(var + 1e-5) * w["weight"] + w["bias"]


def conv_norm(x: Array, w: Weights, training: bool, dilation: int = 1) -> Array:
    return batch_norm(convolve(x, w["weight"], w["bias"], dilation), w.below("norm"), training)


def residual(x: Array, w: Weights, training: bool, dilation: int = 1) -> Array:
    inner = relu(conv_norm(x, w.below("first"), training, dilation))
    return relu(x + conv_norm(inner, w.below("second"), training, dilation))


def cnn(x: Array, w: Weights, training: bool) -> Array:
    for name in ("blocks.0", "blocks.1", "last"):
        x = relu(conv_norm(x, w.below(name), training))
    return x


def mscnn(x: Array, w: Weights, training: bool) -> Array:
    for name in ("blocks.0", "blocks.1", "last"):
        block = w.below(name)
        branches = [convolve(x, block[f"weights.{j}"], block[f"biases.{j}"]) for j in range(3)]
        x = relu(batch_norm(np.concatenate(branches, axis=2), block.below("norm"), training))
    return x


def resnet(x: Array, w: Weights, training: bool) -> Array:
    x = relu(conv_norm(x, w.below("blocks.0"), training))
    for name in ("blocks.1", "last"):
        x = residual(x, w.below(name), training)
    return x


def tcn(x: Array, w: Weights, training: bool) -> Array:
    x = relu(conv_norm(x, w.below("blocks.0"), training))
    for name, dilation in (("blocks.1", 1), ("blocks.2", 2), ("last", 4)):
        x = residual(x, w.below(name), training, dilation)
    return x


def cvcnn(x: Array, w: Weights, training: bool) -> Array:
    for name in ("blocks.0", "blocks.1", "last"):
        block, half = w.below(name), x.shape[2] // 2
        kernel = block["weight_real"] + 1j * block["weight_imag"]
        # Each real convolution is used twice, with its bias: on the real part and on the imaginary part.
        bias = block["bias_real"] * (1 + 1j) + 1j * block["bias_imag"] * (1 + 1j)
        y = convolve(x[..., :half] + 1j * x[..., half:], kernel, bias)
        x = relu(batch_norm(np.concatenate([y.real, y.imag], axis=2), block.below("norm"), training))
    return x


def cldnn(x: Array, w: Weights, training: bool) -> Array:
    for i in range(2):
        x = relu(conv_norm(x, w.below(f"blocks.{i}"), training))
    return gru(x, w.below("blocks.2"))


def gru(x: Array, w: Weights) -> Array:
    names = ("weight_input", "weight_hidden", "bias_input", "bias_hidden")
    size = w["weight_hidden"].shape[2]
    y = np.zeros((*x.shape[:2], 2 * size))
    for n in range(len(x)):
        for direction in range(2):
            w_in, w_h, b_in, b_h = (w[name][direction] for name in names)
            h = np.zeros(size)
            steps = range(x.shape[1])
            for t in steps if direction == 0 else reversed(steps):
                i, g = w_in @ x[n, t] + b_in, w_h @ h + b_h
                reset = sigmoid(i[:size] + g[:size])
                update = sigmoid(i[size : 2 * size] + g[size : 2 * size])
                new = np.tanh(i[2 * size :] + reset * g[2 * size :])
                h = (1 - update) * new + update * h
                y[n, t, direction * size : (direction + 1) * size] = h
    return y


def transformer(x: Array, w: Weights, training: bool) -> Array:
    """Without dropout."""
    count = x.shape[1] // 8
    table = w["position"]
    out = np.zeros((len(x), count, 32))
    for n in range(len(x)):
        tokens = []
        for p in range(count):
            patch = x[n, 8 * p : 8 * p + 8].reshape(-1)  # sample by sample, I before Q
            where = p if count <= len(table) else p * (len(table) - 1) / (count - 1)
            low = min(int(where), len(table) - 2)
            position = table[low] + (where - low) * (table[low + 1] - table[low])
            tokens.append(linear(patch, w.below("patch")) + position)
        for i in range(2):
            tokens = transformer_layer(tokens, w.below(f"layers.{i}"))
        for p in range(count):
            out[n, p] = layer_norm(tokens[p], w.below("norm"))
    return out


def transformer_layer(x: list[Array], w: Weights) -> list[Array]:
    projected = np.array([linear(token, w.below("qkv")) for token in x])
    query, key, value = projected[:, :32], projected[:, 32:64], projected[:, 64:]
    out = []
    for i in range(len(x)):
        heads = []
        for h in range(4):
            mine = slice(8 * h, 8 * h + 8)
            heads.append(softmax(key[:, mine] @ query[i, mine] / np.sqrt(8)) @ value[:, mine])
        y = layer_norm(x[i] + linear(np.concatenate(heads), w.below("out")), w.below("norm_attention"))
        hidden = relu(linear(y, w.below("up")))
        out.append(layer_norm(y + linear(hidden, w.below("down")), w.below("norm_feed_forward")))
    return out


ENCODERS: dict[str, Callable[[Array, Weights, bool], Array]] = {
    "cnn": cnn,
    "mscnn": mscnn,
    "resnet": resnet,
    "tcn": tcn,
    "cvcnn": cvcnn,
    "cldnn": cldnn,
    "transformer": transformer,
}
