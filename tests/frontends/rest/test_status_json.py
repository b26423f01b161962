"""Bodies of status and metadata, byte for byte."""

import json

from aspira.contracts.errors import Code
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.contracts.signatures import REGRESS_METHOD, Signature, TensorSpec
from aspira.contracts.tensors import DataType
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


def test_metadata_without_signatures() -> None:
    body = encode_metadata(MODEL, signatures={})
    assert body.endswith(b'"metadata": {"signature_def": {\n "signature_def": {}\n}\n}\n}\n')
