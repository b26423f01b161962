"""The numbers that say what an encoder of BERT's shape looks like, from its `config.json`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from aspira.contracts.errors import InvalidArgument, Unimplemented
from aspira.llm.weights.bounded_files import read_json

_ACTIVATIONS: Mapping[str, str] = MappingProxyType(
    {"gelu": "erf", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "relu": "relu"}
)
# Those whose positions begin after the padding token's id.
_OFFSET_ARCHITECTURES = frozenset(
    {"RobertaModel", "XLMRobertaModel", "CamembertModel", "MPNetModel"}
)
ARCHITECTURES = frozenset({"BertModel", *_OFFSET_ARCHITECTURES} - {"MPNetModel"})
"""As `config.json` calls those that are built here."""


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """One encoder with learned positions and norms after each part."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_positions: int
    norm_epsilon: float

    activation: str
    """`erf` or `tanh`, which are forms of GELU, or `relu`."""

    first_position: int
    """The row of the position table that a text's first token has."""

    def __post_init__(self) -> None:
        positions = self.num_positions - self.first_position
        sizes = (self.num_layers, self.hidden_size, self.num_heads, positions)
        if min(sizes) < 1 or self.hidden_size % self.num_heads:
            raise InvalidArgument(
                f"An encoder of {self.num_layers} layers, {self.num_heads} heads, hidden size "
                f"{self.hidden_size} and {self.num_positions} positions cannot be; is its "
                "config.json the right one?"
            )


def read_encoder_config(path: Path) -> EncoderConfig:
    """The encoder that a `config.json` describes.

    Raises:
        ServingError: the file cannot be read, or describes an encoder that is not built here.
    """
    fields = read_json(path)
    _refuse_what_is_not_built(fields, path=path)
    epsilon = fields.get("layer_norm_eps", 1e-12)
    if not isinstance(epsilon, float) or not epsilon > 0:
        raise InvalidArgument(f"{path}: layer_norm_eps is {epsilon!r}, not a positive number")
    return EncoderConfig(
        num_layers=_integer(fields, name="num_hidden_layers", path=path),
        hidden_size=_integer(fields, name="hidden_size", path=path),
        num_heads=_integer(fields, name="num_attention_heads", path=path),
        num_positions=_integer(fields, name="max_position_embeddings", path=path),
        norm_epsilon=epsilon,
        activation=_ACTIVATIONS[fields.get("hidden_act", "gelu")],
        first_position=_first_position(fields, path=path),
    )


class Bounds(NamedTuple):
    """What holds for the token ids that an encoder takes, whatever computes it."""

    max_tokens: int
    vocab_size: int


def read_bounds(path: Path) -> Bounds:
    """Those that a `config.json` tells.

    Raises:
        ServingError: the file cannot be read, or does not tell them.
    """
    fields = read_json(path)
    num_positions = _integer(fields, name="max_position_embeddings", path=path)
    return Bounds(
        num_positions - _first_position(fields, path=path),
        _integer(fields, name="vocab_size", path=path),
    )


def name_architecture(fields: Mapping[str, Any]) -> str:
    """What a `config.json` calls the model's class; empty if it does not say."""
    architectures = fields.get("architectures") or ()
    return str(architectures[0]) if isinstance(architectures, list) and architectures else ""


def _first_position(fields: Mapping[str, Any], *, path: Path) -> int:
    if name_architecture(fields) not in _OFFSET_ARCHITECTURES:
        return 0
    return _integer(fields, name="pad_token_id", path=path, default=1) + 1


def _refuse_what_is_not_built(fields: Mapping[str, Any], *, path: Path) -> None:
    for name, served in (
        ("hidden_act", tuple(_ACTIVATIONS)),
        ("position_embedding_type", ("absolute", None)),
        ("is_decoder", (False, None)),
        ("quantization_config", (None,)),
    ):
        if name in fields and fields[name] not in served:
            raise Unimplemented(
                f"{path}: {name} = {fields[name]!r} is not served; export the model as an OpenVINO "
                "IR (optimum-cli export openvino --task feature-extraction)"
            )


def _integer(
    fields: Mapping[str, Any], *, name: str, path: Path, default: int | None = None
) -> int:
    value = fields.get(name, default)
    if type(value) is not int:
        raise InvalidArgument(f"{path}: {name} is {value!r}, not a whole number")
    return value
