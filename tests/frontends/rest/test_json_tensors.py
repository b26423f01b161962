"""Predict bodies to tensors: values, shapes and every error text."""

import math

import numpy as np
import pytest

from aspira.contracts.errors import InvalidArgument, ServingError, Unimplemented
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType
from aspira.frontends.rest.json_tensors import (
    DecodedInputs,
    InferenceBody,
    decode_inputs,
    parse_inference_body,
)


def signature_of(**dtypes: DataType) -> Signature:
    return Signature({name: TensorSpec(dtype, None) for name, dtype in dtypes.items()}, {})


FLOAT = signature_of(x=DataType.FLOAT)
INT32 = signature_of(x=DataType.INT32)
STRING = signature_of(x=DataType.STRING)
PAIR = signature_of(b=DataType.FLOAT, a=DataType.INT64)


def decode(body: str | bytes, signature: Signature) -> DecodedInputs:
    raw = body.encode() if isinstance(body, str) else body
    return decode_inputs(parse_inference_body(raw), signature=signature)


def error_of(body: str | bytes, signature: Signature = FLOAT) -> ServingError:
    with pytest.raises(ServingError) as caught:
        decode(body, signature)
    return caught.value


def column(value: str, dtype: DataType) -> np.ndarray:
    return decode(f'{{"inputs": {value}}}', signature_of(x=dtype)).inputs["x"]


def column_error(value: str, dtype: DataType) -> str:
    return error_of(f'{{"inputs": {value}}}', signature_of(x=dtype)).message


def row_error(instances: str, signature: Signature = FLOAT) -> str:
    error = error_of(f'{{"instances": {instances}}}', signature)
    assert isinstance(error, InvalidArgument)
    return error.message


def test_signature_name() -> None:
    assert parse_inference_body(b'{"signature_name": "s"}').signature_name == "s"
    assert parse_inference_body(b'{"other": 1}') == InferenceBody("", {"other": 1})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[1]", "JSON Value: [1] Is not object"),
        (b"1.5", "JSON Value: 1.5 Is not object"),
        (
            b'{"signature_name": 5}',
            (
                'JSON Value: {\n    "signature_name": 5\n} not formatted correctly. '
                "'signature_name' key must be a string value."
            ),
        ),
        (b"", "JSON Parse error: The document is empty"),
    ],
)
def test_bodies_refused_before_the_signature_is_known(body: bytes, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_inference_body(body)
    assert caught.value.message == message


@pytest.mark.parametrize(("name", "shown"), [("", "DEFAULT"), ("sig", "sig")])
def test_signature_without_inputs(name: str, shown: str) -> None:
    error = error_of(f'{{"signature_name": "{name}"}}', Signature({}, {}))
    assert isinstance(error, InvalidArgument)
    assert error.message == f"Failed to get input map for signature: {shown}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{}", "Missing 'inputs' or 'instances' key"),
        (
            '{"inputs": 1, "instances": 2}',
            (
                'JSON Value: {\n    "inputs": 1,\n    "instances": 2\n} Not formatted correctly '
                "expecting only one of 'inputs' or 'instances' keys to exist "
            ),
        ),
        (
            '{"instances": {}}',
            "JSON Value: {\n    \"instances\": {}\n} Expecting 'instances' to be an list/array",
        ),
        (
            '{"instances": []}',
            "JSON Value: {\n    \"instances\": []\n} No values in 'instances' array",
        ),
    ],
)
def test_keys(body: str, message: str) -> None:
    error = error_of(body)
    assert isinstance(error, InvalidArgument)
    assert error.message == message


@pytest.mark.parametrize(
    ("instances", "shape"),
    [
        ("[1]", (1,)),
        ("[1.5, 2]", (2,)),
        ("[[1, 2], [3, 4]]", (2, 2)),
        ("[[]]", (1, 0)),
        ("[[[]], [[]]]", (2, 1, 0)),
    ],
)
def test_rows(instances: str, shape: tuple[int, ...]) -> None:
    decoded = decode(f'{{"instances": {instances}}}', FLOAT)
    assert decoded.is_row_format
    assert list(decoded.inputs) == ["x"]
    assert decoded.inputs["x"].dtype == np.float32
    assert decoded.inputs["x"].shape == shape


