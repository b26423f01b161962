"""Classify, Regress and MultiInference of TensorFlow Serving's own test model, on both listeners.

The model adds 2 (`y`) or 3 (`y2`) to half of the float feature `x`.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import requests
from tensorflow.core.example import example_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from aspira.contracts.signatures import CLASSIFY_METHOD, PREDICT_METHOD, REGRESS_METHOD
from system.server_process import ServerProcess

TIMEOUT_S = 60
DEFAULT_TESTDATA = Path(__file__).parents[3] / "shared" / "testdata" / "tfserving"
MODEL = "saved_model_half_plus_two_cpu"
VERSION = 123
INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture(scope="module")
def base_path() -> Path:
    """The model's directory."""
    path = Path(os.environ.get("ASPIRA_TFSERVING_TESTDATA", DEFAULT_TESTDATA)) / MODEL
    if not path.is_dir():
        pytest.skip(f"no {path}; set ASPIRA_TFSERVING_TESTDATA to TensorFlow Serving's test data")
    return path


def serve(log: Path, *flags: str, base_path: Path) -> ServerProcess:
    return ServerProcess(
        "--model_name=m",
        f"--model_base_path={base_path}",
        "--file_system_poll_wait_seconds=0",
        *flags,
        log=log,
    )


@pytest.fixture(scope="module", params=["envoy", "portable"])
def example_server(
    request: pytest.FixtureRequest, base_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """The model behind each listener in turn."""
    log = tmp_path_factory.mktemp("logs") / f"{request.param}.log"
    with serve(log, f"--listener={request.param}", base_path=base_path) as process:
        yield process


@pytest.fixture(scope="module")
def strict_server(
    base_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """The model on a server that checks method names."""
    log = tmp_path_factory.mktemp("logs") / "strict.log"
    flag = "--enable_signature_method_name_check"
    with serve(log, "--listener=portable", flag, base_path=base_path) as process:
        yield process


@pytest.fixture(scope="module")
def predictions(example_server: ServerProcess) -> Iterator[Any]:
    with grpc.insecure_channel(example_server.grpc_target) as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def example(**features: float) -> example_pb2.Example:
    message = example_pb2.Example()
    for name, value in features.items():
        message.features.feature[name].float_list.value.append(value)
    return message


def ask_for(message: Any, *values: float, signature_name: str, name: str = "m") -> Any:
    message.model_spec.name = name
    message.model_spec.signature_name = signature_name
    message.input.example_list.examples.extend(example(x=value) for value in values)
    return message


def classify_request(
    *values: float, signature_name: str = "classify_x_to_y", name: str = "m"
) -> Any:
    message = classification_pb2.ClassificationRequest()
    return ask_for(message, *values, signature_name=signature_name, name=name)


def regress_request(*values: float, signature_name: str = "regress_x_to_y", name: str = "m") -> Any:
    message = regression_pb2.RegressionRequest()
    return ask_for(message, *values, signature_name=signature_name, name=name)


def multi_request(*tasks: tuple[str, str, str], values: tuple[float, ...] = (1.0, 2.0)) -> Any:
    message = inference_pb2.MultiInferenceRequest()
    for name, signature_name, method_name in tasks:
        task = message.tasks.add(method_name=method_name)
        task.model_spec.name = name
        task.model_spec.signature_name = signature_name
    message.input.example_list.examples.extend(example(x=value) for value in values)
    return message


CLASSIFY_Y = ("m", "classify_x_to_y", CLASSIFY_METHOD)
REGRESS_Y = ("m", "regress_x_to_y", REGRESS_METHOD)
REGRESS_Y2 = ("m", "regress_x_to_y2", REGRESS_METHOD)


def classes_of(result: Any) -> list[list[tuple[str, float]]]:
    return [[(one.label, one.score) for one in each.classes] for each in result.classifications]


def values_of(result: Any) -> list[float]:
    return [one.value for one in result.regressions]


def metric(server: ServerProcess, series: str) -> int:
    """The value of a counter; 0 if there is none yet."""
    url = f"{server.rest_url}/monitoring/prometheus/metrics"
    found = re.search(f"{re.escape(series)} (.*)", requests.get(url, timeout=TIMEOUT_S).text)
    return int(found.group(1)) if found else 0


def assert_spec(spec: Any, *, signature_name: str) -> None:
    assert spec.name == "m"
    assert spec.version.value == VERSION
    assert spec.signature_name == signature_name


def test_classify(predictions: Any) -> None:
    response = predictions.Classify(classify_request(1.0, 2.0), timeout=TIMEOUT_S)
    assert classes_of(response.result) == [[("", 2.5)], [("", 3.0)]]
    assert_spec(response.model_spec, signature_name="classify_x_to_y")


@pytest.mark.parametrize(
    ("signature_name", "values"),
    [("regress_x_to_y", [2.5, 3.0]), ("regress_x_to_y2", [3.5, 4.0])],
)
def test_regress(predictions: Any, signature_name: str, values: list[float]) -> None:
    request = regress_request(1.0, 2.0, signature_name=signature_name)
    request.model_spec.version.value = VERSION
    response = predictions.Regress(request, timeout=TIMEOUT_S)
    assert values_of(response.result) == values
    assert_spec(response.model_spec, signature_name=signature_name)


def test_a_context_is_part_of_every_example(predictions: Any) -> None:
    request = regress_request()
    listed = request.input.example_list_with_context
    listed.context.CopyFrom(example(x=4.0))
    listed.examples.extend([example(), example(x=1.0)])
    response = predictions.Regress(request, timeout=TIMEOUT_S)
    assert values_of(response.result) == [4.0, 2.5]


def test_multi_inference(predictions: Any) -> None:
    response = predictions.MultiInference(
        multi_request(REGRESS_Y2, CLASSIFY_Y, REGRESS_Y), timeout=TIMEOUT_S
    )
    second, first, third = response.results
    assert values_of(second.regression_result) == [3.5, 4.0]
    assert classes_of(first.classification_result) == [[("", 2.5)], [("", 3.0)]]
    assert values_of(third.regression_result) == [2.5, 3.0]
    names = ["regress_x_to_y2", "classify_x_to_y", "regress_x_to_y"]
    for result, name in zip(response.results, names, strict=True):
        assert_spec(result.model_spec, signature_name=name)


def test_multi_inference_counts_its_examples(
    predictions: Any, example_server: ServerProcess
) -> None:
    before = metric(example_server, ':request_example_count_total{model="m"}')
    predictions.MultiInference(multi_request(REGRESS_Y2, CLASSIFY_Y), timeout=TIMEOUT_S)
    assert metric(example_server, ':request_example_count_total{model="m"}') == before + 2


DEFAULT_SIGNATURE = (
    'inputs {\n  key: "x"\n  value {\n    name: "x:0"\n    dtype: DT_FLOAT\n    tensor_shape {\n'
    "      dim {\n        size: -1\n      }\n      dim {\n        size: 1\n      }\n    }\n  }\n}\n"
    'outputs {\n  key: "y"\n  value {\n    name: "y:0"\n    dtype: DT_FLOAT\n    tensor_shape {\n'
    "      dim {\n        size: -1\n      }\n      dim {\n        size: 1\n      }\n    }\n  }\n}\n"
    'method_name: "tensorflow/serving/predict"\n'
)
REGRESSION_SIGNATURE = (
    'inputs {\n  key: "inputs"\n  value {\n    name: "tf_example:0"\n    dtype: DT_STRING\n'
    "    tensor_shape {\n      unknown_rank: true\n    }\n  }\n}\n"
    'outputs {\n  key: "outputs"\n  value {\n    name: "y:0"\n    dtype: DT_FLOAT\n'
    "    tensor_shape {\n      dim {\n        size: -1\n      }\n      dim {\n"
    "        size: 1\n      }\n    }\n  }\n}\n"
    'method_name: "tensorflow/serving/regress"\n'
)
CLASSIFICATION_SIGNATURE = REGRESSION_SIGNATURE.replace('key: "outputs"', 'key: "scores"').replace(
    "serving/regress", "serving/classify"
)
NO_CLASSIFICATION_INPUTS = f"No classification inputs found in SignatureDef: {DEFAULT_SIGNATURE}"
NO_REGRESSION_INPUTS = f"No regression inputs found in SignatureDef: {DEFAULT_SIGNATURE}"
NO_CLASSES = (
    'Expected classification signature outputs to contain at least one of "classes" or "scores". '
    f"Signature was: {REGRESSION_SIGNATURE}"
)
NO_OUTPUTS = f"No regression outputs found in SignatureDef: {CLASSIFICATION_SIGNATURE}"

BAD = [
    ("Classify", classification_pb2.ClassificationRequest(), INVALID, "Missing ModelSpec"),
    ("Regress", regression_pb2.RegressionRequest(), INVALID, "Missing ModelSpec"),
    ("Classify", classify_request(1.0, name=""), INVALID, "ModelSpec has no name specified."),
    ("Regress", regress_request(1.0, name=""), INVALID, "ModelSpec has no name specified."),
    (
        "Classify",
        classify_request(name="nope"),
        grpc.StatusCode.NOT_FOUND,
        "Servable not found for request: Latest(nope)",
    ),
    (
        "Regress",
        regress_request(name="nope"),
        grpc.StatusCode.NOT_FOUND,
        "Servable not found for request: Latest(nope)",
    ),
    (
        "Classify",
        classify_request(signature_name="nope"),
        INVALID,
        "No signature was found with the name: nope",
    ),
    (
        "Regress",
        regress_request(signature_name="nope"),
        INVALID,
        "No signature was found with the name: nope",
    ),
    ("Classify", classify_request(signature_name=""), INVALID, NO_CLASSIFICATION_INPUTS),
    ("Regress", regress_request(signature_name=""), INVALID, NO_REGRESSION_INPUTS),
    ("Classify", classify_request(signature_name="regress_x_to_y"), INVALID, NO_CLASSES),
    ("Regress", regress_request(signature_name="classify_x_to_y"), INVALID, NO_OUTPUTS),
    ("Classify", classify_request(), INVALID, "Input is empty."),
    ("Regress", regress_request(), INVALID, "Input is empty."),
    ("MultiInference", multi_request(), INVALID, "ModelSpec has no name specified."),
    (
        "MultiInference",
        multi_request(("", "", CLASSIFY_METHOD)),
        INVALID,
        "ModelSpec has no name specified.",
    ),
    (
        "MultiInference",
        multi_request(("nope", "", CLASSIFY_METHOD)),
        grpc.StatusCode.NOT_FOUND,
        "Servable not found for request: Latest(nope)",
    ),
    (
        "MultiInference",
        multi_request(CLASSIFY_Y, ("", "regress_x_to_y", REGRESS_METHOD)),
        INVALID,
        "Found ModelSpec with an empty model name.",
    ),
    (
        "MultiInference",
        multi_request(CLASSIFY_Y, ("other", "regress_x_to_y", REGRESS_METHOD)),
        INVALID,
        "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
    ),
    (
        "MultiInference",
        multi_request(REGRESS_Y, REGRESS_Y),
        INVALID,
        "Duplicate evaluation of signature: regress_x_to_y",
    ),
    (
        "MultiInference",
        multi_request(REGRESS_Y, ("m", "nope", REGRESS_METHOD)),
        INVALID,
        "Requested signature not found in model graph: nope",
    ),
    (
        "MultiInference",
        multi_request(("m", "", PREDICT_METHOD)),
        grpc.StatusCode.UNIMPLEMENTED,
        "Unsupported signature method_name: tensorflow/serving/predict",
    ),
    ("MultiInference", multi_request(REGRESS_Y, values=()), INVALID, "Input is empty."),
]


@pytest.mark.parametrize(("method", "request_message", "code", "details"), BAD)
def test_bad_requests(
    predictions: Any, method: str, request_message: Any, code: grpc.StatusCode, details: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        getattr(predictions, method)(request_message, timeout=TIMEOUT_S)
    assert (caught.value.code(), caught.value.details()) == (code, details)
    test_classify(predictions)


def test_a_missing_feature_is_the_runtimes_error(predictions: Any) -> None:
    request = regress_request()
    request.input.example_list.examples.append(example(x2=1.0))
    with pytest.raises(grpc.RpcError) as caught:
        predictions.Regress(request, timeout=TIMEOUT_S)
    assert caught.value.code() is INVALID
    assert "Feature: x (data type: float) is required but could not be found." in (
        caught.value.details()
    )


@pytest.mark.parametrize(
    "message",
    [
        regress_request(1.0, signature_name="regress_x2_to_y3"),
        multi_request(REGRESS_Y, ("m", "regress_x2_to_y3", REGRESS_METHOD)),
    ],
)
def test_a_signature_that_takes_no_examples_is_the_runtimes_error(
    predictions: Any, message: Any
) -> None:
    is_regression = isinstance(message, regression_pb2.RegressionRequest)
    method = predictions.Regress if is_regression else predictions.MultiInference
    with pytest.raises(grpc.RpcError) as caught:
        method(message, timeout=TIMEOUT_S)
    assert caught.value.code() is INVALID
    assert "string" in caught.value.details()
    test_classify(predictions)


def post(server: ServerProcess, verb: str, body: bytes, *, model: str = "m") -> requests.Response:
    url = f"{server.rest_url}/v1/models/{model}:{verb}"
    return requests.post(url, data=body, timeout=TIMEOUT_S)


CLASSIFY = b'"signature_name": "classify_x_to_y"'
REGRESS = b'"signature_name": "regress_x_to_y"'
GOOD = [
    ("classify", b'{%b, "examples": [{"x": 2.0}]}' % CLASSIFY, b'[[["", 3.0]]\n    ]'),
    (
        "classify",
        b'{%b, "examples": [{"x": [2.0]}, {"x": 1e0}]}' % CLASSIFY,
        b'[[["", 3.0]], [["", 2.5]]\n    ]',
    ),
    ("regress", b'{%b, "examples": [{"x": 2.0}]}' % REGRESS, b"[3.0]"),
    (
        "regress",
        b'{%b, "examples": [{"x": 2.0}, {"x": 3.0}, {"x": 0.66666666}]}' % REGRESS,
        b"[3.0, 3.5, 2.33333325]",
    ),
    (
        "regress",
        b'{%b, "context": {"x": 4.0}, "examples": [{}, {"x": 1.0}]}' % REGRESS,
        b"[4.0, 2.5]",
    ),
    (
        "regress",
        b'{%b, "examples": [{"x": 1.0, "other": ["a", {"b64": "/w=="}]}, {"x": NaN}]} x' % REGRESS,
        b"[2.5, NaN]",
    ),
]


@pytest.mark.parametrize(("verb", "body", "results"), GOOD)
def test_results_byte_for_byte(
    example_server: ServerProcess, verb: str, body: bytes, results: bytes
) -> None:
    answer = post(example_server, verb, body)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.content == b'{\n    "results": ' + results + b"\n}"


@pytest.mark.parametrize("path", [f"m/versions/{VERSION}", "m"])
def test_versions(example_server: ServerProcess, path: str) -> None:
    body = b'{%b, "examples": [{"x": 2.0}]}' % REGRESS
    assert post(example_server, "regress", body, model=path).json() == {"results": [3.0]}


BAD_BODIES = [
    ("m", b"", 400, "JSON Parse error: The document is empty"),
    ("m", b"[]", 400, "JSON Value: [] Is not object"),
    (
        "m",
        b"{}",
        400,
        "JSON Value: {} When method is classify, key 'examples' is expected and was not found",
    ),
    (
        "m",
        b'{"examples": 1}',
        400,
        "JSON Value: {\n    \"examples\": 1\n} Expecting 'examples' value to be an list/array",
    ),
    (
        "m",
        b'{"examples": []}',
        400,
        "JSON Value: {\n    \"examples\": []\n} 'examples' value is an empty array",
    ),
    ("m", b'{"examples": [1.0]}', 400, "Example must be JSON object but got JSON Number"),
    (
        "m",
        b'{"examples": [{"x": [1.0, 1]}]}',
        400,
        "Unexpected element type in feature: x expecting type: float",
    ),
    (
        "m",
        b'{"examples": [{"x": [[1.0]]}]}',
        400,
        "Feature: x has element with unexpected JSON type: Array",
    ),
    (
        "m",
        b'{"examples": [{"x": 18446744073709551615}]}',
        400,
        "Feature: x has uint64_t element. Only int64_t is supported.",
    ),
    ("nope", b'{"examples": [{}]}', 404, "Servable not found for request: Latest(nope)"),
    (
        "m/versions/1",
        b'{"examples": [{}]}',
        404,
        "Servable not found for request: Specific(m, 1)",
    ),
    (
        "m/labels/nope",
        b'{"examples": [{}]}',
        400,
        "Unrecognized servable version label: nope",
    ),
    (
        "m",
        b'{"signature_name": "nope", "examples": [{}]}',
        400,
        "No signature was found with the name: nope",
    ),
]


@pytest.mark.parametrize("verb", ["classify", "regress"])
@pytest.mark.parametrize(("model", "body", "status", "text"), BAD_BODIES)
def test_bad_bodies(
    example_server: ServerProcess, verb: str, model: str, body: bytes, status: int, text: str
) -> None:
    answer = post(example_server, verb, body, model=model)
    assert (answer.status_code, answer.json()) == (status, {"error": text})


@pytest.mark.parametrize(
    ("verb", "text"),
    [("classify", NO_CLASSIFICATION_INPUTS), ("regress", NO_REGRESSION_INPUTS)],
)
def test_the_default_signature_takes_no_examples(
    example_server: ServerProcess, verb: str, text: str
) -> None:
    answer = post(example_server, verb, b'{"examples": [{"x": 1.0}]}')
    assert (answer.status_code, answer.json()) == (400, {"error": text})


def test_an_integer_is_no_float(example_server: ServerProcess) -> None:
    answer = post(example_server, "regress", b'{%b, "examples": [{"x": 2}]}' % REGRESS)
    assert answer.status_code == 400
    assert "Data type: int64 but expected type: float" in answer.json()["error"]


def test_metrics_count_examples_apis(example_server: ServerProcess) -> None:
    post(example_server, "regress", b'{%b, "examples": [{"x": 2.0}]}' % REGRESS)
    page = requests.get(
        f"{example_server.rest_url}/monitoring/prometheus/metrics", timeout=TIMEOUT_S
    ).text
    labels = f'model_name="m",version="{VERSION}",api="regress",entrypoint="rest"'
    assert f':aspira:request_count{{{labels},status="OK"}}' in page
    assert (
        ':tensorflow:serving:request_latency_count{model_name="m",API="regress",entrypoint="REST"}'
    ) in page


def test_method_names_are_checked_if_told_so(strict_server: ServerProcess) -> None:
    with grpc.insecure_channel(strict_server.grpc_target) as channel:
        predictions = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        test_classify(predictions)
        test_multi_inference(predictions)
        request = classify_request(1.0, signature_name="regress_x_to_y")
        with pytest.raises(grpc.RpcError) as caught:
            predictions.Classify(request, timeout=TIMEOUT_S)
    assert caught.value.code() is INVALID
    assert caught.value.details() == (
        "Expected classification signature method_name to be tensorflow/serving/classify. "
        "Was: tensorflow/serving/regress"
    )
    answer = post(strict_server, "regress", b'{%b, "examples": [{}]}' % CLASSIFY)
    assert answer.status_code == 400
    assert answer.json()["error"] == (
        "Expected regression signature method_name to be tensorflow/serving/regress. "
        "Was: tensorflow/serving/classify"
    )
    answer = post(strict_server, "predict", b'{"instances": [[2.0]]}')
    assert answer.json() == {"predictions": [[3.0]]}
