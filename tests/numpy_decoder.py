"""A decoder in NumPy, written from its papers, that the ones in a framework are checked against.

One whole sequence at once, no cache. Weights are named as in `aspira.llm.weights.source`.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from aspira.llm.decoders.config import DecoderConfig

Floats = npt.NDArray[np.float64]


def logits_of(
    tokens: npt.NDArray[np.int64], *, config: DecoderConfig, weights: Mapping[str, Floats]
) -> Floats:
    """[tokens, vocabulary]"""
    hidden = weights["embedding.weight"][tokens]
    for index in range(config.num_layers):
        layer = {
            name.removeprefix(f"layers.{index}."): value
            for name, value in weights.items()
            if name.startswith(f"layers.{index}.")
        }
        normed = norm(hidden, layer["attention_norm.weight"], config.norm_epsilon)
        hidden = hidden + attention(normed, config, layer) @ layer["attention_output.weight"].T
        normed = norm(hidden, layer["mlp_norm.weight"], config.norm_epsilon)
        gate = normed @ layer["gate.weight"].T
        gated = gate / (1 + np.exp(-gate)) * (normed @ layer["up.weight"].T)
        hidden = hidden + gated @ layer["down.weight"].T
    head = weights["embedding.weight" if config.has_tied_head else "head.weight"]
    return norm(hidden, weights["final_norm.weight"], config.norm_epsilon) @ head.T


def norm(hidden: Floats, weight: Floats, epsilon: float) -> Floats:
    return hidden / np.sqrt(np.mean(hidden**2, axis=-1, keepdims=True) + epsilon) * weight


def attention(hidden: Floats, config: DecoderConfig, layer: Mapping[str, Floats]) -> Floats:
    num_tokens = len(hidden)
    query, key, value = (
        (hidden @ layer[f"{part}.weight"].T + layer.get(f"{part}.bias", 0)).reshape(
            num_tokens, -1, config.head_size
        )
        for part in ("query", "key", "value")
    )
    if "query_norm.weight" in layer:
        query = norm(query, layer["query_norm.weight"], config.norm_epsilon)
        key = norm(key, layer["key_norm.weight"], config.norm_epsilon)
    query, key = rotated(query, config), rotated(key, config)
    group = config.num_heads // config.num_kv_heads
    key, value = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
    scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(config.head_size)
    scores[:, ~np.tri(num_tokens, dtype=bool)] = -np.inf
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", shares, value).reshape(num_tokens, -1)


def rotated(heads: Floats, config: DecoderConfig) -> Floats:
    """Each pair as a complex number, turned by its angle."""
    half = config.head_size // 2
    turns = np.outer(np.arange(len(heads)), frequencies(config))[:, None, :]
    pairs = (heads[..., :half] + 1j * heads[..., half:]) * np.exp(1j * turns)
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


def frequencies(config: DecoderConfig) -> Floats:
    rotary, half = config.rotary, config.head_size // 2
    plain = np.array([rotary.theta ** (-pair / half) for pair in range(half)])
    if rotary.kind == "default":
        return plain
    if rotary.kind == "linear":
        return plain / rotary.factor
    return np.array([llama3_frequency(each, config) for each in plain])


def llama3_frequency(frequency: float, config: DecoderConfig) -> float:
    rotary = config.rotary
    wavelength = 2 * np.pi / frequency
    if wavelength < rotary.original_context / rotary.high_frequency_factor:
        return frequency
    if wavelength > rotary.original_context / rotary.low_frequency_factor:
        return frequency / rotary.factor
    smooth = (rotary.original_context / wavelength - rotary.low_frequency_factor) / (
        rotary.high_frequency_factor - rotary.low_frequency_factor
    )
    return (1 - smooth) * frequency / rotary.factor + smooth * frequency
