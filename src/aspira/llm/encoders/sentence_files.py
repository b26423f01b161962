"""Reads what sentence-transformers writes beside a model: how tokens become one vector.

    1/config.json model.safetensors tokenizer.json     the encoder
    1/modules.json 1_Pooling/config.json               its parts, and the pooling of its tokens
    1/sentence_bert_config.json                        the longest text it was trained for

Without `modules.json` the mean over tokens is taken, as sentence-transformers itself does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import orjson

from aspira.contracts.errors import DataLoss, InvalidArgument, Unimplemented
from aspira.llm.weights.bounded_files import read_bytes, read_json

MODULES_FILE = "modules.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"

PoolingKind = Literal["cls", "mean", "max"]

_LENGTH_FILES = tuple(
    f"sentence_{name}_config.json" for name in ("bert", "roberta", "xlm-roberta", "camembert")
)
_PROMPTS_FILE = "config_sentence_transformers.json"
_POOLINGS: Mapping[str, PoolingKind] = MappingProxyType(
    {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}
)
_MAX_MODULES = 16


@dataclass(frozen=True, slots=True)
class SentenceRules:
    """How one text becomes one vector."""

    pooling: PoolingKind = "mean"
    is_normalized: bool = False
    """Vectors have length 1."""

    max_tokens: int | None = None
    """The longest text, special tokens included, if a file says so."""

    is_lowercased: bool = False
    prompt: str = ""
    """What every text begins with."""

    dimensions: tuple[int, ...] = ()
    """The lengths that a vector may be cut to. The model was trained for these."""

    has_any_dimension: bool = False
    """A vector may be cut to any length."""


def read_sentence_rules(directory: Path) -> SentenceRules:
    """The rules of a version directory.

    Raises:
        ServingError: a file cannot be read, or asks for a part that is not served.
    """
    kinds = _read_modules(directory)
    lengths = [_read_if_there(directory / name) for name in _LENGTH_FILES]
    lengths.append(_read_if_there(directory / TOKENIZER_CONFIG_FILE))
    config = read_json(directory / "config.json")
    return SentenceRules(
        pooling=_read_pooling(directory / kinds["Pooling"]) if "Pooling" in kinds else "mean",
        is_normalized="Normalize" in kinds,
        max_tokens=next((n for fields in lengths if (n := _max_tokens(fields))), None),
        is_lowercased=any(fields.get("do_lower_case") is True for fields in lengths[:-1]),
        prompt=_read_prompt(directory / _PROMPTS_FILE),
        dimensions=_read_dimensions(config),
        has_any_dimension=config.get("is_matryoshka") is True,
    )


def _read_modules(directory: Path) -> dict[str, str]:
    """The folder of each part, by the part's kind."""
    path = directory / MODULES_FILE
    if not path.is_file():
        return {}
    try:
        modules = orjson.loads(read_bytes(path))
        found = {str(one["type"]).rpartition(".")[2]: str(one["path"]) for one in modules}
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise DataLoss(f"{path} does not list the parts of a sentence encoder") from error
    for kind, folder in found.items():
        if kind not in {"Transformer", "Pooling", "Normalize"}:
            raise Unimplemented(
                f"{path}: a part of type {kind} is not served; Transformer, Pooling and Normalize "
                "are. Export the whole model as ONNX or OpenVINO IR with the output "
                "sentence_embedding"
            )
        if Path(folder).name != folder and folder:
            raise InvalidArgument(f"{path}: {folder!r} is not the name of a folder beside it")
    if len(modules) > _MAX_MODULES or len(found) < len(modules):
        raise Unimplemented(f"{path}: several parts of one type are not served")
    return found


def _read_pooling(folder: Path) -> PoolingKind:
    path = folder / "config.json"
    fields = read_json(path)
    prefix = "pooling_mode_"
    on = [name.removeprefix(prefix) for name in fields if fields[name] is True and prefix in name]
    named = fields.get("pooling_mode")
    kinds = [named] if isinstance(named, str) else [_POOLINGS.get(name, name) for name in on]
    if len(kinds) != 1 or kinds[0] not in _POOLINGS.values():
        raise Unimplemented(
            f"{path}: pooling {' and '.join(map(str, kinds)) or 'none'} is not served; "
            f"{', '.join(_POOLINGS.values())} are, one at a time"
        )
    if fields.get("include_prompt") is False:
        raise Unimplemented(f"{path}: include_prompt = false is not served; send prompts as text")
    pooling: PoolingKind = kinds[0]  # type: ignore[assignment]
    return pooling


def _read_if_there(path: Path) -> Mapping[str, Any]:
    return read_json(path) if path.is_file() else {}


def _max_tokens(fields: Mapping[str, Any]) -> int | None:
    """Tokenizers without a limit write an astronomical one."""
    value = fields.get("max_seq_length", fields.get("model_max_length"))
    return value if type(value) is int and 0 < value < 2**31 else None


def _read_prompt(path: Path) -> str:
    fields = _read_if_there(path)
    name = fields.get("default_prompt_name")
    if name is None:
        return ""
    prompt = (fields.get("prompts") or {}).get(name)
    if not isinstance(prompt, str):
        raise InvalidArgument(f"{path}: prompts has no text for default_prompt_name = {name!r}")
    return prompt


def _read_dimensions(config: Mapping[str, Any]) -> tuple[int, ...]:
    value = config.get("matryoshka_dimensions") or ()
    return tuple(size for size in value if type(size) is int and size > 0)
