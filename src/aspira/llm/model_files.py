"""Recognises a language model by what its version directory holds, and reads its options file.

    1/model.gguf                                            a GGUF file, any name
    1/config.json model.safetensors tokenizer.json          a Hugging Face directory
    1/openvino_model.xml openvino_model.bin config.json     an OpenVINO IR of one
    1/saved_model.pb assets.extra/aspira_decoder.json       what `aspira export` writes
    1/aspira_llm.toml                                       options beside any of them, if wanted

A `tokenizer.json` or `chat_template.jinja` beside a GGUF file takes the place of its own.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from aspira.contracts.errors import InvalidArgument, ServingError
from aspira.llm.saved_decoders.description import EXTRA_ASSETS, description_path
from aspira.llm.weights.bounded_files import read_bytes, read_json

OPTIONS_FILE = "aspira_llm.toml"
IR_FILE = "openvino_model.xml"
CONFIG_FILE = "config.json"

_MAX_OPTIONS_BYTES = 64 << 10
# transformers' names of the classes that predict a next token.
_DECODER_ENDINGS = ("ForCausalLM", "LMHeadModel")

Options = TypeVar("Options")


class ModelKind(Enum):
    """What the weights are in."""

    GGUF = "GGUF"
    HUGGING_FACE = "Hugging Face"
    OPENVINO_IR = "OpenVINO IR"
    SAVED_MODEL = "SavedModel of a decoder"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A version directory that holds a language model."""

    directory: Path
    kind: ModelKind

    weights: Path
    """The GGUF file, the IR's XML file, or the directory of safetensors files or a SavedModel."""

    def find(self, name: str) -> Path | None:
        """A file of the directory, or of a SavedModel's extra assets, if it is there."""
        paths = [self.directory / name]
        if self.kind is ModelKind.SAVED_MODEL:
            paths.append(self.directory / EXTRA_ASSETS / name)
        return next(filter(Path.is_file, paths), None)


def find_model_files(directory: Path) -> ModelFiles | None:
    """The language model in a version directory; None where there is something else.

    Raises:
        InvalidArgument: there are several GGUF files, or one of several parts.
    """
    gguf_files = sorted(directory.glob("*.gguf"))
    if gguf_files:
        return ModelFiles(directory, ModelKind.GGUF, _only(gguf_files))
    if description_path(directory).is_file():
        return ModelFiles(directory, ModelKind.SAVED_MODEL, directory)
    if not _is_decoder(directory / CONFIG_FILE):
        return None
    if (directory / IR_FILE).is_file():
        return ModelFiles(directory, ModelKind.OPENVINO_IR, directory / IR_FILE)
    if any(directory.glob("*.safetensors")):
        return ModelFiles(directory, ModelKind.HUGGING_FACE, directory)
    return None


def read_options(files: ModelFiles) -> Mapping[str, Mapping[str, Any]]:
    """The tables of the options file; empty if there is none.

    Raises:
        ServingError: it cannot be read, or is not TOML in tables.
    """
    path = files.find(OPTIONS_FILE)
    if path is None:
        return {}
    try:
        tables = tomllib.loads(read_bytes(path, max_bytes=_MAX_OPTIONS_BYTES).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} is not TOML: {error}") from error
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise InvalidArgument(f"{path}: {name} stands outside a table such as [decoder]")
    return tables


def make_options(kind: type[Options], *, table: Mapping[str, Any], name: str) -> Options:
    """An options dataclass from a table of the file; what is not there keeps its default.

    Raises:
        InvalidArgument: an entry is unknown, or of another type.
    """
    known = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    for key, value in table.items():
        if key not in known:
            raise InvalidArgument(
                f"{OPTIONS_FILE}: [{name}] has no entry {key}; it knows {', '.join(known)}"
            )
        if not _fits(value, wanted=known[key]):
            raise InvalidArgument(
                f"{OPTIONS_FILE}: [{name}] {key} = {value!r} is not {_described(known[key])}"
            )
    return kind(**table)


def _only(gguf_files: list[Path]) -> Path:
    if len(gguf_files) > 1:
        names = ", ".join(path.name for path in gguf_files)
        raise InvalidArgument(
            f"{gguf_files[0].parent} holds {len(gguf_files)} GGUF files ({names}); a version is "
            "one file: merge its parts (llama-gguf-split --merge) or give each a version"
        )
    return gguf_files[0]


def _is_decoder(config: Path) -> bool:
    if not config.is_file():
        return False
    try:
        architectures = read_json(config).get("architectures") or ()
    except ServingError:
        # Some other model's config.json, and not ours to complain about.
        return False
    return any(str(name).endswith(_DECODER_ENDINGS) for name in architectures)


def _fits(value: object, *, wanted: Any) -> bool:
    if get_origin(wanted) is Literal:
        return value in get_args(wanted)
    if wanted is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return type(value) is wanted


def _described(wanted: Any) -> str:
    if get_origin(wanted) is Literal:
        return f"one of {', '.join(map(repr, get_args(wanted)))}"
    return f"of type {wanted.__name__}"
