"""An encoder as a servable: rows of token ids, or of texts, to one vector each.

Rows come padded by the batcher, which pads with whatever; `num_tokens` says what is text.
"""

import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import openvino as ov

from aspira.contracts.errors import DataLoss, Internal, InvalidArgument, Unimplemented
from aspira.contracts.identity import DEFAULT_SIGNATURE_NAME
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensor, Tensors, data_type_of
from aspira.llm.encoders.config import read_encoder_config
from aspira.llm.encoders.graph import EncoderWeights, build_encoder
from aspira.llm.encoders.lengths import group_by_length
from aspira.llm.encoders.options import EncoderOptions
from aspira.llm.encoders.pooling import pool
from aspira.llm.encoders.sentence_files import SentenceRules
from aspira.llm.encoders.text import EncoderText, TokenIds
from aspira.llm.model_files import CONFIG_FILE, ModelFiles, ModelKind

TOKENS_SIGNATURE = "tokens"
EMBEDDING = "embedding"

_DEVICE = "CPU"
_KNOWN_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids", "position_ids"})
# Each new shape costs OpenVINO some milliseconds once: rows are as long as the next multiple.
_LENGTH_STEP = 16

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]


class EncoderServable:
    """See `Servable`. One run at a time uses all threads; batches are what shares it."""

    def __init__(self, model: ov.Model, *, text: EncoderText, options: EncoderOptions) -> None:
        """The model is one that `pool` returns.

        Raises:
            ServingError: OpenVINO cannot run it, or it has inputs that are not known.
        """
        self._inputs = {port.any_name: port.element_type.to_dtype() for port in model.inputs}
        unknown = self._inputs.keys() - _KNOWN_INPUTS
        if unknown or "input_ids" not in self._inputs:
            raise Unimplemented(
                f"The graph has inputs {sorted(self._inputs)}; those of an encoder are among "
                f"{sorted(_KNOWN_INPUTS)}: export it with --task feature-extraction"
            )
        try:
            compiled = ov.Core().compile_model(model, _DEVICE, _settings(options))
            self._request = compiled.create_infer_request()
        except RuntimeError as error:
            raise Internal(f"OpenVINO cannot compile this encoder: {error}") from error
        size = compiled.output(0).get_partial_shape()[-1]
        self.dimensions = int(size.get_length())
        self._text = text
        self._running = threading.Lock()
        self._signatures = _make_signatures(self.dimensions)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        return self._signatures

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        """See `Servable.run`."""
        for alias, spec in self._signatures[signature_name].inputs.items():
            _check_type(inputs[alias], alias=alias, spec=spec)
        if signature_name == DEFAULT_SIGNATURE_NAME:
            ids, lengths = self._encode(inputs["text"])
        else:
            ids = inputs["input_ids"].astype(np.int32, copy=False)
            lengths = inputs["num_tokens"].astype(np.int32, copy=False)
            self._check(ids, lengths=lengths)
        vectors = self._embed(ids, lengths=lengths)
        return dict.fromkeys(outputs, vectors)

    def warm_up(self) -> None:
        """Run once each with a short text and the longest."""
        for length in (1, self._text.max_tokens):
            ids = np.zeros((1, length), np.int32)
            self._embed(ids, lengths=np.array([length], np.int32))

    def unload(self) -> None:
        del self._request

    def _encode(self, texts: Tensor) -> tuple[Integers, Integers]:
        if texts.ndim != 1:
            raise InvalidArgument(
                f"text has shape {list(texts.shape)}; it must be one row of texts"
            )
        try:
            decoded = [bytes(text).decode() for text in texts.tolist()]
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"text is not UTF-8: {error}") from error
        return pad_rows(self._text.encode(decoded))

    def _check(self, ids: Integers, *, lengths: Integers) -> None:
        # OpenVINO would read outside its memory.
        if ids.ndim != 2 or lengths.shape != ids.shape[:1]:
            raise InvalidArgument(
                f"input_ids has shape {list(ids.shape)} and num_tokens {list(lengths.shape)}; they "
                "must be [texts, tokens] and [texts]"
            )
        if len(lengths) and not 1 <= lengths.min() <= lengths.max() <= ids.shape[1]:
            raise InvalidArgument(f"num_tokens must be 1 to {ids.shape[1]}, the width of input_ids")
        if len(lengths) and lengths.max() > self._text.max_tokens:
            raise InvalidArgument(
                f"num_tokens is {lengths.max()}, and the model's context is "
                f"{self._text.max_tokens} tokens"
            )
        is_text = np.arange(ids.shape[1]) < lengths[:, None]
        if (is_text & ((ids < 0) | (ids >= self._text.vocab_size))).any():
            raise InvalidArgument(f"input_ids must be 0 to {self._text.vocab_size - 1}")

    def _embed(self, ids: Integers, *, lengths: Integers) -> Vectors:
        vectors = np.empty((len(ids), self.dimensions), np.float32)
        with self._running:
            for rows in group_by_length(lengths):
                vectors[rows] = self._infer(ids[rows], lengths=lengths[rows])
        return vectors

    def _infer(self, ids: Integers, *, lengths: Integers) -> Vectors:
        longest = int(lengths.max())
        width = min(-(-longest // _LENGTH_STEP) * _LENGTH_STEP, self._text.max_tokens)
        is_text = np.arange(width) < lengths[:, None]
        tokens = np.zeros((len(ids), width), np.int64)
        tokens[:, :longest] = ids[:, :longest]
        tokens[~is_text] = 0
        values: Mapping[str, Tensor] = {
            "input_ids": tokens,
            "attention_mask": is_text,
            "token_type_ids": np.zeros_like(tokens),
            "position_ids": np.broadcast_to(np.arange(width), tokens.shape),
        }
        feeds = {name: values[name].astype(dtype) for name, dtype in self._inputs.items()}
        try:
            results = self._request.infer(feeds, share_inputs=True, share_outputs=False)
        except RuntimeError as error:
            raise Internal(f"A run of the encoder failed: {error}") from error
        found: Vectors = results[0]
        return found


def load_servable(
    files: ModelFiles, *, text: EncoderText, rules: SentenceRules, options: EncoderOptions
) -> EncoderServable:
    """The encoder of a version directory. Takes seconds, and the memory of its weights.

    Raises:
        ServingError: a file cannot be read, or describes what is not served.
    """
    if files.kind is ModelKind.HUGGING_FACE:
        config = read_encoder_config(files.directory / CONFIG_FILE)
        model = build_encoder(config, weights=EncoderWeights(files.directory))
    else:
        try:
            model = ov.Core().read_model(files.weights)
        except RuntimeError as error:
            raise DataLoss(f"{files.weights} cannot be read by OpenVINO: {error}") from error
    return EncoderServable(pool(model, rules=rules), text=text, options=options)


def pad_rows(texts: Sequence[TokenIds]) -> tuple[Integers, Integers]:
    """Token ids of all texts, [texts, tokens of the longest], and how many each has."""
    lengths = np.array([len(text) for text in texts], np.int32)
    ids = np.zeros((len(texts), max(lengths.tolist(), default=0)), np.int32)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = text
    return ids, lengths


def _settings(options: EncoderOptions) -> dict[str, str | int]:
    return {
        "INFERENCE_PRECISION_HINT": options.precision,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": options.num_threads,
    }


def _make_signatures(dimensions: int) -> Mapping[str, Signature]:
    outputs = {EMBEDDING: TensorSpec(DataType.FLOAT, (None, dimensions), EMBEDDING)}
    text = TensorSpec(DataType.STRING, (None,), "text")
    tokens = {
        "input_ids": TensorSpec(DataType.INT32, (None, None), "input_ids"),
        "num_tokens": TensorSpec(DataType.INT32, (None,), "num_tokens"),
    }
    return MappingProxyType(
        {
            DEFAULT_SIGNATURE_NAME: Signature({"text": text}, outputs),
            TOKENS_SIGNATURE: Signature(tokens, outputs),
        }
    )


def _check_type(tensor: Tensor, *, alias: str, spec: TensorSpec) -> None:
    given = data_type_of(tensor)
    if given is not spec.dtype:
        raise InvalidArgument(
            f"Input {alias} is of type {given.short_name}, expected {spec.dtype.short_name}"
        )
