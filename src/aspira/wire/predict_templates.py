"""Reads the Predict requests that clients send again and again with other numbers in them.

Two messages of one length that differ in nothing but the bytes of a `tensor_content`, or of packed
floats, have the same fields: what protobuf made of the first is true of the second. Comparing them
takes a tenth of the time in which protobuf's objects are made, read and thrown away.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from aspira.contracts.identity import ModelSpec
from aspira.contracts.inference import PredictRequest
from aspira.contracts.tensors import Tensors
from aspira.wire.tensor_proto import read_varint

# Clients choose what they send, and looking at what cannot be learned costs time, too. Beyond these
# bounds nothing more is learned.
_MAX_TRIES = 1024
_MAX_TRIES_OF_A_LENGTH = 8
_MAX_FIXED_BYTES = 1024

# Of PredictRequest, of an entry of its map, and of TensorProto.
_INPUTS, _KEY, _VALUE = 2, 1, 2
_DTYPE, _SHAPE, _CONTENT = 1, 2, 4
# The fields of numbers that are on the wire as numpy stores them, and the one dtype they are for.
_PACKED: Mapping[int, np.dtype[Any]] = MappingProxyType(
    {5: np.dtype(np.float32), 6: np.dtype(np.float64)}
)
_VARINT, _DELIMITED = 0, 2
_WIRE_TYPE, _NUMBER_SHIFT = 0b111, 3
# Strings are no numbers, and not every byte is a bool.
_UNREADABLE_KINDS = "Ob"


class _Numbers(NamedTuple):
    """Where a tensor's numbers are, and how to read them."""

    alias: str
    begin: int
    end: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class _Template(NamedTuple):
    """A message but for its numbers: all that is between them, by where it begins."""

    fixed: tuple[tuple[bytes, int], ...]
    numbers: tuple[_Numbers, ...]
    spec: ModelSpec
    output_filter: tuple[str, ...]

    def try_read(self, payload: bytes) -> Tensors | None:
        """The inputs of a message as long as this one; None if it is another one."""
        for segment, begin in self.fixed:
            if not payload.startswith(segment, begin):
                return None
        return {
            # Copied, since numbers that are not aligned are slow, or wrong, to compute with.
            alias: np.frombuffer(payload[begin:end], dtype).reshape(shape)
            for alias, begin, end, dtype, shape in self.numbers
        }


class PredictTemplates:
    """What was learned of the requests to one server. Not thread-safe."""

    def __init__(self) -> None:
        # By the length of their messages.
        self._templates: dict[int, list[_Template]] = {}
        self._num_tries: dict[int, int] = {}
        self._num_tries_left = _MAX_TRIES

    def try_decode(
        self, payload: bytes, *, deadline: float | None, priority: int
    ) -> PredictRequest | None:
        """The request of a serialized message; None if it is like none that was learned."""
        for template in self._templates.get(len(payload), ()):
            inputs = template.try_read(payload)
            if inputs is not None:
                return PredictRequest(
                    template.spec, inputs, template.output_filter, deadline, priority
                )
        return None

    def learn(self, payload: bytes, *, request: PredictRequest) -> None:
        """Remember a message, and what protobuf made of it."""
        length = len(payload)
        num_tries = self._num_tries.get(length, 0)
        if not self._num_tries_left or num_tries >= _MAX_TRIES_OF_A_LENGTH:
            return
        self._num_tries_left -= 1
        self._num_tries[length] = num_tries + 1
        try:
            template = _make_template(payload, request=request)
        except ValueError:
            return
        self._templates.setdefault(length, []).append(template)


class _Field(NamedTuple):
    """A field on the wire, and where its value is."""

    number: int
    begin: int
    end: int


def _make_template(payload: bytes, *, request: PredictRequest) -> _Template:
    """
    Raises:
        ValueError: the message is right, but not of the plain form that is learned.
    """
    numbers = sorted(
        (
            _find_numbers(payload, entry=field, inputs=request.inputs)
            for field in _fields(payload, begin=0, end=len(payload))
            if field.number == _INPUTS
        ),
        key=lambda found: found.begin,
    )
    # Of entries with one alias the last one counts.
    if len(numbers) != len(request.inputs):
        raise ValueError(len(numbers))
    begins = [0, *(found.end for found in numbers)]
    ends = [*(found.begin for found in numbers), len(payload)]
    fixed = [
        (payload[begin:end], begin) for begin, end in zip(begins, ends, strict=True) if end > begin
    ]
    if sum(len(segment) for segment, _ in fixed) > _MAX_FIXED_BYTES:
        raise ValueError(len(payload))
    return _Template(tuple(fixed), tuple(numbers), request.spec, request.output_filter)


def _find_numbers(payload: bytes, *, entry: _Field, inputs: Tensors) -> _Numbers:
    """Those of one tensor, where there is no question which of its fields counts."""
    parts = _fields_once(payload, of=entry)
    if parts.keys() != {_KEY, _VALUE}:
        raise ValueError(entry)
    alias = payload[parts[_KEY].begin : parts[_KEY].end].decode()
    dtype, shape = inputs[alias].dtype, inputs[alias].shape
    fields = _fields_once(payload, of=parts[_VALUE])
    sources = fields.keys() - {_DTYPE, _SHAPE}
    if len(sources) != 1:
        raise ValueError(entry)
    source = fields[sources.pop()]
    is_content = source.number == _CONTENT and dtype.kind not in _UNREADABLE_KINDS
    is_packed = _PACKED.get(source.number) == dtype
    # Values that are missing, or too many, make another size.
    is_whole = 0 < inputs[alias].nbytes == source.end - source.begin
    if not (is_content or is_packed) or not is_whole:
        raise ValueError(entry)
    return _Numbers(alias, source.begin, source.end, dtype, shape)


def _fields_once(encoded: bytes, *, of: _Field) -> dict[int, _Field]:
    """By number; ValueError if one comes twice."""
    fields = list(_fields(encoded, begin=of.begin, end=of.end))
    by_number = {field.number: field for field in fields}
    if len(by_number) != len(fields):
        raise ValueError(of)
    return by_number


def _fields(encoded: bytes, *, begin: int, end: int) -> Iterator[_Field]:
    """Those of a message that protobuf could parse; ValueError for wire types of no use here."""
    while begin < end:
        key, begin = read_varint(encoded, start=begin)
        if key & _WIRE_TYPE == _VARINT:
            _, after = read_varint(encoded, start=begin)
        elif key & _WIRE_TYPE == _DELIMITED:
            length, begin = read_varint(encoded, start=begin)
            after = begin + length
        else:
            raise ValueError(key)
        yield _Field(key >> _NUMBER_SHIFT, begin, after)
        begin = after
