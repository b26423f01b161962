"""Reads a decoder's numbers from the metadata of a GGUF file."""

from typing import Any

from aspira.contracts.errors import InvalidArgument, Unimplemented
from aspira.llm.decoders.config import DecoderConfig, Rotary
from aspira.llm.decoders.families import family_of_gguf
from aspira.llm.weights.gguf_file import GgufFile

_DEFAULT_THETA = 10000.0


def read_config(file: GgufFile) -> DecoderConfig:
    """The decoder of a GGUF file.

    Raises:
        ServingError: the metadata lack something, or describe a decoder that is not served.
    """
    fields = _Fields(file)
    family = family_of_gguf(fields.architecture)
    hidden_size, num_heads = fields.get("embedding_length"), fields.get("attention.head_count")
    head_size = fields.get("attention.key_length", default=hidden_size // max(num_heads, 1))
    _refuse_what_is_not_built(fields, head_size=head_size)
    return DecoderConfig(
        family=family.name,
        num_layers=fields.get("block_count"),
        hidden_size=hidden_size,
        intermediate_size=fields.get("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=fields.get("attention.head_count_kv", default=num_heads),
        head_size=head_size,
        vocab_size=_vocab_size(file),
        max_context=fields.get("context_length"),
        norm_epsilon=fields.get("attention.layer_norm_rms_epsilon"),
        rotary=_read_rotary(fields),
        has_tied_head="output.weight" not in file.tensors,
    )


class _Fields:
    """The metadata of one architecture, with errors that name the file and the field."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self.architecture = str(file.metadata.get("general.architecture"))

    def get(self, name: str, *, default: Any = None) -> Any:
        value = self._file.metadata.get(f"{self.architecture}.{name}", default)
        if value is None:
            raise InvalidArgument(f"{self._file.path} lacks {self.architecture}.{name}")
        if isinstance(value, list):
            raise Unimplemented(
                f"{self._file.path}: {self.architecture}.{name} differs by layer, which is not "
                "served; serve this model as an OpenVINO IR"
            )
        return value

    def refuse(self, name: str, *, unless: Any) -> None:
        value = self.get(name, default=unless)
        if value != unless:
            raise Unimplemented(
                f"{self._file.path}: {self.architecture}.{name} = {value!r} is not served; "
                "serve this model as an OpenVINO IR"
            )


def _refuse_what_is_not_built(fields: _Fields, *, head_size: int) -> None:
    fields.refuse("expert_count", unless=0)
    fields.refuse("attention.sliding_window", unless=0)
    fields.refuse("rope.dimension_count", unless=head_size)
    fields.refuse("attention.value_length", unless=head_size)


def _vocab_size(file: GgufFile) -> int:
    if "token_embd.weight" not in file.tensors:
        raise InvalidArgument(f"{file.path} lacks the tensor token_embd.weight")
    return file.tensors["token_embd.weight"].shape[0]


def _read_rotary(fields: _Fields) -> Rotary:
    theta = fields.get("rope.freq_base", default=_DEFAULT_THETA)
    kind = fields.get("rope.scaling.type", default="none")
    if kind == "none":
        return Rotary(theta=theta)
    if kind == "linear":
        return Rotary(theta=theta, kind="linear", factor=fields.get("rope.scaling.factor"))
    raise Unimplemented(f"Rope scaling {kind!r} of a GGUF file is not served (none and linear are)")
