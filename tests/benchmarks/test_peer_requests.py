"""Requests in each server's own form carry the same numbers, and only right answers pass."""

import base64
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

INPUT = np.array([1.0, 2.0, 5.0], np.float32)
ANSWER = np.array([2.5, 3.0, 4.5], np.float32)
WRONG = np.array([2.5, 3.0, 9.0], np.float32)


@pytest.fixture
def requests(import_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return import_benchmark("peer_requests")


@pytest.fixture
def model(import_benchmark: Callable[[str], ModuleType]) -> Any:
    make = import_benchmark("models").Model
    return make("half", "half", input_name="x", output_name="y", input=INPUT, answer=ANSWER)


def test_rows(requests: ModuleType, model: Any) -> None:
    endpoint = requests.rows_json(model, path="/half")
    assert json.loads(endpoint.body) == {"instances": [1.0, 2.0, 5.0]}
    assert endpoint.path == "/half"
    assert dict(endpoint.headers) == {"content-type": "application/json"}
    assert endpoint.is_right(b'{"predictions": [2.5, 3.0, 4.5]}')
    assert endpoint.is_right(b"[2.5, 3.0, 4.5]")
    assert not endpoint.is_right(b'{"predictions": [2.5, 3.0, 9.0]}')
    assert not endpoint.is_right(b"[2.5, 3.0]")


def test_raw_floats(requests: ModuleType, model: Any) -> None:
    endpoint = requests.raw(model, path="/half")
    assert np.array_equal(np.frombuffer(endpoint.body, np.float32), INPUT)
    assert dict(endpoint.headers) == {"content-type": "application/octet-stream"}
    assert endpoint.is_right(ANSWER.tobytes())
    assert not endpoint.is_right(WRONG.tobytes())


def test_base64(requests: ModuleType, model: Any) -> None:
    endpoint = requests.base64_json(model, path="/half")
    content = base64.b64decode(json.loads(endpoint.body)["base64"])
    assert np.array_equal(np.frombuffer(content, np.float32), INPUT)
    for array, is_right in ((ANSWER, True), (WRONG, False)):
        answer = json.dumps({"base64": base64.b64encode(array.tobytes()).decode()})
        assert endpoint.is_right(answer.encode()) is is_right


def test_open_inference_over_rest(requests: ModuleType, model: Any) -> None:
    endpoint = requests.infer_json(model)
    assert endpoint.path == "/v2/models/half/infer"
    assert json.loads(endpoint.body)["inputs"] == [
        {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1.0, 2.0, 5.0]}
    ]
    assert endpoint.is_right(b'{"outputs": [{"name": "y", "data": [2.5, 3.0, 4.5]}]}')
    assert not endpoint.is_right(b'{"outputs": [{"name": "y", "data": [2.5, 3.0, 9.0]}]}')


def test_open_inference_over_grpc(
    requests: ModuleType, model: Any, import_benchmark: Callable[[str], ModuleType]
) -> None:
    messages = import_benchmark("open_inference")
    endpoint = requests.infer_grpc(model)
    request = messages.ModelInferRequest.FromString(endpoint.body[5:])
    assert endpoint.body[:5] == b"\0" + len(endpoint.body[5:]).to_bytes(4, "big")
    assert request.model_name == "half"
    (tensor,) = request.inputs
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("x", "FP32", [1, 3])
    assert np.array_equal(np.frombuffer(request.raw_input_contents[0], np.float32), INPUT)
    for array, is_right in ((ANSWER, True), (WRONG, False)):
        raw = messages.ModelInferResponse(raw_output_contents=[array.tobytes()])
        assert endpoint.is_right(raw.SerializeToString()) is is_right
        typed = messages.ModelInferResponse()
        typed.outputs.add(name="y").contents.fp32_contents.extend(array)
        assert endpoint.is_right(typed.SerializeToString()) is is_right


def test_grpc_metadata_is_sent_as_headers(requests: ModuleType, model: Any) -> None:
    endpoint = requests.predict_grpc(model, metadata=(("application", "half"),))
    assert endpoint.headers == (
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("application", "half"),
    )
