import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from aspira.contracts.tensors import DataType, data_type_of

CARRIED = [data_type for data_type in DataType if data_type.numpy_dtype is not None]


def numpy_dtype_of_tensorflow(data_type: DataType) -> np.dtype | None:
    """What TensorFlow's Python calls the dtype; None where this TensorFlow does not know it."""
    try:
        return np.dtype(tf.dtypes.as_dtype(data_type.value).as_numpy_dtype)
    except (TypeError, KeyError):
        return None


def test_numbers_and_names_are_tensorflows() -> None:
    named = {name: number for name, number in types_pb2.DataType.items() if "_REF" not in name}
    assert {data_type.wire_name: data_type.value for data_type in DataType} == named


@pytest.mark.parametrize("data_type", CARRIED)
def test_numpy_dtypes_are_tensorflows(data_type: DataType) -> None:
    expected = numpy_dtype_of_tensorflow(data_type)
    if expected is None:
        assert data_type is DataType.FLOAT4_E2M1FN
    else:
        assert data_type.numpy_dtype == expected


@pytest.mark.parametrize("data_type", [DataType.INVALID, DataType.RESOURCE, DataType.VARIANT])
def test_what_no_array_can_carry(data_type: DataType) -> None:
    assert data_type.numpy_dtype is None


@pytest.mark.parametrize("data_type", CARRIED)
def test_an_array_tells_its_data_type(data_type: DataType) -> None:
    assert data_type_of(np.zeros((2, 0, 3), data_type.numpy_dtype)) is data_type


@pytest.mark.parametrize("strings", [np.array(["a", "bc"]), np.array([b"a"]), np.array("a")])
def test_text_arrays_are_strings(strings: np.ndarray) -> None:
    assert data_type_of(strings) is DataType.STRING


@pytest.mark.parametrize("name", ["datetime64[s]", "timedelta64[s]", "longdouble", "f4,f4"])
def test_other_arrays_are_refused_by_name(name: str) -> None:
    tensor = np.zeros(2, name)
    with pytest.raises(TypeError) as caught:
        data_type_of(tensor)
    assert str(caught.value) == f"no TensorFlow dtype stores numpy dtype {tensor.dtype}"


@pytest.mark.parametrize(
    ("data_type", "wire_name", "short_name"),
    [
        (DataType.FLOAT, "DT_FLOAT", "float"),
        (DataType.INT64, "DT_INT64", "int64"),
        (DataType.BFLOAT16, "DT_BFLOAT16", "bfloat16"),
        (DataType.FLOAT8_E4M3FN, "DT_FLOAT8_E4M3FN", "float8_e4m3fn"),
    ],
)
def test_names(data_type: DataType, wire_name: str, short_name: str) -> None:
    assert data_type.wire_name == wire_name
    assert data_type.short_name == short_name
