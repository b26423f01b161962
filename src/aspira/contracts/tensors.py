"""Tensors are numpy arrays; this table ties each TensorFlow dtype to its numpy dtype.

String tensors are object arrays whose elements are `bytes`. Quantized integers travel as their
storage integers. `resource` and `variant` cannot cross the wire and are known by name only.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

import ml_dtypes
import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[np.generic]
Tensors = Mapping[str, Tensor]


class DataType(IntEnum):
    """A TensorFlow dtype. The value is its number in `tensorflow.DataType`."""

    INVALID = 0
    FLOAT = 1
    DOUBLE = 2
    INT32 = 3
    UINT8 = 4
    INT16 = 5
    INT8 = 6
    STRING = 7
    COMPLEX64 = 8
    INT64 = 9
    BOOL = 10
    QINT8 = 11
    QUINT8 = 12
    QINT32 = 13
    BFLOAT16 = 14
    QINT16 = 15
    QUINT16 = 16
    UINT16 = 17
    COMPLEX128 = 18
    HALF = 19
    RESOURCE = 20
    VARIANT = 21
    UINT32 = 22
    UINT64 = 23
    FLOAT8_E5M2 = 24
    FLOAT8_E4M3FN = 25
    FLOAT8_E4M3FNUZ = 26
    FLOAT8_E4M3B11FNUZ = 27
    FLOAT8_E5M2FNUZ = 28
    INT4 = 29
    UINT4 = 30
    INT2 = 31
    UINT2 = 32
    FLOAT4_E2M1FN = 33

    @property
    def wire_name(self) -> str:
        """As protos and metadata spell it, such as `DT_FLOAT`."""
        return f"DT_{self.name}"

    @property
    def short_name(self) -> str:
        """As error texts spell it, such as `float` or `int64`."""
        return self.name.lower()

    @property
    def numpy_dtype(self) -> np.dtype[np.generic] | None:
        """The dtype of an array that carries it; None where no array can."""
        return _NUMPY_DTYPE.get(self)


QUANTIZED_TYPES = frozenset(
    {DataType.QINT8, DataType.QUINT8, DataType.QINT16, DataType.QUINT16, DataType.QINT32}
)

_NUMPY_DTYPE: Mapping[DataType, np.dtype[np.generic]] = MappingProxyType(
    {
        DataType.FLOAT: np.dtype(np.float32),
        DataType.DOUBLE: np.dtype(np.float64),
        DataType.INT32: np.dtype(np.int32),
        DataType.UINT8: np.dtype(np.uint8),
        DataType.INT16: np.dtype(np.int16),
        DataType.INT8: np.dtype(np.int8),
        DataType.STRING: np.dtype(np.object_),
        DataType.COMPLEX64: np.dtype(np.complex64),
        DataType.INT64: np.dtype(np.int64),
        DataType.BOOL: np.dtype(np.bool_),
        DataType.QINT8: np.dtype([("qint8", np.int8)]),
        DataType.QUINT8: np.dtype([("quint8", np.uint8)]),
        DataType.QINT32: np.dtype([("qint32", np.int32)]),
        DataType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
        DataType.QINT16: np.dtype([("qint16", np.int16)]),
        DataType.QUINT16: np.dtype([("quint16", np.uint16)]),
        DataType.UINT16: np.dtype(np.uint16),
        DataType.COMPLEX128: np.dtype(np.complex128),
        DataType.HALF: np.dtype(np.float16),
        DataType.UINT32: np.dtype(np.uint32),
        DataType.UINT64: np.dtype(np.uint64),
        DataType.FLOAT8_E5M2: np.dtype(ml_dtypes.float8_e5m2),
        DataType.FLOAT8_E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
        DataType.FLOAT8_E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
        DataType.FLOAT8_E4M3B11FNUZ: np.dtype(ml_dtypes.float8_e4m3b11fnuz),
        DataType.FLOAT8_E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
        DataType.INT4: np.dtype(ml_dtypes.int4),
        DataType.UINT4: np.dtype(ml_dtypes.uint4),
        DataType.INT2: np.dtype(ml_dtypes.int2),
        DataType.UINT2: np.dtype(ml_dtypes.uint2),
        DataType.FLOAT4_E2M1FN: np.dtype(ml_dtypes.float4_e2m1fn),
    }
)
_BY_NUMPY_DTYPE = MappingProxyType({dtype: data_type for data_type, dtype in _NUMPY_DTYPE.items()})


def data_type_of(tensor: Tensor) -> DataType:
    """The TensorFlow dtype of an array; text and bytes arrays count as STRING.

    Raises:
        TypeError: no TensorFlow dtype has this numpy dtype.
    """
    found = _BY_NUMPY_DTYPE.get(tensor.dtype)
    if found is not None:
        return found
    if tensor.dtype.kind in "SU":
        return DataType.STRING
    raise TypeError(f"no TensorFlow dtype stores numpy dtype {tensor.dtype}")
