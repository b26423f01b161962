"""Serves TFLite models through LiteRT: a pool of interpreters, each with one thread.

An interpreter runs one request at a time, so a run borrows one and the next waits for a free one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from aspira.contracts.errors import Internal, InvalidArgument, NotFound, Unimplemented
from aspira.contracts.events import EventBus
from aspira.contracts.identity import DEFAULT_SIGNATURE_NAME
from aspira.contracts.signatures import PREDICT_METHOD, Signature, SignatureTable, TensorSpec
from aspira.contracts.tensors import DataType, Tensor, Tensors, data_type_of
from aspira.runtimes.options import LitertOptions, WarmupOptions
from aspira.runtimes.tflite_model import read_signature_defs
from aspira.runtimes.tflite_parsing import split_parsing
from aspira.runtimes.warmup import replay_warmup
from aspira.wire.signature_def import decode_signature

MODEL_FILE = "model.tflite"

# LiteRT has no types.
Interpreter = Any


class LitertLoader:
    """Loads `model.tflite` of a version directory, warm-up included."""

    def __init__(
        self, path: Path, *, options: LitertOptions, warmup: WarmupOptions, events: EventBus
    ) -> None:
        self._path = path
        self._options = options
        self._warmup = warmup
        self._events = events

    def load(self) -> "LitertServable":
        """Read the file and make the interpreters.

        Raises:
            ServingError: the file cannot be read, or LiteRT cannot run it.
        """
        servable = LitertServable(_read(self._path / MODEL_FILE), pool_size=self._options.pool_size)
        replay_warmup(servable, path=self._path, options=self._warmup, events=self._events)
        return servable


class LitertServable:
    """The interpreters of one model."""

    def __init__(self, model: bytes, *, pool_size: int) -> None:
        signature_defs = read_signature_defs(model)
        model, self._parsers = split_parsing(model)
        self._parsed_inputs = {parser.input_index for parser in self._parsers}
        parsed = {index for parser in self._parsers for index in parser.output_indices}
        interpreters = [_make_interpreter(model) for _ in range(pool_size)]
        inputs = [d for d in interpreters[0].get_input_details() if d["index"] not in parsed]
        self._inputs = _Details(inputs, kind="input")
        self._outputs = _Details(interpreters[0].get_output_details(), kind="output")
        self._signatures = SignatureTable(self._read_signatures(signature_defs))
        self._free: SimpleQueue[Interpreter] = SimpleQueue()
        for interpreter in interpreters:
            self._free.put(interpreter)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        return self._signatures

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        """See `Servable.run`; waits for a free interpreter."""
        signature = self._signatures.resolve(signature_name)
        fed = {
            self._inputs.index(signature.inputs[alias].runtime_name): _checked(
                tensor, alias=alias, spec=signature.inputs[alias]
            )
            for alias, tensor in inputs.items()
        }
        fed = self._parse_examples(fed)
        with self._borrow() as interpreter:
            _invoke(interpreter, inputs=fed)
            return {
                alias: _fetch(
                    interpreter, index=self._outputs.index(signature.outputs[alias].runtime_name)
                )
                for alias in outputs
            }

    def run_session(
        self, feeds: Tensors, *, fetches: tuple[str, ...], targets: tuple[str, ...]
    ) -> None:
        """See `SessionServable.run_session`; a TFLite model has no operations to ask for."""
        if targets:
            raise Unimplemented("TFLite models have no target nodes")
        fed = self._parse_examples(
            {self._inputs.index(name): tensor for name, tensor in feeds.items()}
        )
        fetched = [self._outputs.index(name) for name in fetches]
        with self._borrow() as interpreter:
            _invoke(interpreter, inputs=fed)
            for index in fetched:
                _fetch(interpreter, index=index)

    def unload(self) -> None:
        while not self._free.empty():
            self._free.get()

    def _parse_examples(self, fed: dict[int, Tensor]) -> dict[int, Tensor]:
        for parser in self._parsers:
            if parser.input_index in fed:
                fed |= parser.parse(fed[parser.input_index])
        return {i: x for i, x in fed.items() if i not in self._parsed_inputs}

    @contextmanager
    def _borrow(self) -> Iterator[Interpreter]:
        interpreter = self._free.get()
        try:
            yield interpreter
        finally:
            self._free.put(interpreter)

    def _read_signatures(self, messages: Mapping[str, bytes]) -> dict[str, Signature]:
        if not messages:
            return {DEFAULT_SIGNATURE_NAME: self._generate_signature()}
        from tensorflow.core.protobuf import meta_graph_pb2

        signatures = {
            name: decode_signature(meta_graph_pb2.SignatureDef.FromString(message))
            for name, message in sorted(messages.items())
        }
        for signature in signatures.values():
            for alias, spec in signature.inputs.items():
                self._inputs.check(spec, alias=alias)
            for alias, spec in signature.outputs.items():
                self._outputs.check(spec, alias=alias)
        return signatures

    def _generate_signature(self) -> Signature:
        return Signature(self._inputs.specs(), self._outputs.specs(), PREDICT_METHOD)


class _Details:
    """The model's inputs, or its outputs, by tensor name with and without `:0`."""

    def __init__(self, details: Sequence[Mapping[str, Any]], *, kind: str) -> None:
        self._details = details
        self._kind = kind
        exact = {str(detail["name"]): int(detail["index"]) for detail in details}
        self._index = {name.partition(":")[0]: index for name, index in exact.items()} | exact

    def index(self, name: str) -> int:
        """The tensor that a runtime name means.

        Raises:
            Internal: there is none.
        """
        found = self._index.get(name, self._index.get(name.partition(":")[0]))
        if found is None:
            raise Internal(
                f"Unknown tensor '{name}'.\n\tMissing {self._kind} TFLite tensor: {name}"
            )
        return found

    def check(self, spec: TensorSpec, *, alias: str) -> None:
        name = spec.runtime_name
        if name not in self._index and name.partition(":")[0] not in self._index:
            raise Internal(f"Signature {self._kind} {alias} references an unknown tensor")

    def specs(self) -> dict[str, TensorSpec]:
        """One per tensor, under its name up to the first colon, as the reference generates them."""
        return {
            str(detail["name"]).partition(":")[0]: TensorSpec(
                _data_type(detail["dtype"]),
                tuple(None if size < 0 else int(size) for size in detail["shape_signature"]),
                str(detail["name"]),
            )
            for detail in self._details
        }


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise NotFound(f"{file}; {error.strerror}") from error


