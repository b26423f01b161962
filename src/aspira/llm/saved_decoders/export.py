"""Writes a decoder as a SavedModel, with the files that make it a language model beside it."""

import tempfile
from pathlib import Path

from aspira.contracts.errors import AlreadyExists, InvalidArgument
from aspira.llm.decoders.config import DecoderConfig
from aspira.llm.model_files import ModelKind, find_model_files
from aspira.llm.saved_decoders.description import (
    EXTRA_ASSETS,
    DecoderDescription,
    Precision,
    write_description,
)
from aspira.llm.text_files import write_text_files
from aspira.llm.weights.model_weights import ModelWeights, open_weights


def export_saved_model(source: Path, *, destination: Path, precision: Precision) -> None:
    """Write the language model in the version directory `source` as another version directory.

    It appears all at once, so that a server that watches sees no half of it. Takes seconds, and
    memory for the weights twice.

    Raises:
        ServingError: `source` is no language model that has weights, or `destination` exists.
    """
    files = find_model_files(source)
    if files is None or files.kind not in (ModelKind.GGUF, ModelKind.HUGGING_FACE):
        raise InvalidArgument(
            f"{source} holds no GGUF file, and no Hugging Face directory of a decoder"
        )
    if destination.exists():
        raise AlreadyExists(f"{destination} is there already; name a new version directory")
    model = open_weights(files)
    destination.parent.mkdir(parents=True, exist_ok=True)
    # Not a number, so no version either.
    with tempfile.TemporaryDirectory(prefix=".export-", dir=destination.parent) as scratch:
        written = Path(scratch) / destination.name
        _write_graph(model, directory=written, precision=precision)
        (written / EXTRA_ASSETS).mkdir()
        write_text_files(files, directory=written / EXTRA_ASSETS)
        write_description(_describe(model, precision=precision), directory=written)
        written.rename(destination)


def _write_graph(model: ModelWeights, *, directory: Path, precision: Precision) -> None:
    import tensorflow as tf

    from aspira.llm.saved_decoders.decoder import Decoder
    from aspira.llm.saved_decoders.functions import make_signatures

    dtype = {"f32": tf.float32, "bf16": tf.bfloat16}[precision]
    decoder = Decoder(model.config, weights=model.weights, dtype=dtype)
    signatures = make_signatures(decoder, config=model.config)
    tf.saved_model.save(decoder.variables, str(directory), signatures=signatures)


def _describe(model: ModelWeights, *, precision: Precision) -> DecoderDescription:
    config: DecoderConfig = model.config
    return DecoderDescription(
        model.weights.digest,
        precision,
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_size=config.head_size,
        vocab_size=config.vocab_size,
        max_context=config.max_context,
    )
