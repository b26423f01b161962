"""Says in a `config.json` what a decoder looks like, for files that came without one."""

from collections.abc import Mapping
from typing import Any

from aspira.llm.decoders.config import DecoderConfig
from aspira.llm.decoders.families import family_named
from aspira.llm.model_files import ModelFiles
from aspira.llm.special_tokens import read_special_tokens


def describe_config(config: DecoderConfig, *, files: ModelFiles) -> Mapping[str, Any]:
    """A `config.json` for a file that came without: what tools ask of it beside the graph."""
    stops = sorted(read_special_tokens(files).stop_ids)
    return {
        "architectures": [family_named(config.family).architectures[0]],
        "model_type": config.family,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_size,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_context,
        "rms_norm_eps": config.norm_epsilon,
        "rope_theta": config.rotary.theta,
        "tie_word_embeddings": config.has_tied_head,
        "eos_token_id": stops,
    }
