"""Reads the container of a GGUF file: metadata, and tensors as they are stored.

The layout is that of ggml's `docs/gguf.md`, versions 2 and 3, little-endian. Every length is
checked against the file's, so that a damaged file is an error and not an allocation.
"""

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from aspira.contracts.errors import DataLoss, NotFound, Unimplemented

# A number, a flag, a text or a list of these.
Metadata = Mapping[str, Any]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS = MappingProxyType({
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?",
    10: "<u8", 11: "<i8", 12: "<f8",
})  # fmt: skip
_MAX_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies in the file."""

    shape: tuple[int, ...]
    """Rows first, as in NumPy; the file has them the other way round."""

    ggml_type: int
    offset: int


class GgufFile:
    """A mapped file. Arrays that `raw` returns keep the mapping alive."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bytes = _map(path)
        cursor = _Cursor(self._bytes, path=path)
        num_tensors, num_fields = _read_preamble(cursor)
        self.metadata: Metadata = MappingProxyType(
            {cursor.text(): cursor.value(cursor.scalar("<u4")) for _ in range(num_fields)}
        )
        placed = dict(_read_tensor_info(cursor) for _ in range(num_tensors))
        alignment = int(self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT))
        if alignment <= 0:
            raise cursor.damaged(f"its alignment is {alignment}")
        start = -(-cursor.position // alignment) * alignment
        self.tensors: Mapping[str, StoredTensor] = MappingProxyType(
            {
                name: StoredTensor(tensor.shape, tensor.ggml_type, start + tensor.offset)
                for name, tensor in placed.items()
            }
        )

    @property
    def path(self) -> Path:
        return self._path

    def raw(self, name: str, *, num_bytes: int) -> npt.NDArray[np.uint8]:
        """A tensor's bytes, a view of the file.

        Raises:
            DataLoss: the file ends before they do.
        """
        offset = self.tensors[name].offset
        if offset + num_bytes > len(self._bytes):
            raise DataLoss(
                f"{self._path} is cut short: tensor {name} ends at byte {offset + num_bytes} and "
                f"the file has {len(self._bytes)}; copy or download it again"
            )
        return np.frombuffer(self._bytes, np.uint8, num_bytes, offset)


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise NotFound(f"{path}; {error.strerror}") from error
    except ValueError as error:
        raise DataLoss(f"{path} is empty; copy or download it again") from error


def _read_preamble(cursor: "_Cursor") -> tuple[int, int]:
    if cursor.take(len(_MAGIC)) != _MAGIC:
        raise cursor.damaged("it does not begin with GGUF")
    version = cursor.scalar("<u4")
    if version not in _VERSIONS:
        raise Unimplemented(
            f"{cursor.path} is GGUF version {version}; versions 2 and 3, little-endian, are read"
        )
    return cursor.scalar("<u8"), cursor.scalar("<u8")


def _read_tensor_info(cursor: "_Cursor") -> tuple[str, StoredTensor]:
    name = cursor.text()
    num_dimensions = cursor.scalar("<u4")
    if num_dimensions > _MAX_DIMENSIONS:
        raise cursor.damaged(f"tensor {name} has {num_dimensions} dimensions")
    shape = tuple(cursor.scalar("<u8") for _ in range(num_dimensions))
    return name, StoredTensor(shape[::-1], cursor.scalar("<u4"), cursor.scalar("<u8"))


class _Cursor:
    """Reads values one after the other, never past the end."""

    def __init__(self, data: mmap.mmap, *, path: Path) -> None:
        self._data = data
        self.path = path
        self.position = 0

    def damaged(self, what: str) -> DataLoss:
        return DataLoss(f"{self.path} is not a readable GGUF file: {what}; download it again")

    def take(self, num_bytes: int) -> bytes:
        end = self.position + num_bytes
        if end > len(self._data):
            raise self.damaged(f"it ends within its header, at byte {len(self._data)}")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def scalar(self, layout: str) -> Any:
        if layout == "?":
            return self.take(1) != b"\0"
        data = self.take(int(layout[2]))
        if layout[1] == "u":
            return int.from_bytes(data, "little")
        return np.frombuffer(data, layout).item()

    def text(self) -> str:
        length = int.from_bytes(self.take(8), "little")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(f"the text before byte {self.position} is not UTF-8") from error

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise self.damaged(f"it has a value of the unknown type {kind}")
        return self.scalar(_SCALARS[kind])

    def _array(self) -> list[Any]:
        kind, length = self.scalar("<u4"), self.scalar("<u8")
        if kind == _STRING:
            self._expect(length, item_bytes=8)
            return [self.text() for _ in range(length)]
        if kind not in _SCALARS:
            raise self.damaged(f"it has an array of the unknown or nested type {kind}")
        layout = np.dtype(_SCALARS[kind])
        self._expect(length, item_bytes=layout.itemsize)
        items: list[Any] = np.frombuffer(self.take(length * layout.itemsize), layout).tolist()
        return items

    def _expect(self, length: int, *, item_bytes: int) -> None:
        if self.position + length * item_bytes > len(self._data):
            raise self.damaged(f"an array of {length} items would go past its end")
