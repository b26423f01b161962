"""Reads safetensors files: one JSON header, then the tensors' bytes, mapped as they are."""

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import orjson

from aspira.contracts.errors import DataLoss, NotFound, Unimplemented
from aspira.llm.weights.source import Weight

# The format's own limit.
_MAX_HEADER_BYTES = 100_000_000
_LENGTH_BYTES = 8
_TYPES: Mapping[str, Any] = MappingProxyType(
    {
        "F32": np.float32,
        "F16": np.float16,
        "BF16": ml_dtypes.bfloat16,
    }
)


class SafetensorsFile:
    """A mapped file. Arrays that `read` returns are views of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._bytes = np.memmap(path, np.uint8, "r")
        except OSError as error:
            raise NotFound(f"{path}; {error.strerror}") from error
        except ValueError as error:
            raise self._damaged("it is empty") from error
        self._header, self._start = self._read_header()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._header)

    def read(self, name: str) -> Weight:
        """One tensor.

        Raises:
            Unimplemented: it has a type that is not served.
            DataLoss: the header does not fit the file.
        """
        try:
            entry = self._header[name]
            kind, shape = str(entry["dtype"]), tuple(map(int, entry["shape"]))
            begin, end = (self._start + int(offset) for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(f"its header does not describe {name}") from error
        if kind not in _TYPES:
            raise Unimplemented(
                f"{self._path}: tensor {name} is {kind}; weights of type {', '.join(_TYPES)} are "
                "served, so convert the model first"
            )
        dtype = np.dtype(_TYPES[kind])
        if min(shape, default=1) < 0 or end - begin != dtype.itemsize * math.prod(shape):
            raise self._damaged(f"shape and size of {name} do not agree")
        if not self._start <= begin <= end <= len(self._bytes):
            raise self._damaged(f"{name} lies outside it")
        weight: Weight = self._bytes[begin:end].view(dtype).reshape(shape).view(np.ndarray)
        return weight

    def _read_header(self) -> tuple[dict[str, Any], int]:
        length = int.from_bytes(self._bytes[:_LENGTH_BYTES].tobytes(), "little")
        start = _LENGTH_BYTES + length
        if length > _MAX_HEADER_BYTES or start > len(self._bytes):
            raise self._damaged("its header is longer than it")
        try:
            header = orjson.loads(self._bytes[_LENGTH_BYTES:start].tobytes())
        except orjson.JSONDecodeError as error:
            raise self._damaged("its header is not JSON") from error
        if not isinstance(header, dict):
            raise self._damaged("its header is not an object")
        header.pop("__metadata__", None)
        return header, start

    def _damaged(self, what: str) -> DataLoss:
        return DataLoss(f"{self._path} is not a readable safetensors file: {what}")