def _make_interpreter(model: bytes) -> Interpreter:
    try:
        from ai_edge_litert.interpreter import Interpreter as LitertInterpreter
    except ImportError as error:
        raise Unimplemented(
            "TFLite models need the package ai-edge-litert: pip install 'aspira[litert]'"
        ) from error
    try:
        interpreter = LitertInterpreter(model_content=model, num_threads=1)
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        raise Internal(f"Cannot build Interpreter from buffer. {error}") from error
    return interpreter


def _data_type(numpy_type: Any) -> DataType:
    if numpy_type is np.bytes_:
        return DataType.STRING
    try:
        return data_type_of(np.empty(0, numpy_type))
    except TypeError as error:
        raise Unimplemented(f"Unknown TfLite type: {numpy_type}") from error


def _checked(tensor: Tensor, *, alias: str, spec: TensorSpec) -> Tensor:
    given = data_type_of(tensor)
    if given is not spec.dtype:
        raise InvalidArgument(
            f"Input {alias} is of type {given.short_name}, expected {spec.dtype.short_name}"
        )
    return tensor


def _invoke(interpreter: Interpreter, *, inputs: Mapping[int, Tensor]) -> None:
    shapes = {int(d["index"]): tuple(d["shape"]) for d in interpreter.get_input_details()}
    changed = {index: x.shape for index, x in inputs.items() if x.shape != shapes.get(index)}
    if changed:
        for index, shape in changed.items():
            resize = partial(interpreter.resize_tensor_input, index, shape)
            _try(resize, failure="Failed to resize input tensor")
        _try(interpreter.allocate_tensors, failure="Failed to allocate tensors")
    for index, tensor in inputs.items():
        _try(partial(interpreter.set_tensor, index, tensor), failure="Failed to set input tensor")
    _try(interpreter.invoke, failure="Failed to invoke TfLite interpreter")


def _fetch(interpreter: Interpreter, *, index: int) -> Tensor:
    tensor: Tensor = interpreter.get_tensor(index)
    return tensor.astype(object) if tensor.dtype.kind == "S" else tensor


def _try(step: Callable[[], None], *, failure: str) -> None:
    try:
        step()
    except (RuntimeError, ValueError) as error:
        raise Internal(f"{failure}: {error}") from error
