"""Reads `config.json`; what would change the computation and is not built is refused by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aspira.contracts.errors import InvalidArgument, Unimplemented
from aspira.llm.decoders.config import DecoderConfig, Rotary
from aspira.llm.decoders.families import family_of_architecture
from aspira.llm.weights.bounded_files import read_json

CONFIG_FILE = "config.json"

_DEFAULT_THETA = 10000.0


def read_config(path: Path) -> DecoderConfig:
    """The decoder of a Hugging Face directory's `config.json`.

    Raises:
        ServingError: the file cannot be read, or describes a decoder that is not served.
    """
    fields = _Fields(read_json(path), path=path)
    architectures = fields.get("architectures") or ["none"]
    family = family_of_architecture(str(architectures[0]))
    _refuse_what_is_not_built(fields, family=family.name)
    hidden_size, num_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    max_context = fields.integer("max_position_embeddings")
    return DecoderConfig(
        family=family.name,
        num_layers=fields.integer("num_hidden_layers"),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=fields.integer("num_key_value_heads", default=num_heads),
        head_size=fields.integer("head_dim", default=hidden_size // max(num_heads, 1)),
        vocab_size=fields.integer("vocab_size"),
        max_context=max_context,
        norm_epsilon=fields.number("rms_norm_eps", default=1e-6),
        rotary=_read_rotary(fields, max_context=max_context),
        has_tied_head=bool(fields.get("tie_word_embeddings", default=False)),
    )


class _Fields:
    """A JSON object, with errors that name the file and the field."""

    def __init__(self, fields: Mapping[str, Any], *, path: Path) -> None:
        self._fields = fields
        self.path = path

    def get(self, name: str, *, default: Any = None) -> Any:
        value = self._fields.get(name)
        return default if value is None else value

    def integer(self, name: str, *, default: int | None = None) -> int:
        value = self.get(name, default=default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidArgument(f"{self.path}: {name} is {value!r}, not a whole number")
        return value

    def number(self, name: str, *, default: float | None = None) -> float:
        value = self.get(name, default=default)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise InvalidArgument(f"{self.path}: {name} is {value!r}, not a number")
        return float(value)

    def part(self, name: str) -> "_Fields":
        value = self.get(name, default={})
        if not isinstance(value, dict):
            raise InvalidArgument(f"{self.path}: {name} is {value!r}, not an object")
        return _Fields(value, path=self.path)

    def refuse(self, name: str, *, unless: bool) -> None:
        if not unless:
            raise Unimplemented(
                f"{self.path}: {name} = {self.get(name)!r} is not served; "
                "serve this model as an OpenVINO IR"
            )


def _refuse_what_is_not_built(fields: _Fields, *, family: str) -> None:
    fields.refuse("hidden_act", unless=fields.get("hidden_act", default="silu") == "silu")
    fields.refuse("mlp_bias", unless=not fields.get("mlp_bias"))
    # Qwen2 has its biases whatever the field says, and no file of it says otherwise.
    fields.refuse("attention_bias", unless=family == "qwen2" or not fields.get("attention_bias"))
    fields.refuse("quantization_config", unless=not fields.get("quantization_config"))
    partial = fields.get("partial_rotary_factor", default=1.0)
    fields.refuse("partial_rotary_factor", unless=partial == 1.0)
    _refuse_sliding_window(fields, family=family)


def _refuse_sliding_window(fields: _Fields, *, family: str) -> None:
    window = fields.get("sliding_window")
    is_used = bool(fields.get("use_sliding_window", default=not family.startswith("qwen")))
    reaches = window is None or window >= fields.integer("max_position_embeddings")
    fields.refuse("sliding_window", unless=reaches or not is_used)


def _read_rotary(fields: _Fields, *, max_context: int) -> Rotary:
    # Since version 5 transformers writes one object where it wrote two fields.
    scaling = fields.part("rope_parameters" if fields.get("rope_parameters") else "rope_scaling")
    theta = scaling.number(
        "rope_theta", default=fields.number("rope_theta", default=_DEFAULT_THETA)
    )
    kind = scaling.get("rope_type", default=scaling.get("type", default="default"))
    match kind:
        case "default":
            return Rotary(theta=theta)
        case "linear":
            return Rotary(theta=theta, kind="linear", factor=scaling.number("factor"))
        case "llama3":
            return Rotary(
                theta=theta,
                kind="llama3",
                factor=scaling.number("factor"),
                low_frequency_factor=scaling.number("low_freq_factor"),
                high_frequency_factor=scaling.number("high_freq_factor"),
                original_context=scaling.integer(
                    "original_max_position_embeddings", default=max_context
                ),
            )
    raise Unimplemented(
        f"{fields.path}: rope scaling {kind!r} is not served (default, linear and llama3 are); "
        "remove it to serve the model with its first context length"
    )
