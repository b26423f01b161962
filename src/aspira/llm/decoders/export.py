"""Writes a decoder as an OpenVINO IR, and what the rounding of its weights did to it."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from aspira.contracts.errors import AlreadyExists, InvalidArgument, Unimplemented
from aspira.llm.decoders.compression import (
    INTEGERS,
    WeightPrecision,
    check_compression,
    compress,
)
from aspira.llm.decoders.config_file import describe_config
from aspira.llm.model_files import CONFIG_FILE, IR_FILE, ModelFiles, ModelKind, find_model_files
from aspira.llm.quality import Quality, compare, read_model
from aspira.llm.text_files import write_text_files
from aspira.llm.weights.bounded_files import read_bytes
from aspira.llm.weights.model_weights import open_weights

QUALITY_FILE = "aspira_quality.json"

_MAX_TEXT_BYTES = 1 << 20
_SAMPLE_TEXT = Path(__file__).with_name("sample_text.txt")

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ExportOrder:
    """What to write, and how to tell of it."""

    destination: Path
    """A version directory, which is yet to be."""

    weights: WeightPrecision
    text: Path = _SAMPLE_TEXT
    """What quality is measured on."""


def export_openvino(source: Path, *, order: ExportOrder, report: Report) -> Quality:
    """Write the language model in the version directory `source` as an OpenVINO IR.

    It appears all at once, so that a server that watches sees no half of it. Takes a minute or so
    for each billion weights, and memory for them in float32. `report` is told what goes on.

    Raises:
        ServingError: `source` is no decoder, something is not installed, or the destination exists.
    """
    files = find_model_files(source)
    if files is None or files.kind not in _MODEL_MAKERS:
        raise InvalidArgument(
            f"{source} holds no GGUF file, Hugging Face directory or OpenVINO IR of a decoder"
        )
    if order.destination.exists():
        raise AlreadyExists(f"{order.destination} is there already; name a new version directory")
    check_compression(order.weights)
    text = read_bytes(order.text, max_bytes=_MAX_TEXT_BYTES).decode("utf-8", "replace")
    order.destination.parent.mkdir(parents=True, exist_ok=True)
    # Not a number, so no version either.
    parent = order.destination.parent
    with tempfile.TemporaryDirectory(prefix=".export-", dir=parent) as scratch:
        written = Path(scratch) / order.destination.name
        written.mkdir()
        _write_model(files, directory=written, weights=order.weights, report=report)
        exported = ModelFiles(written, ModelKind.OPENVINO_IR, written / IR_FILE)
        report("Measuring the model as it was ...")
        before = read_model(files, text=text)
        report("Measuring the model as it is now ...")
        quality = compare(before, after=read_model(exported, text=text))
        _write_quality(quality, files=files, exported=exported, order=order)
        written.rename(order.destination)
    return quality


def describe(quality: Quality) -> str:
    """The quality in a line."""
    return (
        f"On {quality.num_tokens} tokens: perplexity {quality.perplexity_before:.3f} before, "
        f"{quality.perplexity_after:.3f} now ({_change(quality):+.2%}); the most likely token is "
        f"the same in {quality.agreement:.1%} of places"
    )


def _write_model(
    files: ModelFiles, *, directory: Path, weights: WeightPrecision, report: Report
) -> None:
    try:
        import openvino as ov
    except ImportError as error:
        raise Unimplemented(
            "Exporting needs the package openvino: pip install 'aspira[llm]'"
        ) from error
    report("Building the graph ...")
    model, config = _MODEL_MAKERS[files.kind](files)
    if weights in INTEGERS:
        report(f"Rounding weights to {weights} ...")
        model = compress(model, weights=weights)
    report("Writing ...")
    ov.save_model(model, directory / IR_FILE, compress_to_fp16=weights != "f32")
    write_text_files(files, directory=directory)
    if not (directory / CONFIG_FILE).exists():
        (directory / CONFIG_FILE).write_bytes(orjson.dumps(config, option=orjson.OPT_INDENT_2))


def _build(files: ModelFiles) -> tuple[Any, Mapping[str, Any]]:
    from aspira.llm.decoders.stateful import build_stateful

    config, weights = open_weights(files)
    # Rounding begins with what the file has, whatever the CPU computes in.
    model = build_stateful(config, weights=weights, weight_format="f32")
    return model, describe_config(config, files=files)


def _read_ir(files: ModelFiles) -> tuple[Any, Mapping[str, Any]]:
    import openvino as ov

    return ov.Core().read_model(files.weights), {}


_MODEL_MAKERS: Mapping[ModelKind, Callable[[ModelFiles], tuple[Any, Mapping[str, Any]]]] = (
    MappingProxyType(
        {
            ModelKind.GGUF: _build,
            ModelKind.HUGGING_FACE: _build,
            ModelKind.OPENVINO_IR: _read_ir,
        }
    )
)


def _write_quality(
    quality: Quality, *, files: ModelFiles, exported: ModelFiles, order: ExportOrder
) -> None:
    import openvino as ov

    told = {
        "source": files.kind.value,
        "weights": order.weights,
        "text": order.text.name,
        **quality._asdict(),
        "perplexity_change": _change(quality),
        "source_bytes": _count_bytes(files),
        "exported_bytes": _count_bytes(exported),
        "openvino": ov.get_version(),
    }
    path = exported.directory / QUALITY_FILE
    path.write_bytes(orjson.dumps(told, option=orjson.OPT_INDENT_2))


def _change(quality: Quality) -> float:
    return quality.perplexity_after / quality.perplexity_before - 1


def _count_bytes(files: ModelFiles) -> int:
    if files.kind is ModelKind.HUGGING_FACE:
        paths = list(files.directory.glob("*.safetensors"))
    elif files.kind is ModelKind.OPENVINO_IR:
        paths = [files.weights, files.weights.with_suffix(".bin")]
    else:
        paths = [files.weights]
    return sum(path.stat().st_size for path in paths)
