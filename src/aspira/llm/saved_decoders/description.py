"""What a SavedModel says of the decoder in it, in a file that TensorFlow does not read."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import orjson

from aspira.contracts.errors import DataLoss, FailedPrecondition
from aspira.llm.weights.bounded_files import read_json

EXTRA_ASSETS = "assets.extra"
"""TensorFlow's directory for what is of no concern to the graph."""

DESCRIPTION_FILE = "aspira_decoder.json"
FORMAT = 2
"""Counts changes to the signatures. Earlier ones are not served: exporting again is quick."""

Precision = Literal["f32", "bf16"]


@dataclass(frozen=True, slots=True)
class DecoderDescription:
    """One field, one entry of the file."""

    digest: str
    """Of the weights that were exported."""

    precision: Precision
    """What matrices, keys and values are kept and multiplied in."""

    num_layers: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    max_context: int
    format: int = FORMAT


def description_path(directory: Path) -> Path:
    """Where a version directory has it."""
    return directory / EXTRA_ASSETS / DESCRIPTION_FILE


def write_description(description: DecoderDescription, *, directory: Path) -> None:
    """Into the extra assets of a version directory, which is there."""
    text = orjson.dumps(asdict(description), option=orjson.OPT_INDENT_2)
    description_path(directory).write_bytes(text + b"\n")


def read_description(directory: Path) -> DecoderDescription:
    """That of a version directory.

    Raises:
        ServingError: it cannot be read, or is of another version of Aspira.
    """
    path = description_path(directory)
    entries = read_json(path)
    if entries.get("format") != FORMAT:
        raise FailedPrecondition(
            f"{path} has the format {entries.get('format')}, and this version of Aspira serves "
            f"{FORMAT}; export the model again (aspira export --to=savedmodel)"
        )
    known = {field.name: field.type for field in fields(DecoderDescription)}
    for name, kind in known.items():
        if not _fits(entries.get(name), kind=kind):
            raise DataLoss(f"{path}: {name} is {entries.get(name)!r}; export the model again")
    return DecoderDescription(**{name: entries[name] for name in known})


def _fits(value: object, *, kind: Any) -> bool:
    if kind is int:
        return type(value) is int and value > 0
    return isinstance(value, str) and (kind is str or value in kind.__args__)
