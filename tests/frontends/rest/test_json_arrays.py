"""Which large bodies are read in pieces, and that nothing else is."""

import json

import numpy as np
import pytest

from aspira.contracts.errors import ServingError
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType
from aspira.frontends.rest import json_arrays
from aspira.frontends.rest.json_arrays import MIN_ARRAY_BYTES, try_read_document
from aspira.frontends.rest.json_tensors import (
    DecodedInputs,
    decode_inputs,
    parse_inference_body,
    parse_predict_body,
)

FLOAT = Signature({"x": TensorSpec(DataType.FLOAT, None)}, {})
PAIR = Signature({"x": TensorSpec(DataType.FLOAT, None), "y": TensorSpec(DataType.INT64, None)}, {})
SHAPES = [(4,), (1, 4), (2, 3), (3, 1, 2), (1, 1, 1, 5), (2, 2, 2, 3)]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything counts as large, and is read a few numbers at a time."""
    monkeypatch.setattr(json_arrays, "MIN_ARRAY_BYTES", 1)
    monkeypatch.setattr(json_arrays, "_BYTES_PER_QUOTE", 0)
    monkeypatch.setattr(json_arrays, "_PIECE_BYTES", 7)


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape) * 1.5 - 1


def decode_both_ways(body: bytes, signature: Signature = FLOAT) -> DecodedInputs:
    """What both readers say; they have to agree."""
    document = try_read_document(body)
    assert document is not None
    in_pieces = decode_inputs(
        parse_inference_body(b"{}")._replace(document=document, text=body), signature=signature
    )
    whole = decode_inputs(parse_inference_body(body), signature=signature)
    assert in_pieces.is_row_format == whole.is_row_format
    for name, tensor in whole.inputs.items():
        np.testing.assert_array_equal(in_pieces.inputs[name], tensor, strict=True)
    return in_pieces


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_arrays_of_any_shape_and_layout(
    shape: tuple[int, ...], indent: int | None, key: str
) -> None:
    body = json.dumps({"signature_name": "a", key: numbers(shape).tolist()}, indent=indent).encode()
    document = try_read_document(body)
    assert document is not None
    assert document["signature_name"] == "a"
    found = document[key]
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, numbers(shape), strict=True)
    assert decode_both_ways(body).inputs["x"].shape == shape


@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_inputs_may_have_names(key: str) -> None:
    x, y = numbers((2, 3)).tolist(), [[1, 2], [3, 4]]
    rows = [{"x": x, "y": y}, {"y": y, "x": x}]
    body = json.dumps({key: rows if key == "instances" else rows[0]}).encode()
    inputs = decode_both_ways(body, PAIR).inputs
    assert inputs["x"].shape == ((2, 2, 3) if key == "instances" else (2, 3))
    assert inputs["y"].dtype == np.int64


def test_a_small_value_may_stand_beside_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_arrays, "MIN_ARRAY_BYTES", 40)
    body = json.dumps({"inputs": {"x": numbers((20,)).tolist(), "y": [7]}}).encode()
    assert decode_both_ways(body, PAIR).inputs["y"].tolist() == [7]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ("[1, -2, 3]", DataType.FLOAT),
        ("[1, -2, 3]", DataType.DOUBLE),
        ("[9007199254740993, -9223372036854775808]", DataType.INT64),
        ("[9007199254740993, 0.5]", DataType.FLOAT),
        ("[16777217, 36028799166447617]", DataType.FLOAT),
        ("[-2147483648, 2147483647]", DataType.INT32),
        ("[0, 255]", DataType.UINT8),
        ("[-128, 127]", DataType.INT8),
        ("[0, 4294967295]", DataType.UINT32),
        ("[1e300, -1e300, 1e-300, 3.4028235677973366e38]", DataType.FLOAT),
        ("[0.1, 1E5, -0.0, 5e-324]", DataType.DOUBLE),
    ],
)
def test_numbers_are_those_of_the_general_reader(values: str, dtype: DataType) -> None:
    signature = Signature({"x": TensorSpec(dtype, None)}, {})
    decode_both_ways(b'{"instances": %b}' % values.encode(), signature)


@pytest.mark.parametrize(
    "body",
    [
        '{"instances": [[1, 2], [3]]}',
        '{"instances": [[1, 2], 3]}',
        '{"instances": [1, 2}',
        '{"instances": [1[, ]2]}',
        '{"instances": [[1, 2] 3]}',
        '{"instances": [1 2, 3]}',
        '{"instances": [1, 2,]}',
        '{"instances": [, 1]}',
        '{"instances": []}',
        '{"instances": [[], []]}',
        '{"instances": [1][2]}',
        '{"instances": [01, 2]}',
        '{"instances": [1., 2]}',
        '{"instances": [1, NaN]}',
        '{"instances": [true, 1]}',
        '{"instances": [null]}',
        '{"instances": ["a", 1, 2]}',
        '{"instances": [18446744073709551615, 1]}',
        '{"instances": [1, 2]} trailing',
        '{"instances": [1, 2], "instances": [3, 4]}',
        '{"instances": [1, 2], "b": "\\\\0"}',
        '[[1, 2], [3, 4]]',
        '{"instances": [[1, 2], {"x": 1}]}',
        '{"instances": [{"x": {"x": [1, 2]}}]}',
        '{"in": 5}',
    ],
)  # fmt: skip
def test_everything_else_is_left_to_the_general_reader(body: str) -> None:
    assert try_read_document(body.encode()) is None


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        ('{"instances": [1, 2], "inputs": [1, 2]}', FLOAT),
        ('{"instances": [1, 2]}', PAIR),
        ('{"inputs": [1, 2]}', PAIR),
        ('{"inputs": {"x": [1, 2]}}', PAIR),
        ('{"other": [1, 2]}', FLOAT),
        ('{"instances": [{"x": [1, 2]}, {"x": [1]}]}', FLOAT),
        ('{"instances": [{"x": [1, 2]}, {"z": [1, 2]}]}', FLOAT),
        ('{"instances": [1.5]}', Signature({"x": TensorSpec(DataType.INT32, None)}, {})),
        ('{"instances": [300]}', Signature({"x": TensorSpec(DataType.UINT8, None)}, {})),
        ('{"instances": [1]}', Signature({"x": TensorSpec(DataType.STRING, None)}, {})),
        ('{"instances": [1]}', Signature({"x": TensorSpec(DataType.HALF, None)}, {})),
    ],
)
def test_errors_are_those_of_the_general_reader(body: str, signature: Signature) -> None:
    document = try_read_document(body.encode())
    assert document is not None
    with pytest.raises(ServingError) as expected:
        decode_inputs(parse_inference_body(body.encode()), signature=signature)
    parsed = parse_inference_body(b"{}")._replace(document=document, text=body.encode())
    with pytest.raises(ServingError) as found:
        decode_inputs(parsed, signature=signature)
    assert (found.value.code, found.value.message) == (expected.value.code, expected.value.message)


def test_only_a_large_body_is_read_in_pieces() -> None:
    row = b"0.5," * (MIN_ARRAY_BYTES // 4)
    assert parse_predict_body(b'{"instances": [0.5, 1.5]}').text == b""
    large = b'{"instances": [%b1]}' % row
    assert parse_predict_body(large).text == large
