"""Writes predictions and errors as JSON, byte for byte in the reference's mixed layout.

Everything is indented by 4 spaces a level, except that in the row format the arrays inside
`predictions` stay on one line. A small tensor is written from the inside out: the texts of its
innermost rows come from one pass over all values, and each level above joins the texts of the level
below. A large one is written from its begin to its end, in pieces.
"""

import base64
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from types import MappingProxyType

import numpy as np

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.tensors import DataType, Tensor, Tensors, data_type_of
from aspira.frontends.rest.json_layout import Layout, lay_out_numbers, new_line
from aspira.frontends.rest.json_numbers import encode_number_rows

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

# From so many values on, piece by piece.
_MIN_PIECES = 256
_ROWS_VALUES = 8 * 2**10
_BEFORE_ROWS = b'{\n    "predictions": '
_BEFORE_COLUMNS = b'{\n    "outputs": '
_AFTER = b"\n}"
_ROWS = Layout(depth=1, is_single_line=False)
_ONE_ROW_OUTPUT = Layout(depth=1, is_single_line=True)
_MANY_ROW_OUTPUTS = Layout(depth=3, is_single_line=True)


def encode_predictions(outputs: Tensors, *, is_row_format: bool) -> bytes:
    """The body that answers a predict request; several outputs keep the order of the mapping.

    String outputs are bytes; those whose alias ends in `_bytes` are written in base64, others as
    they are, valid UTF-8 or not.

    Raises:
        InvalidArgument: an output cannot be written in this format.
    """
    if not outputs:
        raise InvalidArgument("Cannot convert empty tensor map to JSON")
    if sum([tensor.size for tensor in outputs.values()]) >= _MIN_PIECES:
        return _join_pieces(outputs, is_row_format=is_row_format)
    if is_row_format:
        return _BEFORE_ROWS + _encode_rows(outputs) + _AFTER
    return _BEFORE_COLUMNS + _encode_columns(outputs) + _AFTER


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


def _encode_object(members: dict[str, bytes], *, depth: int) -> bytes:
    inner = new_line(depth + 1)
    lines = [inner + _quote_text(name) + b": " + member for name, member in members.items()]
    return b"{" + b",".join(lines) + new_line(depth) + b"}"


def _join_pieces(outputs: Tensors, *, is_row_format: bool) -> bytes:
    """As a body grows, its buffer does; joining a list of all pieces would take as much again."""
    buffer = BytesIO()
    buffer.write(_BEFORE_ROWS if is_row_format else _BEFORE_COLUMNS)
    for piece in (_write_rows if is_row_format else _write_columns)(outputs):
        buffer.write(piece)
    buffer.write(_AFTER)
    return buffer.getvalue()


def _write_columns(outputs: Tensors) -> Iterator[bytes]:
    if len(outputs) == 1:
        ((name, tensor),) = outputs.items()
        yield from _write_value(tensor, name=name, layout=Layout(depth=1, is_single_line=False))
        return
    before = b"{"
    for name, tensor in outputs.items():
        yield before + new_line(2) + _quote_text(name) + b": "
        yield from _write_value(tensor, name=name, layout=Layout(depth=2, is_single_line=False))
        before = b","
    yield new_line(1) + b"}"


def _write_rows(outputs: Tensors) -> Iterator[bytes]:
    num_rows = _check_row_counts(outputs)
    if len(outputs) == 1:
        (tensor,) = outputs.values()
        if tensor.size and _writable_type(tensor) in _NUMBER_TYPES:
            yield b"["
            yield from lay_out_numbers(tensor, layout=_ONE_ROW_OUTPUT)
            yield b"\n    ]"
        else:
            yield _encode_rows(outputs)
        return
    num_values = sum([tensor.size for tensor in outputs.values()])
    step = max(_ROWS_VALUES * num_rows // num_values, 1)
    yield _ROWS.opening(1)
    for start in range(0, num_rows, step):
        if start:
            yield _ROWS.separator(1)
        rows = _encode_named_rows(
            {name: tensor[start : start + step] for name, tensor in outputs.items()}
        )
        yield _ROWS.separator(1).join(rows)
    yield _ROWS.closing(1)


def _write_value(tensor: Tensor, *, name: str, layout: Layout) -> Iterator[bytes]:
    if tensor.ndim and tensor.size and _writable_type(tensor) in _NUMBER_TYPES:
        yield layout.opening(1)
        yield from lay_out_numbers(tensor, layout=layout)
        yield layout.closing(1)
    else:
        yield from _encode_elements(tensor[np.newaxis], name=name, layout=layout)


def _encode_columns(outputs: Tensors) -> bytes:
    layout = Layout(depth=1 if len(outputs) == 1 else 2, is_single_line=False)
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
    return _ROWS.enclose(_ROWS.separator(1).join(_encode_named_rows(outputs)), level=1)


def _encode_named_rows(outputs: Tensors) -> list[bytes]:
    layout = _MANY_ROW_OUTPUTS
    columns = [
        _encode_elements(tensor, name=name, layout=layout) for name, tensor in outputs.items()
    ]
    template = _row_template(outputs)
    return [template % texts for texts in zip(*columns, strict=True)]


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


def _encode_elements(tensor: Tensor, *, name: str, layout: Layout) -> list[bytes]:
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


def _encode_innermost(matrix: Tensor, *, name: str, layout: Layout, rank: int) -> list[bytes]:
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
    before = b"{" + new_line(depth + 1) + b'"b64": "'
    after = b'"' + new_line(depth) + b"}"
    return [before + base64.b64encode(value) + after for value in values]


def _join_groups(texts: list[bytes], *, size: int, separator: bytes) -> list[bytes]:
    return [separator.join(texts[start : start + size]) for start in range(0, len(texts), size)]
