"""Reads what a TFLite file says of its signatures, without the interpreter.

TensorFlow Serving looks for SignatureDefs in the model's metadata: a flexbuffer map from names to
serialized messages, under a key of its own. Field numbers are those of TFLite's `schema.fbs`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from aspira.contracts.errors import Internal

_METADATA_NAME = b"signature_defs_metadata"
_IDENTIFIER = slice(4, 8)
_MODEL_BUFFERS, _MODEL_METADATA = 4, 6
_METADATA_FIELD_NAME, _METADATA_FIELD_BUFFER = 0, 1
_BUFFER_DATA = 0
_VTABLE_HEADER_BYTES = 4


def read_signature_defs(model: bytes) -> Mapping[str, bytes]:
    """Serialized SignatureDef by name; empty if the model has none in its metadata.

    Raises:
        Internal: this is no TFLite model, or its metadata is damaged.
    """
    if model[_IDENTIFIER] != b"TFL3":
        raise Internal("Cannot build FlatBufferModel from buffer.")
    try:
        return _read_signature_defs(model)
    except (IndexError, ValueError, TypeError, OverflowError) as error:
        raise Internal(f"Invalid SignatureDefs found in TfLite model: {error}") from error
    except Exception as error:
        # flatbuffers raises struct.error and errors of its own for what points outside.
        raise Internal(f"Cannot build FlatBufferModel from buffer. ({error})") from error


def _read_signature_defs(model: bytes) -> Mapping[str, bytes]:
    from flatbuffers import encode, flexbuffers, packer

    root = encode.Get(packer.uoffset, model, 0)
    buffers = list(_tables(model, table=root, field=_MODEL_BUFFERS))
    for metadata in _tables(model, table=root, field=_MODEL_METADATA):
        if _bytes(model, table=metadata, field=_METADATA_FIELD_NAME) != _METADATA_NAME:
            continue
        table = _table(model, position=metadata)
        offset = table.Offset(_slot(_METADATA_FIELD_BUFFER))
        index = encode.Get(packer.uint32, model, metadata + offset) if offset else 0
        data = _bytes(model, table=buffers[index], field=_BUFFER_DATA)
        entries = flexbuffers.GetRoot(data).AsMap
        return {
            str(key.AsKey): _value_bytes(value)
            for key, value in zip(entries.Keys, entries.Values, strict=True)
        }
    return {}


def _value_bytes(value: Any) -> bytes:
    return bytes(value.AsBlob if value.IsBlob else value.AsStringBytes)


def _slot(field: int) -> int:
    return _VTABLE_HEADER_BYTES + 2 * field


def _table(model: bytes, *, position: int) -> Any:
    from flatbuffers import table

    return table.Table(model, position)


def _tables(model: bytes, *, table: int, field: int) -> Iterator[int]:
    """Positions of the tables in a vector field."""
    view = _table(model, position=table)
    offset = view.Offset(_slot(field))
    if offset:
        start = view.Vector(offset)
        for index in range(view.VectorLen(offset)):
            yield view.Indirect(start + index * 4)


def _bytes(model: bytes, *, table: int, field: int) -> bytes:
    """A string or byte vector field."""
    view = _table(model, position=table)
    offset = view.Offset(_slot(field))
    if not offset:
        return b""
    start = view.Vector(offset)
    return model[start : start + view.VectorLen(offset)]