def test_named_rows() -> None:
    decoded = decode('{"instances": [{"a": 1, "b": [2, 2.5]}, {"b": [3, 4], "a": 5}]}', PAIR)
    assert list(decoded.inputs) == ["b", "a"]
    np.testing.assert_array_equal(decoded.inputs["a"], np.array([1, 5], np.int64))
    np.testing.assert_array_equal(decoded.inputs["b"], np.float32([[2, 2.5], [3, 4]]))


def test_named_rows_with_base64() -> None:
    signature = signature_of(image=DataType.STRING, size=DataType.INT32)
    body = '{"instances": [{"image": {"b64": "aGk="}, "size": 1}, {"image": "x", "size": 2}]}'
    decoded = decode(body, signature)
    assert decoded.inputs["image"].tolist() == [b"hi", b"x"]
    assert decoded.inputs["size"].tolist() == [1, 2]


def test_an_input_named_b64() -> None:
    signature = signature_of(b64=DataType.STRING)
    assert decode('{"instances": [{"b64": "aGk="}]}', signature).inputs["b64"].tolist() == [b"hi"]
    named = decode('{"instances": [{"b64": ["aGk="]}]}', signature)
    assert named.inputs["b64"].tolist() == [[b"aGk="]]
    body = '{"instances": [{"b64": ["aGk="]}, {"b64": "aGk="}]}'
    assert error_of(body, signature).message == (
        "Expecting object but got list at item 1 of input list"
    )


def test_defaults_do_not_apply() -> None:
    specs = {"a": TensorSpec(DataType.FLOAT, None), "b": TensorSpec(DataType.FLOAT, None)}
    signature = Signature(specs, {}, defaults={"b": np.zeros(1, np.float32)})
    assert row_error('[{"a": 1}]', signature).endswith(" keys must be equal to: a,b")
    assert error_of('{"inputs": {"a": 1}}', signature).message == (
        "Missing named input: b in 'inputs' object."
    )


PREFIX = "Failed to process element: "
PLAIN_LIST = (
    "instances is a plain list, but expecting list of objects as multiple input tensors "
    "required as per tensorinfo_map"
)


@pytest.mark.parametrize(
    ("instances", "signature", "message"),
    [
        (
            "[1]",
            PAIR,
            PLAIN_LIST,
        ),
        (
            '[{"b64": "aGk="}]',
            PAIR,
            PLAIN_LIST,
        ),
        (
            '[{"a": 1, "b": 1}, 5]',
            PAIR,
            "Expecting object but got list at item 1 of input list",
        ),
        ('[1, {"x": 1}]', FLOAT, "Expecting value/list but got object at item 1 of input list"),
        (
            '[{"a": 1, "b": 1}, {"a": 1.5, "b": 1}]',
            PAIR,
            PREFIX + "1 key: a of 'instances' list. Error: INVALID_ARGUMENT: "
            "JSON Value: 1.5 Type: Number is not of expected type: int64",
        ),
        (
            '[1, "x", null]',
            FLOAT,
            PREFIX + "1 of 'instances' list. Error: INVALID_ARGUMENT: "
            'JSON Value: "x" Type: String is not of expected type: float',
        ),
        (
            '[{"a": 1, "b": 1}, {"a": 1}]',
            PAIR,
            PREFIX + "1 of 'instances' list. JSON object: {\n    \"a\": 1\n} "
            "keys must be equal to: a,b",
        ),
        (
            '[{"a": 1, "b": 1, "c": 1}]',
            PAIR,
            PREFIX + "0 key: c of 'instances' list. Error: INVALID_ARGUMENT: "
            "JSON object: does not have named input: c",
        ),
        (
            '[{"a": 1, "c": 1}]',
            PAIR,
            PREFIX + "0 key: c of 'instances' list. Error: INVALID_ARGUMENT: "
            "JSON object: does not have named input: c",
        ),
        (
            "[[1, 2], [3]]",
            FLOAT,
            PREFIX + "1 of 'instances' list. Error: INVALID_ARGUMENT: "
            "Expecting tensor size: 2 but got: 1",
        ),
        (
            "[1, [2]]",
            FLOAT,
            PREFIX + "1 of 'instances' list. Error: INVALID_ARGUMENT: "
            "Expecting shape [] but got: [1]",
        ),
        (
            "[[1, 2], [[3, 4]]]",
            FLOAT,
            PREFIX + "1 of 'instances' list. Error: INVALID_ARGUMENT: "
            "Expecting shape [2] but got: [1,2]",
        ),
        (
            "[[[1], [2, 3]]]",
            FLOAT,
            PREFIX + "0 of 'instances' list. Error: INVALID_ARGUMENT: "
            "Encountered list at unexpected size: 2 at level: 1 expected size: 1",
        ),
        (
            "[1]",
            signature_of(x=DataType.HALF),
            PREFIX + "0 of 'instances' list. Error: UNIMPLEMENTED: "
            "Conversion of JSON Value: 1 to type: half",
        ),
    ],
)
def test_row_errors(instances: str, signature: Signature, message: str) -> None:
    assert row_error(instances, signature) == message


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ('{"inputs": 1}', ()),
        ('{"inputs": [1, 2]}', (2,)),
        ('{"inputs": {"x": [[1], [2]]}}', (2, 1)),
        ('{"inputs": {"x": 1, "extra": []}}', ()),
        ('{"inputs": []}', (0,)),
        ('{"inputs": [[], []]}', (2, 0)),
    ],
)
def test_columns(body: str, shape: tuple[int, ...]) -> None:
    decoded = decode(body, FLOAT)
    assert not decoded.is_row_format
    assert decoded.inputs["x"].shape == shape
    assert decoded.inputs["x"].dtype == np.float32


