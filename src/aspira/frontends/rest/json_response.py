"""Writes predictions and errors as JSON, byte for byte in the reference's mixed layout.

Everything is indented by 4 spaces a level, except that in the row format the arrays inside
`predictions` stay on one line. A tensor is written from the inside out: the texts of its innermost
rows come from one pass over all values, and each level above joins the texts of the level below.
"""

import base64
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.tensors import DataType, Tensor, Tensors, data_type_of
from aspira.frontends.rest.json_numbers import encode_number_rows

_INDENT = b"    "
_BYTES_SUFFIX = "_bytes"
_SPECIAL_CHARACTERS = re.compile(rb'["\\\x00-\x1f]')
_ESCAPES = MappingProxyType(
    {
        b'"': b'\\"',
        b"\\": b"\\\\",
        b"\b": b"\\b",
        b"\f": b"\\f",
        b"\n": b"\\n",
        b"\r": b"\\r",
        b"\t": b"\\t",
    }
)
_NUMBER_TYPES = frozenset(
    {
        DataType.FLOAT,
        DataType.DOUBLE,
        DataType.INT8,
        DataType.INT16,
        DataType.INT32,
        DataType.INT64,
        DataType.UINT8,
        DataType.UINT32,
        DataType.UINT64,
        DataType.BOOL,
    }
)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a value stands: inside `depth` containers, its arrays on one line or not."""

    depth: int
    is_single_line: bool

    def separator(self, level: int) -> bytes:
        """Between the elements of an array `level` levels below this value."""
        return b", " if self.is_single_line else b"," + _new_line(self.depth + level)

    def enclose(self, elements: bytes, *, level: int) -> bytes:
        if self.is_single_line:
            return b"[" + elements + b"]"
        before, after = _new_line(self.depth + level), _new_line(self.depth + level - 1)
        return b"[" + before + elements + after + b"]"


_ONE_ROW_OUTPUT = _Layout(depth=1, is_single_line=True)
_MANY_ROW_OUTPUTS = _Layout(depth=3, is_single_line=True)


def encode_predictions(outputs: Tensors, *, is_row_format: bool) -> bytes:
    """The body that answers a predict request; several outputs keep the order of the mapping.

    String outputs are bytes; those whose alias ends in `_bytes` are written in base64, others as
    they are, valid UTF-8 or not.

    Raises:
        InvalidArgument: an output cannot be written in this format.
    """
    if not outputs:
        raise InvalidArgument("Cannot convert empty tensor map to JSON")
    if is_row_format:
        return b'{\n    "predictions": ' + _encode_rows(outputs) + b"\n}"
    return b'{\n    "outputs": ' + _encode_columns(outputs) + b"\n}"


def encode_error(message: str) -> bytes:
    """The body of an answer that is not a result."""
    return _encode_object({"error": _quote_text(message)}, depth=0)


def quote_string(value: bytes) -> bytes:
    """A JSON string of raw bytes: only quotes, backslashes and control characters are escaped."""
    return b'"' + _SPECIAL_CHARACTERS.sub(_escape, value) + b'"'


def _escape(character: re.Match[bytes]) -> bytes:
    found = character.group()
    return _ESCAPES.get(found) or b"\\u%04X" % ord(found)


def _quote_text(text: str) -> bytes:
    return quote_string(text.encode("utf-8", "surrogateescape"))


def _new_line(depth: int) -> bytes:
    return b"\n" + _INDENT * depth


def _encode_object(members: dict[str, bytes], *, depth: int) -> bytes:
    inner = _new_line(depth + 1)
    lines = [inner + _quote_text(name) + b": " + member for name, member in members.items()]
    return b"{" + b",".join(lines) + _new_line(depth) + b"}"


def _encode_columns(outputs: Tensors) -> bytes:
    layout = _Layout(depth=1 if len(outputs) == 1 else 2, is_single_line=False)
    members = {
        name: _encode_elements(tensor[np.newaxis], name=name, layout=layout)[0]
        for name, tensor in outputs.items()
    }
    if len(members) == 1:
        return next(iter(members.values()))
    return _encode_object(members, depth=1)


def _encode_rows(outputs: Tensors) -> bytes:
    num_rows = _check_row_counts(outputs)
    if num_rows == 0:
        return b"[]"
    if len(outputs) == 1:
        ((name, tensor),) = outputs.items()
        return _encode_only_rows(tensor, name=name)
    layout = _MANY_ROW_OUTPUTS
    columns = [
        _encode_elements(tensor, name=name, layout=layout) for name, tensor in outputs.items()
    ]
    template = _row_template(outputs)
    rows = [template % texts for texts in zip(*columns, strict=True)]
    return _Layout(depth=1, is_single_line=False).enclose((b"," + _new_line(2)).join(rows), level=1)


def _encode_only_rows(tensor: Tensor, *, name: str) -> bytes:
    layout = _ONE_ROW_OUTPUT
    if tensor.ndim == 1:
        (text,) = _encode_innermost(tensor[np.newaxis], name=name, layout=layout, rank=1)
        return b"[" + text + b"\n    ]"
    if tensor.ndim == 2 and tensor.size:
        rows = _encode_innermost(tensor, name=name, layout=layout, rank=2)
        return b"[[" + b"], [".join(rows) + b"]\n    ]"
    (text,) = _encode_elements(tensor[np.newaxis], name=name, layout=layout)
    return text[:-1] + b"\n    ]"


def _row_template(names: Iterable[str]) -> bytes:
    """A row's object with a place for each value; a quoted name never holds a raw zero byte."""
    places = _encode_object(dict.fromkeys(names, b"\0"), depth=2)
    return places.replace(b"%", b"%%").replace(b"\0", b"%b")


