"""Bodies of status and metadata, byte for byte."""

import json

import numpy as np
import pytest

from aspira.contracts.errors import Code
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.contracts.signatures import REGRESS_METHOD, Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensor
from aspira.frontends.rest.status_json import VersionStatus, encode_metadata, encode_model_status

MODEL = ServableId(ModelName("half"), Version(123))


def test_status() -> None:
    body = encode_model_status([VersionStatus(123, "AVAILABLE", Code.OK, "")])
    assert body.decode() == (
        '{\n "model_version_status": [\n  {\n   "version": "123",\n   "state": "AVAILABLE",\n'
        '   "status": {\n    "error_code": "OK",\n    "error_message": ""\n   }\n  }\n ]\n}\n'
    )


def test_newest_version_comes_first() -> None:
    statuses = [VersionStatus(number, "END", Code.ABORTED, "gone") for number in (9, 10, 1)]
    entries = json.loads(encode_model_status(statuses))["model_version_status"]
    assert [entry["version"] for entry in entries] == ["10", "9", "1"]
    assert entries[0]["status"] == {"error_code": "ABORTED", "error_message": "gone"}


def test_no_versions() -> None:
    assert encode_model_status([]) == b'{\n "model_version_status": []\n}\n'


def test_unsafe_characters_are_escaped() -> None:
    body = encode_model_status([VersionStatus(1, "END", Code.UNKNOWN, '<a>"\x7f\u2028é\udcff\x01')])
    assert '"error_message": "\\u003ca\\u003e\\"\\u007f\\u2028é?\\u0001"'.encode() in body


def test_metadata() -> None:
    signature = Signature(
        inputs={"x": TensorSpec(DataType.FLOAT, (None, 1), "x2:0")},
        outputs={"y": TensorSpec(DataType.STRING, None, "y3:0")},
        method_name=REGRESS_METHOD,
    )
    body = encode_metadata(MODEL, signatures={"serving_default": signature})
    assert body.decode() == (
        '{\n"model_spec":{\n "name": "half",\n "signature_name": "",\n "version": "123"\n}\n,\n'
        '"metadata": {"signature_def": {\n "signature_def": {\n  "serving_default": {\n'
        '   "inputs": {\n    "x": {\n     "dtype": "DT_FLOAT",\n     "tensor_shape": {\n'
        '      "dim": [\n       {\n        "size": "-1",\n        "name": ""\n       },\n'
        '       {\n        "size": "1",\n        "name": ""\n       }\n      ],\n'
        '      "unknown_rank": false\n     },\n     "name": "x2:0"\n    }\n   },\n'
        '   "outputs": {\n    "y": {\n     "dtype": "DT_STRING",\n     "tensor_shape": {\n'
        '      "dim": [],\n      "unknown_rank": true\n     },\n     "name": "y3:0"\n    }\n   },\n'
        '   "method_name": "tensorflow/serving/regress",\n   "defaults": {}\n  }\n }\n}\n}\n}\n'
    )


def test_metadata_is_sorted_by_name() -> None:
    scalar = TensorSpec(DataType.INVALID, ())
    signature = Signature(inputs={}, outputs={"b": scalar, "a": scalar}, method_name="")
    body = encode_metadata(MODEL, signatures={"second": signature, "first": signature})
    signatures = json.loads(body)["metadata"]["signature_def"]["signature_def"]
    assert list(signatures) == ["first", "second"]
    assert list(signatures["first"]["outputs"]) == ["a", "b"]
    assert signatures["first"]["inputs"] == {}
    assert signatures["first"]["outputs"]["a"]["tensor_shape"] == {"dim": [], "unknown_rank": False}


def printed_defaults(defaults: dict[str, Tensor]) -> str:
    """The part of a metadata body from the `defaults` of its one signature on."""
    signature = Signature(inputs={}, outputs={}, method_name="", defaults=defaults)
    body = encode_metadata(MODEL, signatures={"only": signature}).decode()
    return body[body.index('   "defaults": ') :]


def test_a_default_is_printed_whole() -> None:
    assert printed_defaults({"x": np.array([7, -2], np.int64)}) == (
        '   "defaults": {\n    "x": {\n     "dtype": "DT_INT64",\n     "tensor_shape": {\n'
        '      "dim": [\n       {\n        "size": "2",\n        "name": ""\n       }\n      ],\n'
        '      "unknown_rank": false\n     },\n     "version_number": 0,\n'
        '     "tensor_content": "",\n     "float_val": [],\n     "double_val": [],\n'
        '     "int_val": [],\n     "string_val": [],\n     "scomplex_val": [],\n'
        '     "int64_val": [\n      "7",\n      "-2"\n     ],\n     "bool_val": [],\n'
        '     "dcomplex_val": [],\n     "half_val": [],\n     "resource_handle_val": [],\n'
        '     "variant_val": [],\n     "uint32_val": [],\n     "uint64_val": [],\n'
        '     "float8_val": ""\n    }\n   }\n  }\n }\n}\n}\n}\n'
    )


@pytest.mark.parametrize(
    ("tensor", "field", "values"),
    [
        (np.array([b"\xff", b"a"], object), "string_val", ["/w==", "YQ=="]),
        (np.array([0.1, np.nan, -np.inf], np.float32), "float_val", [0.1, "NaN", "-Infinity"]),
        (np.array(True), "bool_val", [True]),
        (np.array(5, np.int32), "int_val", [5]),
    ],
)
def test_defaults_are_printed_by_type(tensor: Tensor, field: str, values: list[object]) -> None:
    text = printed_defaults({"b": tensor, "a": tensor}).removeprefix('   "defaults": ')
    defaults, _ = json.JSONDecoder().raw_decode(text)
    assert list(defaults) == ["a", "b"]
    assert defaults["a"][field] == values


def test_metadata_without_signatures() -> None:
    body = encode_metadata(MODEL, signatures={})
    assert body.endswith(b'"metadata": {"signature_def": {\n "signature_def": {}\n}\n}\n}\n')