def test_several_columns_may_differ_in_size() -> None:
    decoded = decode('{"inputs": {"a": [1, 2, 3], "b": 0.5}}', PAIR)
    assert decoded.inputs["a"].tolist() == [1, 2, 3]
    assert decoded.inputs["b"].tolist() == 0.5


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            '{"inputs": [1]}',
            (
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            ),
        ),
        (
            '{"inputs": {"b64": "aGk="}}',
            (
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            ),
        ),
        ('{"inputs": {"b": 1}}', "Missing named input: a in 'inputs' object."),
    ],
)
def test_column_errors(body: str, message: str) -> None:
    assert error_of(body, PAIR).message == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "[[1], 2]",
            "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
        ),
        ("[1, [2]]", "Encountered list at unexpected level: 1 expected < 1"),
        ("[[1], [2, 3]]", "Encountered list at unexpected size: 2 at level: 1 expected size: 1"),
        ("[[], [1]]", "Encountered list at unexpected size: 1 at level: 1 expected size: 0"),
        (
            "[[], 1]",
            "JSON Value: 1 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
        ),
        ("[1, null]", "JSON Value: null Type: Null is not of expected type: float"),
        ("[1, true]", "JSON Value: true Type: True is not of expected type: float"),
        ("[1.5, false]", "JSON Value: false Type: False is not of expected type: float"),
        ('["1.5"]', 'JSON Value: "1.5" Type: String is not of expected type: float'),
        (
            '[{"b64": "aGk="}]',
            'JSON Value: {\n    "b64": "aGk="\n} Type: Object is not of expected type: float',
        ),
    ],
)
def test_shape_and_type_errors(value: str, message: str) -> None:
    assert column_error(value, DataType.FLOAT) == message


@pytest.mark.parametrize("dtype", [DataType.INT32, DataType.INT64, DataType.UINT8])
@pytest.mark.parametrize("token", ["1.0", "1e3", "NaN"])
def test_decimals_are_no_integers(dtype: DataType, token: str) -> None:
    message = column_error(f"[1, {token}]", dtype)
    assert message.endswith(f"Type: Number is not of expected type: {dtype.short_name}")


@pytest.mark.parametrize(
    ("dtype", "minimum", "maximum"),
    [
        (DataType.INT8, -(2**7), 2**7 - 1),
        (DataType.INT16, -(2**15), 2**15 - 1),
        (DataType.INT32, -(2**31), 2**31 - 1),
        (DataType.INT64, -(2**63), 2**63 - 1),
        (DataType.UINT8, 0, 2**8 - 1),
        (DataType.UINT32, 0, 2**32 - 1),
        (DataType.UINT64, 0, 2**64 - 1),
    ],
)
def test_integer_limits(dtype: DataType, minimum: int, maximum: int) -> None:
    found = column(f"[{minimum}, {maximum}]", dtype)
    assert found.dtype == dtype.numpy_dtype
    assert found.tolist() == [minimum, maximum]
    for beyond in (minimum - 1, maximum + 1):
        message = column_error(f"[0, {beyond}]", dtype)
        assert f"type: {dtype.short_name}" in message
        assert message.startswith("JSON Value: ")


