"""A tiny decoder of each family with random weights, and its logits by `numpy_decoder`."""

from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from aspira.llm.model_files import ModelFiles, find_model_files
from aspira.llm.weights.model_weights import open_weights
from language_models import Weights, tiny_weights, write_hugging_face
from numpy_decoder import logits_of

TOKENS = np.random.default_rng(3).integers(0, 61, 70)

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CASES = MappingProxyType(
    {
        "llama": ("LlamaForCausalLM", {"rope_theta": 10000.0}, {"has_head": True}),
        "tied head": ("LlamaForCausalLM", {"tie_word_embeddings": True}, {}),
        "stretched": ("LlamaForCausalLM", {"rope_scaling": {"type": "linear", "factor": 4.0}}, {}),
        "llama3": ("LlamaForCausalLM", {"rope_theta": 5e5, "rope_scaling": LLAMA3}, {}),
        "mistral": ("MistralForCausalLM", {"sliding_window": None}, {"has_head": True}),
        "qwen2": ("Qwen2ForCausalLM", {"use_sliding_window": False}, {"has_bias": True}),
        "qwen3": ("Qwen3ForCausalLM", {"rope_theta": 1e6}, {"has_head_norms": True}),
    }
)


def make_weights(**what: bool) -> Weights:
    return tiny_weights(
        has_head=what.get("has_head", False),
        has_bias=what.get("has_bias", False),
        has_head_norms=what.get("has_head_norms", False),
    )


def write_case(directory: Path, name: str) -> tuple[ModelFiles, Weights]:
    architecture, fields, what = CASES[name]
    weights = make_weights(**what)
    config = {"tie_word_embeddings": not what.get("has_head"), **fields}
    write_hugging_face(directory, architecture=architecture, weights=weights, **config)
    files = find_model_files(directory)
    assert files is not None
    return files, weights


def expected_logits(files: ModelFiles) -> Any:
    config, weights = open_weights(files)
    parts = [
        "attention_norm.weight", "mlp_norm.weight", "attention_output.weight", "gate.weight",
        "up.weight", "down.weight", "query_norm.weight", "key_norm.weight",
        *(f"{part}.{end}" for part in ("query", "key", "value") for end in ("weight", "bias")),
    ]  # fmt: skip
    names = ["embedding.weight", "final_norm.weight", "head.weight"] + [
        f"layers.{index}.{part}" for index in range(config.num_layers) for part in parts
    ]
    read = {name: weights.read(name).astype(np.float64) for name in names if name in weights}
    return logits_of(TOKENS, config=config, weights=read)
