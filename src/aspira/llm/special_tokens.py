"""The tokens of a model that mean something to a server: where texts begin and answers end."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aspira.llm.model_files import ModelFiles, ModelKind
from aspira.llm.weights.bounded_files import read_json
from aspira.llm.weights.gguf_file import GgufFile

TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
GENERATION_CONFIG_FILE = "generation_config.json"
_CONFIG_FILE = "config.json"

# Turn ends of chat formats: GGUF files often name the end of a text alone.
_TURN_ENDS = frozenset({"<|im_end|>", "<|eot_id|>", "<|eom_id|>"})
_CONTROL = 3


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """As texts, for the chat template, and as ids, for the engine."""

    bos: str = ""
    eos: str = ""

    stop_ids: frozenset[int] = frozenset()
    """An answer ends before any of these."""


def read_special_tokens(files: ModelFiles) -> SpecialTokens:
    """Those of a language model; what its files do not name is empty.

    Raises:
        ServingError: a file cannot be read.
    """
    if files.kind is ModelKind.GGUF:
        return _from_gguf(GgufFile(files.weights))
    config, tokenizer, generation = (
        _read_if_there(files, name=name)
        for name in (_CONFIG_FILE, TOKENIZER_CONFIG_FILE, GENERATION_CONFIG_FILE)
    )
    # generation_config.json is the later file and the fuller one where both name ends.
    ends = generation.get("eos_token_id", config.get("eos_token_id"))
    return SpecialTokens(
        bos=_text(tokenizer.get("bos_token")),
        eos=_text(tokenizer.get("eos_token")),
        stop_ids=frozenset(_ids(ends)),
    )


def _from_gguf(file: GgufFile) -> SpecialTokens:
    fields = file.metadata
    tokens: list[str] = fields.get("tokenizer.ggml.tokens", [])
    kinds: list[int] = fields.get("tokenizer.ggml.token_type", [])
    named = (fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    turn_ends = (
        index
        for index, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind == _CONTROL and token in _TURN_ENDS
    )
    return SpecialTokens(
        bos=_at(tokens, index=fields.get("tokenizer.ggml.bos_token_id")),
        eos=_at(tokens, index=fields.get("tokenizer.ggml.eos_token_id")),
        stop_ids=frozenset([*_ids(named), *turn_ends]),
    )


def _read_if_there(files: ModelFiles, *, name: str) -> Mapping[str, Any]:
    path = files.find(name)
    return {} if path is None else read_json(path)


def _text(token: object) -> str:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _ids(value: object) -> list[int]:
    values = value if isinstance(value, Iterable) else [value]
    return [item for item in values if isinstance(item, int)]


def _at(tokens: list[str], *, index: int | None) -> str:
    return tokens[index] if index is not None and 0 <= index < len(tokens) else ""