@pytest.mark.parametrize("dtype", [DataType.INT8, DataType.INT16, DataType.UINT8])
def test_narrow_integers_do_not_wrap(dtype: DataType) -> None:
    assert column_error("[70000]", dtype) == (
        f"JSON Value: 70000 is out of range for type: {dtype.short_name}"
    )
    assert column_error("[3000000000]", dtype) == (
        f"JSON Value: 3000000000 Type: Number is not of expected type: {dtype.short_name}"
    )


def test_floats() -> None:
    found = column("[1, 2.5, NaN, Infinity, -Infinity, 1e300, -1e300, 1e-300]", DataType.FLOAT)
    expected = [1, 2.5, math.nan, math.inf, -math.inf, math.inf, -math.inf, 0]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))
    assert column("[18446744073709551615, 0.1]", DataType.DOUBLE).tolist() == [2.0**64, 0.1]


def test_booleans() -> None:
    assert column("[[true], [false]]", DataType.BOOL).tolist() == [[True], [False]]
    assert column_error("[true, 1]", DataType.BOOL) == (
        "JSON Value: 1 Type: Number is not of expected type: bool"
    )


def test_strings_are_bytes() -> None:
    found = decode(b'{"instances": [["a\\u0000", "\xc3\xa9"], ["\xff", {"b64": "/w"}]]}', STRING)
    assert found.inputs["x"].dtype == np.object_
    assert found.inputs["x"].tolist() == [[b"a\0", "é".encode()], [b"\xff", b"\xff"]]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", b""),
        ("aGk=", b"hi"),
        ("aGk", b"hi"),
        (" aG\\n\\tk = ", b"hi"),
        ("+/+/", b"\xfb\xff\xbf"),
        ("aA==", b"h"),
        ("aA", b"h"),
    ],
)
def test_base64(text: str, value: bytes) -> None:
    assert column(f'{{"b64": "{text}"}}', DataType.STRING).tolist() == value
    assert column(f'[{{"b64": "{text}"}}]', DataType.STRING).tolist() == [value]


@pytest.mark.parametrize("text", ["a", "aA=", "aGk==", "-_-_", "a*==", "=", "aG=k", "é", "aGkh="])
def test_undecodable_base64(text: str) -> None:
    assert column_error(f'{{"b64": "{text}"}}', DataType.STRING) == "Unable to base64 decode"


@pytest.mark.parametrize("value", ['{"b64": 1}', '{"b64": "aGk=", "c": 1}', "{}"])
def test_malformed_base64_objects(value: str) -> None:
    message = column_error(f"[{value}]", DataType.STRING)
    assert message.startswith("JSON Value: {")
    assert message.endswith("} not formatted correctly for base64 data")


@pytest.mark.parametrize(
    "dtype",
    [DataType.HALF, DataType.BFLOAT16, DataType.UINT16, DataType.COMPLEX64, DataType.VARIANT],
)
def test_unsupported_types(dtype: DataType) -> None:
    error = error_of('{"inputs": [1.5]}', signature_of(x=dtype))
    assert isinstance(error, Unimplemented)
    assert error.message == f"Conversion of JSON Value: 1.5 to type: {dtype.short_name}"


def test_ranks_beyond_numpy_are_refused() -> None:
    assert column("[" * 64 + "1" + "]" * 64, DataType.FLOAT).ndim == 64
    message = column_error("[" * 65 + "1" + "]" * 65, DataType.FLOAT)
    assert message.endswith(" has 65 dimensions, more than the 64 that are supported")
    message = row_error("[" * 65 + "1" + "]" * 65)
    assert message.endswith(" has 64 dimensions, more than the 63 that are supported")
    assert "1000 dimensions" in column_error("[" * 1000 + "]" * 1000, DataType.FLOAT)
