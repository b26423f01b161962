"""Takes the parsing of examples out of TFLite models: LiteRT has no kernel for it, TensorFlow has.

TensorFlow Serving links the custom ops ParseExample and ParseExampleV2 in. Here they are cut out of
the model, what they made becomes inputs of the rest, and TensorFlow's kernel makes it. The order of
their inputs and outputs, and their options, are those of `tensorflow/lite/kernels/parse_example`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from aspira.contracts.errors import Internal, error_from_code
from aspira.contracts.tensors import Tensor
from aspira.runtimes.saved_model import as_serving_error

_OPS = (b"ParseExample", b"ParseExampleV2")
_IDENTIFIER = b"TFL3"
# Of TFLite's `TensorType`; the kernel knows no others.
_DTYPES: Mapping[int, np.dtype[Any]] = MappingProxyType(
    {0: np.dtype("<f4"), 4: np.dtype("<i8"), 5: np.dtype(object)}
)
# What TensorFlow puts around the text of an op that is run at once.
_EAGER_MARKS = re.compile(r"^\{\{function_node [^}]*\}\} | \[Op:\w+\].*$")
_TENSORS_PER_SPARSE_FEATURE = 3

# The classes of TFLite's schema have no types.
Model = Any
Operator = Any


@dataclass(frozen=True, slots=True)
class ExampleParser:
    """One op that was cut out: from which tensor of the model it made which others."""

    input_index: int
    output_indices: tuple[int, ...]
    sparse_keys: tuple[bytes, ...]
    sparse_dtypes: tuple[np.dtype[Any], ...]
    dense_keys: tuple[bytes, ...]
    dense_shapes: tuple[tuple[int, ...], ...]
    dense_defaults: tuple[Tensor, ...]

    def parse(self, serialized: Tensor) -> dict[int, Tensor]:
        """The tensors it makes of serialized examples, by their index in the model.

        Raises:
            ServingError: something is no example, or lacks a feature that has no default.
        """
        import tensorflow as tf

        try:
            parsed = tf.raw_ops.ParseExampleV2(
                serialized=serialized,
                names=[],
                sparse_keys=list(self.sparse_keys),
                dense_keys=list(self.dense_keys),
                ragged_keys=[],
                dense_defaults=list(self.dense_defaults),
                num_sparse=len(self.sparse_keys),
                sparse_types=[tf.as_dtype(dtype) for dtype in self.sparse_dtypes],
                ragged_value_types=[],
                ragged_split_types=[],
                dense_shapes=list(self.dense_shapes),
            )
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            serving_error = as_serving_error(error)
            text = _EAGER_MARKS.sub("", serving_error.message)
            raise error_from_code(serving_error.code, message=text) from error
        made = (
            *parsed.sparse_indices,
            *parsed.sparse_values,
            *parsed.sparse_shapes,
            *parsed.dense_values,
        )
        return {
            index: tensor.numpy() for index, tensor in zip(self.output_indices, made, strict=True)
        }


def split_parsing(model: bytes) -> tuple[bytes, tuple[ExampleParser, ...]]:
    """The model without the ops that parse its inputs, and those ops.

    Raises:
        Internal: an op is not as TFLite's converter writes it.
    """
    if _OPS[0] not in model:
        return model, ()
    from ai_edge_litert import schema_py_generated as schema
    from flatbuffers import Builder

    unpacked = schema.ModelT.InitFromObj(schema.Model.GetRootAs(model))
    graph = unpacked.subgraphs[0]
    parsers = []
    for operator in list(graph.operators):
        name = unpacked.operatorCodes[operator.opcodeIndex].customCode
        if name in _OPS and operator.inputs[0] in graph.inputs:
            parsers.append(_read_parser(unpacked, operator=operator, has_key_lists=name == _OPS[1]))
            graph.operators.remove(operator)
    graph.inputs = [*graph.inputs, *(i for parser in parsers for i in parser.output_indices)]
    builder = Builder()
    builder.Finish(unpacked.Pack(builder), file_identifier=_IDENTIFIER)
    return bytes(builder.Output()), tuple(parsers)


def _read_parser(model: Model, *, operator: Operator, has_key_lists: bool) -> ExampleParser:
    """`has_key_lists`: ParseExampleV2 has its keys in a tensor, ParseExample a tensor for each."""
    from flatbuffers import flexbuffers

    try:
        options = flexbuffers.Loads(bytearray(operator.customOptions))
        num_sparse = options.get("num_sparse", options.get("Nsparse", 0))
        inputs = [int(index) for index in operator.inputs]
        outputs = tuple(int(index) for index in operator.outputs)
        num_parts = _TENSORS_PER_SPARSE_FEATURE * num_sparse
        dense = outputs[num_parts:]
        first_default = len(inputs) - len(dense)
        num_sparse_tensors = 1 if has_key_lists else num_sparse
        keys = [_read_strings(model, index=index) for index in inputs[2:first_default]]
        # ParseExampleV2 has a further tensor, the keys of ragged features, of which there are none.
        dense_keys = list(chain.from_iterable(keys[num_sparse_tensors:]))[: len(dense)]
        tensors = model.subgraphs[0].tensors
        return ExampleParser(
            input_index=inputs[0],
            output_indices=outputs,
            sparse_keys=tuple(chain.from_iterable(keys[:num_sparse_tensors])),
            sparse_dtypes=tuple(
                _DTYPES[tensors[index].type] for index in outputs[num_sparse : 2 * num_sparse]
            ),
            dense_keys=tuple(dense_keys),
            dense_shapes=tuple(tuple(map(int, tensors[index].shape[1:])) for index in dense),
            dense_defaults=tuple(
                _read_constant(model, index=index) for index in inputs[first_default:]
            ),
        )
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise Internal(f"A ParseExample op of the model is not understood: {error!r}") from error


def _read_constant(model: Model, *, index: int) -> Tensor:
    tensor = model.subgraphs[0].tensors[index]
    dtype: np.dtype[Any] = _DTYPES[tensor.type]
    if dtype.kind == "O":
        flat: Tensor = np.array(_read_strings(model, index=index), dtype)
    else:
        flat = np.frombuffer(_read_buffer(model, index=index), dtype)
    return flat.reshape([] if tensor.shape is None else [int(size) for size in tensor.shape])


def _read_strings(model: Model, *, index: int) -> list[bytes]:
    """TFLite's strings: their number, where each begins and the last one ends, then their bytes."""
    data = _read_buffer(model, index=index)
    num_strings = int(np.frombuffer(data, "<i4", count=1)[0])
    bounds = np.frombuffer(data, "<i4", count=num_strings + 1, offset=4)
    return [data[bounds[i] : bounds[i + 1]] for i in range(num_strings)]


def _read_buffer(model: Model, *, index: int) -> bytes:
    data = model.buffers[model.subgraphs[0].tensors[index].buffer].data
    return b"" if data is None else bytes(data)