def _check_row_counts(outputs: Tensors) -> int:
    expected: int | None = None
    for name, tensor in outputs.items():
        if tensor.ndim == 0:
            raise InvalidArgument(f"Tensor name: {name} has no shape information ")
        num_rows = tensor.shape[0]
        if expected is not None and num_rows != expected:
            raise InvalidArgument(
                f"Tensor name: {name} has inconsistent batch size: {num_rows} expecting: {expected}"
            )
        expected = num_rows
    return expected or 0


def _encode_elements(tensor: Tensor, *, name: str, layout: _Layout) -> list[bytes]:
    """The text of each slice along the first axis."""
    num_elements, *sizes = tensor.shape
    if 0 in sizes:
        sizes = sizes[: sizes.index(0)]
        texts = [b"[]"] * (num_elements * math.prod(sizes))
    elif not sizes:
        return _encode_innermost(tensor.reshape(-1, 1), name=name, layout=layout, rank=0)
    else:
        rank = len(sizes)
        matrix = tensor.reshape(-1, sizes.pop())
        rows = _encode_innermost(matrix, name=name, layout=layout, rank=rank)
        texts = [layout.enclose(row, level=rank) for row in rows]
    for level in range(len(sizes), 0, -1):
        joined = _join_groups(texts, size=sizes[level - 1], separator=layout.separator(level))
        texts = [layout.enclose(group, level=level) for group in joined]
    return texts


def _encode_innermost(matrix: Tensor, *, name: str, layout: _Layout, rank: int) -> list[bytes]:
    """The values of each row of `matrix`, joined; `rank` arrays enclose a value."""
    data_type = _writable_type(matrix)
    separator = layout.separator(rank)
    if data_type in _NUMBER_TYPES:
        return encode_number_rows(matrix, separator=separator)
    values = [_to_bytes(value) for value in matrix.ravel().tolist()]
    if name.endswith(_BYTES_SUFFIX):
        texts = _encode_base64(values, depth=layout.depth + rank)
    else:
        texts = _quote_all(values)
    return _join_groups(texts, size=matrix.shape[1], separator=separator)


def _writable_type(tensor: Tensor) -> DataType:
    try:
        data_type = data_type_of(tensor)
    except TypeError:
        raise _cannot_write(str(tensor.dtype)) from None
    if data_type is DataType.STRING or data_type in _NUMBER_TYPES:
        return data_type
    raise _cannot_write(data_type.short_name)


def _cannot_write(type_name: str) -> InvalidArgument:
    return InvalidArgument(f"Failed to write JSON value for tensor type: {type_name}")


def _to_bytes(value: bytes | str) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def _quote_all(values: Sequence[bytes]) -> list[bytes]:
    if _SPECIAL_CHARACTERS.search(b"".join(values)):
        return [quote_string(value) for value in values]
    return [b'"' + value + b'"' for value in values]


def _encode_base64(values: Sequence[bytes], *, depth: int) -> list[bytes]:
    before = b"{" + _new_line(depth + 1) + b'"b64": "'
    after = b'"' + _new_line(depth) + b"}"
    return [before + base64.b64encode(value) + after for value in values]


def _join_groups(texts: list[bytes], *, size: int, separator: bytes) -> list[bytes]:
    return [separator.join(texts[start : start + size]) for start in range(0, len(texts), size)]
