"""What is written as JSON reads back the same, and no body can raise anything but ServingError."""

import contextlib
import json
from collections.abc import Callable
from functools import partial

import hypothesis.extra.numpy as numpy_strategies
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aspira.contracts.errors import ServingError
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType
from aspira.frontends.rest.json_large_document import parse_large_document
from aspira.frontends.rest.json_response import encode_error, encode_predictions
from aspira.frontends.rest.json_scanner import Scanner
from aspira.frontends.rest.json_tensors import decode_inputs, parse_inference_body

NUMBER_TYPES = (
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
)
SHAPES = numpy_strategies.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=7)


def read_back(outputs: dict[str, np.ndarray], *, is_row_format: bool) -> dict[str, np.ndarray]:
    """The answer of an identity model, taken as a request."""
    body = encode_predictions(outputs, is_row_format=is_row_format)
    answered, asked = (b"predictions", b"instances") if is_row_format else (b"outputs", b"inputs")
    request = body.replace(answered, asked, 1)
    specs = {name: TensorSpec(type_of(tensor), None) for name, tensor in outputs.items()}
    decoded = decode_inputs(parse_inference_body(request), signature=Signature(specs, {}))
    assert decoded.is_row_format == is_row_format
    return decoded.inputs


def type_of(tensor: np.ndarray) -> DataType:
    if tensor.dtype == np.object_:
        return DataType.STRING
    return next(data_type for data_type in NUMBER_TYPES if data_type.numpy_dtype == tensor.dtype)


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        np.testing.assert_array_equal(found[name], tensor, strict=True)


@pytest.mark.parametrize("is_row_format", [True, False])
@pytest.mark.parametrize("data_type", NUMBER_TYPES)
@given(data=st.data())
def test_numbers_round_trip(data_type: DataType, is_row_format: bool, data: st.DataObject) -> None:
    dtype = data_type.numpy_dtype
    assert dtype is not None
    tensor = data.draw(numpy_strategies.arrays(dtype, SHAPES))
    outputs = {"x": tensor, "y": tensor.reshape(len(tensor), -1)}
    assert_same(read_back(outputs, is_row_format=is_row_format), outputs)
    alone = {"x": tensor}
    assert_same(read_back(alone, is_row_format=is_row_format), alone)


@pytest.mark.parametrize("name", ["text", "raw_bytes"])
@pytest.mark.parametrize("is_row_format", [True, False])
@given(data=st.data())
def test_strings_round_trip(name: str, is_row_format: bool, data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    tensor = data.draw(numpy_strategies.arrays(np.object_, shape, elements=st.binary(max_size=20)))
    for outputs in ({name: tensor}, {name: tensor, "other": np.zeros(shape[0], np.int64)}):
        assert_same(read_back(outputs, is_row_format=is_row_format), outputs)


@given(values=numpy_strategies.arrays(np.float64, st.integers(1, 200)))
def test_answers_are_json(values: np.ndarray) -> None:
    document = json.loads(encode_predictions({"x": values}, is_row_format=True))
    np.testing.assert_array_equal(np.array(document["predictions"]), values)


@given(message=st.text())
def test_error_messages_survive(message: str) -> None:
    body = encode_error(message).decode("utf-8", "surrogateescape")
    assert json.loads(body) == {"error": message}


SIGNATURES = st.sampled_from(
    [
        Signature({name: TensorSpec(dtype, None) for name in names}, {})
        for names in (("x",), ("b64",), ("x", "y"))
        for dtype in (*NUMBER_TYPES, DataType.STRING, DataType.HALF, DataType.VARIANT)
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.just({"b64": "aGk="}),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["x", "y", "b64", "z"]), inner, max_size=3),
    ),
    max_leaves=12,
)


def try_decode(body: bytes, signature: Signature) -> None:
    with contextlib.suppress(ServingError):
        decode_inputs(parse_inference_body(body), signature=signature)


@given(key=st.sampled_from(["instances", "inputs"]), value=VALUES, signature=SIGNATURES)
def test_any_values_decode_or_raise_serving_errors(
    key: str, value: object, signature: Signature
) -> None:
    try_decode(json.dumps({key: value}).encode(), signature)


@given(value=VALUES, cut=st.integers(0, 200), noise=st.binary(max_size=6), signature=SIGNATURES)
def test_damaged_bodies_decode_or_raise_serving_errors(
    value: object, cut: int, noise: bytes, signature: Signature
) -> None:
    body = json.dumps({"signature_name": "s", "instances": value}).encode()
    try_decode(body[:cut] + noise + body[cut:], signature)
    try_decode(body[:cut] + noise, signature)


@given(body=st.binary(max_size=60), signature=SIGNATURES)
def test_random_bytes_decode_or_raise_serving_errors(body: bytes, signature: Signature) -> None:
    try_decode(body, signature)


TOKENS = st.sampled_from(
    [b"[", b"]", b"{", b"}", b",", b":", b'"', b'"a"', b"\\", b"\\u12", b"\\ud800", b"1", b"-",
     b".5", b"e9", b"NaN", b"Inf", b"inity", b"true", b"null", b" ", b"\xff", b"\0"]
)  # fmt: skip


@given(tokens=st.lists(TOKENS, max_size=12), signature=SIGNATURES)
def test_random_tokens_decode_or_raise_serving_errors(
    tokens: list[bytes], signature: Signature
) -> None:
    try_decode(b"".join(tokens), signature)
    try_decode(b'{"inputs":' + b"".join(tokens) + b"}", signature)


def read_or_refuse(parse: Callable[[], object]) -> str:
    """The value, or the error's text; `NaN` is not equal to itself but looks the same."""
    try:
        return repr(parse())
    except ServingError as error:
        return f"refused: {error.message}"


@given(tokens=st.lists(TOKENS, max_size=12))
def test_large_bodies_are_read_and_refused_as_small_ones(tokens: list[bytes]) -> None:
    for body in (b"".join(tokens), b'{"inputs":[' + b"".join(tokens)):
        scanned = read_or_refuse(Scanner(body).scan)
        assert read_or_refuse(partial(parse_large_document, body)) == scanned
