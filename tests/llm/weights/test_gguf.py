"""A tiny model as a GGUF file, by llama.cpp's Python writer, against the same as safetensors."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, quants

from aspira.contracts.errors import InvalidArgument, ServingError, Unimplemented
from aspira.llm.decoder_loading import load_runner
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.model_files import find_model_files
from aspira.llm.weights import gguf_config
from aspira.llm.weights.gguf_file import GgufFile
from aspira.llm.weights.model_weights import ModelWeights, open_weights
from language_models import Chunk, run, tiny_weights, write_hugging_face

F32 = GGMLQuantizationType.F32
NAMES = {
    "embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
    "q_norm": "attn_q_norm", "k_norm": "attn_k_norm", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
}  # fmt: skip
METADATA: dict[str, Any] = {
    "block_count": 2,
    "context_length": 256,
    "embedding_length": 32,
    "feed_forward_length": 48,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 16,
    "attention.value_length": 16,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 500.0,
}


def gguf_name(name: str) -> str:
    stem, _, ending = name.rpartition(".")
    layer = f"blk.{stem.split('.')[2]}." if "layers" in stem else ""
    part = next(gguf for own, gguf in NAMES.items() if stem.endswith(own))
    return f"{layer}{part}.{ending}"


def interleaved(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """As llama.cpp's converter permutes the queries and keys of Llama."""
    pairs = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def write_gguf(
    path: Path,
    *,
    architecture: str,
    weights: dict[str, Any],
    quantization: GGMLQuantizationType = F32,
    **metadata: Any,
) -> None:
    writer = GGUFWriter(path, architecture)
    for key, value in {**METADATA, **metadata}.items():
        adders = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        adder = writer.add_array if isinstance(value, list) else adders[type(value)]
        adder(f"{architecture}.{key}", value)
    for name, weight in weights.items():
        heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
        turned = interleaved(weight, heads) if heads and architecture == "llama" else weight
        kind = quantization if weight.ndim > 1 and weight.shape[1] % 32 == 0 else F32
        packed = quants.quantize(np.ascontiguousarray(turned), kind)
        writer.add_tensor(gguf_name(name), packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def opened(directory: Path) -> ModelWeights:
    files = find_model_files(directory)
    assert files is not None
    return open_weights(files)


@pytest.mark.parametrize(
    ("architecture", "class_name", "has_bias", "has_head_norms"),
    [
        ("llama", "LlamaForCausalLM", False, False),
        ("qwen2", "Qwen2ForCausalLM", True, False),
        ("qwen3", "Qwen3ForCausalLM", False, True),
    ],
)
def test_a_gguf_file_is_the_model_it_was_made_of(
    tmp_path: Path, *, architecture: str, class_name: str, has_bias: bool, has_head_norms: bool
) -> None:
    weights = tiny_weights(has_head=True, has_bias=has_bias, has_head_norms=has_head_norms)
    write_hugging_face(tmp_path / "hf", architecture=class_name, weights=weights, rope_theta=500.0)
    (tmp_path / "gguf").mkdir()
    write_gguf(tmp_path / "gguf" / "m.gguf", architecture=architecture, weights=weights)
    ours, theirs = opened(tmp_path / "gguf"), opened(tmp_path / "hf")
    epsilon = ours.config.norm_epsilon
    assert epsilon == pytest.approx(1e-5)
    assert ours.config == type(theirs.config)(
        **{
            **{f: getattr(theirs.config, f) for f in theirs.config.__slots__},
            "norm_epsilon": epsilon,
        }
    )
    names = ["embedding.weight", "head.weight", "final_norm.weight"] + [
        f"layers.1.{part}.{end}"
        for part in ("query", "key", "value", "query_norm", "gate", "down", "attention_output")
        for end in ("weight", "bias")
    ]
    for name in names:
        assert (name in ours.weights) == (name in theirs.weights)
        if name in ours.weights:
            np.testing.assert_array_equal(ours.weights.read(name), theirs.weights.read(name))


def logits_of(directory: Path, *, weight_format: Any) -> Any:
    files = find_model_files(directory)
    assert files is not None
    options = DecoderOptions(precision="f32", cache_mib=4, weight_format=weight_format)
    runner = load_runner(files, options=options)
    return run(runner, Chunk([3, 1, 4, 1, 5, 9, 2, 6], past=0, blocks=[1]), rows=range(8))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "F16"])
def test_what_a_file_stores_can_be_kept(tmp_path: Path, kind: str) -> None:
    weights = tiny_weights(has_head=True, has_bias=False, has_head_norms=False)
    quantization = GGMLQuantizationType[kind]
    write_gguf(
        tmp_path / "m.gguf", architecture="llama", weights=weights, quantization=quantization
    )
    stored = opened(tmp_path).weights.read_packed("layers.1.query.weight")
    assert (stored.num_bits if stored else None) == {"Q8_0": 8, "Q4_0": 4}.get(kind)
    if stored:
        exact = (stored.values * stored.scales.astype(np.float32)).reshape(64, 32)
        np.testing.assert_array_equal(exact, opened(tmp_path).weights.read("layers.1.query.weight"))
    kept, exact = (logits_of(tmp_path, weight_format=each) for each in ("stored", "f32"))
    assert 0 < np.abs(kept - exact).mean() < 0.03 * np.abs(exact).mean()


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "Q4_0", "F16", "BF16"])
def test_quantized_tensors_are_dequantized(tmp_path: Path, kind: str) -> None:
    quantization = GGMLQuantizationType[kind]
    weight = np.random.default_rng(1).normal(0, 1, (6, 64)).astype(np.float32)
    packed = quants.quantize(weight, quantization)
    writer = GGUFWriter(tmp_path / "m.gguf", "qwen2")
    for key, value in METADATA.items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(
            f"qwen2.{key}", value
        )
    writer.add_tensor("token_embd.weight", packed, raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = opened(tmp_path)
    assert (model.config.vocab_size, model.config.has_tied_head) == (6, True)
    read = model.weights.read("embedding.weight")
    np.testing.assert_array_equal(
        read.astype(np.float32), quants.dequantize(packed, quantization).reshape(6, 64)
    )
    assert np.abs(read.astype(np.float32) - weight).max() < 0.5


@pytest.mark.parametrize(
    ("architecture", "metadata", "error", "said"),
    [
        ("gemma3", {}, Unimplemented, "architecture 'gemma3' are not served"),
        ("llama", {"expert_count": 8}, Unimplemented, "expert_count = 8"),
        ("llama", {"rope.dimension_count": 8}, Unimplemented, "rope.dimension_count = 8"),
        ("llama", {"rope.scaling.type": "yarn"}, Unimplemented, "Rope scaling 'yarn'"),
        ("llama", {"feed_forward_length": [48, 96]}, Unimplemented, "differs by layer"),
        ("llama", {"attention.sliding_window": 64}, Unimplemented, "sliding_window = 64"),
    ],
)
def test_decoders_that_are_not_built(
    tmp_path: Path, architecture: str, metadata: Any, error: type[ServingError], said: str
) -> None:
    weights = {"model.embed_tokens.weight": np.zeros((61, 32), np.float32)}
    path = tmp_path / "m.gguf"
    write_gguf(path, architecture=architecture, weights=weights, **metadata)
    with pytest.raises(error, match=said):
        gguf_config.read_config(GgufFile(path))


def test_a_lacking_field_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("llama.embedding_length", 32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(InvalidArgument, match=r"lacks llama\.attention\.head_count"):
        gguf_config.read_config(GgufFile(path))
