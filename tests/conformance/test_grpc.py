"""gRPC with the stock stubs of tensorflow-serving-api, over each listener."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from system.server_process import ServerProcess

TIMEOUT_S = 60
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@pytest.fixture(scope="module")
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc_target, options=UNLIMITED) as opened:
        yield opened


@pytest.fixture
def predictions(channel: grpc.Channel) -> Any:
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture
def models_stub(channel: grpc.Channel) -> Any:
    return model_service_pb2_grpc.ModelServiceStub(channel)


def make_request(name: str = "half_plus_two", version: int | None = 1, **inputs: Any) -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    if version is not None:
        request.model_spec.version.value = version
    for alias, value in inputs.items():
        request.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return request


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


def test_predict_fills_typed_fields_and_says_who_answered(predictions: Any) -> None:
    response = predictions.Predict(make_request(x=floats(1.0, 2.0, 5.0)), timeout=TIMEOUT_S)
    assert list(response.outputs["y"].float_val) == [2.5, 3.0, 4.5]
    assert response.outputs["y"].tensor_content == b""
    assert response.model_spec.name == "half_plus_two"
    assert response.model_spec.version.value == 1
    assert response.model_spec.signature_name == "serving_default"


def test_the_newest_version_answers_by_default(predictions: Any) -> None:
    request = make_request(version=None, x=floats(1.0))
    response = predictions.Predict(request, timeout=TIMEOUT_S)
    assert list(response.outputs["y"].float_val) == [3.5]
    assert response.model_spec.version.value == 2


def test_labels(predictions: Any) -> None:
    request = make_request(version=None, x=floats(1.0))
    request.model_spec.version_label = "stable"
    response = predictions.Predict(request, timeout=TIMEOUT_S)
    assert response.model_spec.version.value == 1
    assert response.model_spec.version_label == ""


def test_output_filter_and_several_types(predictions: Any) -> None:
    request = make_request("sums", a=floats(1.0, 2.0).reshape(1, 2), b=np.array([4], np.int64))
    request.output_filter.append("b_plus_one")
    response = predictions.Predict(request, timeout=TIMEOUT_S)
    assert dict(response.outputs).keys() == {"b_plus_one"}
    assert list(response.outputs["b_plus_one"].int64_val) == [5]


def test_strings(predictions: Any) -> None:
    response = predictions.Predict(
        make_request("texts", text=np.array([b"abc", b"\xff"], object)), timeout=TIMEOUT_S
    )
    assert list(response.outputs["upper"].string_val) == [b"ABC", b"\xff"]
    assert list(response.outputs["length"].int_val) == [3, 1]


def test_a_64_mib_tensor_each_way(predictions: Any) -> None:
    values = np.arange(2**24, dtype=np.float32)
    response = predictions.Predict(make_request(x=values), timeout=TIMEOUT_S)
    answered = tf.make_ndarray(response.outputs["y"])
    np.testing.assert_array_equal(answered, values * np.float32(0.5) + np.float32(2.0))


def test_compressed_requests(predictions: Any) -> None:
    response = predictions.Predict(
        make_request(x=floats(*[1.0] * 1000)),
        timeout=TIMEOUT_S,
        compression=grpc.Compression.Gzip,
    )
    assert set(response.outputs["y"].float_val) == {2.5}


def _spec_without_name() -> Any:
    request = make_request(x=floats(1.0))
    request.model_spec.name = ""
    return request


def _unknown_signature() -> Any:
    request = make_request(x=floats(1.0))
    request.model_spec.signature_name = "nope"
    return request


def _unknown_label() -> Any:
    request = make_request(version=None, x=floats(1.0))
    request.model_spec.version_label = "nope"
    return request


def _filtered(*aliases: str) -> Any:
    request = make_request(x=floats(1.0))
    request.output_filter.extend(aliases)
    return request


def _undecodable() -> Any:
    request = make_request(x=floats(1.0, 2.0))
    request.inputs["x"].tensor_content = b"123"
    return request


INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
BAD = [
    (predict_pb2.PredictRequest(), INVALID, "Missing ModelSpec"),
    (_spec_without_name(), INVALID, "ModelSpec has no name specified."),
    (
        make_request("nope", None, x=floats(1.0)),
        NOT_FOUND,
        "Servable not found for request: Latest(nope)",
    ),
    (
        make_request(version=0, x=floats(1.0)),
        NOT_FOUND,
        "Servable not found for request: Specific(half_plus_two, 0)",
    ),
    (_unknown_label(), INVALID, "Unrecognized servable version label: nope"),
    (
        _unknown_signature(),
        grpc.StatusCode.FAILED_PRECONDITION,
        'Serving signature key "nope" not found.',
    ),
    (
        make_request(),
        INVALID,
        (
            "input size does not match signature: 0!=1 len({}) != len({x}). "
            "Sent extra: {}. Missing but required: {x}."
        ),
    ),
    (
        make_request(y=floats(1.0)),
        INVALID,
        (
            "Signature input alias: x(feed name: serving_default_x:0) not found in request and no "
            "default value provided. Inputs expected to be in the request {x}, or default input "
            "alias set: {}"
        ),
    ),
    (
        _filtered("nope"),
        INVALID,
        "output tensor alias not found in signature: nope Outputs expected to be in the set {y}.",
    ),
    (_filtered("y", "y"), INVALID, "duplicate output tensor alias: y"),
    (_undecodable(), INVALID, "tensor parsing error: x"),
]


@pytest.mark.parametrize(("request_message", "code", "details"), BAD)
def test_bad_requests(
    predictions: Any, request_message: Any, code: grpc.StatusCode, details: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        predictions.Predict(request_message, timeout=TIMEOUT_S)
    assert (caught.value.code(), caught.value.details()) == (code, details)
    test_predict_fills_typed_fields_and_says_who_answered(predictions)


def test_a_wrong_dtype_is_the_runtimes_error(predictions: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        predictions.Predict(make_request(x=np.array([1], np.int32)), timeout=TIMEOUT_S)
    assert caught.value.code() is INVALID
    assert "int32" in caught.value.details()
    test_predict_fills_typed_fields_and_says_who_answered(predictions)


def test_a_deadline_ends_the_wait_for_a_slow_model(predictions: Any) -> None:
    slow = make_request("counter", n=np.int64(1_000_000))
    with pytest.raises(grpc.RpcError) as caught:
        predictions.Predict(slow, timeout=0.1)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    test_predict_fills_typed_fields_and_says_who_answered(predictions)


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("/tensorflow.serving.PredictionService/Nope", grpc.StatusCode.UNIMPLEMENTED),
        ("/nope/Predict", grpc.StatusCode.UNIMPLEMENTED),
        ("/tensorflow.serving.PredictionService/Predict", grpc.StatusCode.INTERNAL),
    ],
)
def test_wrong_methods_and_rubbish_messages(
    channel: grpc.Channel, predictions: Any, method: str, code: grpc.StatusCode
) -> None:
    call = channel.unary_unary(method)
    with pytest.raises(grpc.RpcError) as caught:
        call(b"\xff\xff\xff", timeout=TIMEOUT_S)
    assert caught.value.code() is code
    test_predict_fills_typed_fields_and_says_who_answered(predictions)


def test_long_error_texts_are_cut(predictions: Any) -> None:
    names = [f"{index}{'n' * 190}" for index in range(10)]
    request = make_request("sums", None, **dict.fromkeys(names, floats(1.0)))
    with pytest.raises(grpc.RpcError) as caught:
        predictions.Predict(request, timeout=TIMEOUT_S)
    assert len(caught.value.details()) == 1024 + len("...TRUNCATED")
    assert caught.value.details().endswith("...TRUNCATED")


def test_metadata(predictions: Any) -> None:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "sums"
    response = predictions.GetModelMetadata(request, timeout=TIMEOUT_S)
    packed = response.metadata["signature_def"]
    assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert packed.Unpack(signatures)
    assert (
        signatures.signature_def["serving_default"].inputs["b"].dtype == tf.int64.as_datatype_enum
    )
    assert response.model_spec.version.value == 1


@pytest.mark.parametrize(
    ("fields", "details"),
    [
        ([], "GetModelMetadataRequest must specify at least one metadata_field"),
        (["nope"], "Metadata field nope is not supported"),
    ],
)
def test_metadata_fields(predictions: Any, fields: list[str], details: str) -> None:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    request.model_spec.name = "sums"
    with pytest.raises(grpc.RpcError) as caught:
        predictions.GetModelMetadata(request, timeout=TIMEOUT_S)
    assert (caught.value.code(), caught.value.details()) == (INVALID, details)


def test_status(models_stub: Any) -> None:
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "half_plus_two"
    response = models_stub.GetModelStatus(request, timeout=TIMEOUT_S)
    available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
    assert [(s.version, s.state) for s in response.model_version_status] == [
        (2, available),
        (1, available),
    ]
    request.model_spec.name = "nope"
    with pytest.raises(grpc.RpcError) as caught:
        models_stub.GetModelStatus(request, timeout=TIMEOUT_S)
    assert caught.value.details() == "Could not find any versions of model nope"


def test_health_tells_the_truth(channel: grpc.Channel) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    statuses = {
        service: health.Check(
            health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S
        ).status
        for service in ("", "half_plus_two", "broken", "tensorflow.serving.PredictionService")
    }
    serving, not_serving = (
        health_pb2.HealthCheckResponse.SERVING,
        health_pb2.HealthCheckResponse.NOT_SERVING,
    )
    assert statuses == {
        "": serving,
        "half_plus_two": serving,
        "broken": not_serving,
        "tensorflow.serving.PredictionService": serving,
    }
    with pytest.raises(grpc.RpcError) as caught:
        health.Check(health_pb2.HealthCheckRequest(service="nope"), timeout=TIMEOUT_S)
    assert caught.value.code() is NOT_FOUND


def test_health_can_be_watched(channel: grpc.Channel) -> None:
    watch = health_pb2_grpc.HealthStub(channel).Watch(
        health_pb2.HealthCheckRequest(service="half_plus_two"), timeout=TIMEOUT_S
    )
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()


def test_reflection_lists_services_and_describes_them(channel: grpc.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    symbol = "tensorflow.serving.PredictionService"
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol),
    ]
    listed, described = stub.ServerReflectionInfo(iter(requests), timeout=TIMEOUT_S)
    names = {service.name for service in listed.list_services_response.service}
    assert {symbol, "tensorflow.serving.ModelService", "grpc.health.v1.Health"} <= names
    assert described.file_descriptor_response.file_descriptor_proto


def test_reload_replaces_the_models(server: ServerProcess, models_stub: Any, models: Path) -> None:
    full = model_management_pb2.ReloadConfigRequest()
    tf_config = (models / "models.config").read_text()
    from google.protobuf import text_format

    text_format.Parse(tf_config, full.config)
    added = model_management_pb2.ReloadConfigRequest()
    added.CopyFrom(full)
    entry = added.config.model_config_list.config.add(
        name="again", base_path=str(models / "half_plus_two"), model_platform="tensorflow"
    )
    models_stub.HandleReloadConfigRequest(added, timeout=TIMEOUT_S)
    with grpc.insecure_channel(server.grpc_target) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.Predict(make_request("again", None, x=floats(1.0)), timeout=TIMEOUT_S)
        assert response.model_spec.version.value == 2
        entry.name, entry.base_path = "lost", "/nonexistent"
        with pytest.raises(grpc.RpcError) as caught:
            models_stub.HandleReloadConfigRequest(added, timeout=TIMEOUT_S)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert "1 model(s) did not become available" in caught.value.details()
        models_stub.HandleReloadConfigRequest(full, timeout=TIMEOUT_S)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Predict(make_request("again", None, x=floats(1.0)), timeout=TIMEOUT_S)
        assert caught.value.code() is NOT_FOUND
        response = stub.Predict(make_request(x=floats(1.0)), timeout=TIMEOUT_S)
        assert list(response.outputs["y"].float_val) == [2.5]


@pytest.mark.parametrize(
    ("change", "details"),
    [
        (
            lambda config: None,
            (
                "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
                "ModelConfigList is currently supported"
            ),
        ),
        (
            lambda config: config.model_config_list.config.add(
                name="m", base_path="relative", model_platform="tensorflow"
            ),
            "Expected model m to have an absolute path or URI; got base_path()=relative",
        ),
        (
            lambda config: config.model_config_list.config.add(
                name="m", base_path="/m", model_platform="other"
            ),
            "Model m requests unsupported platform other",
        ),
    ],
)
def test_refused_reloads_change_nothing(
    models_stub: Any, predictions: Any, change: Any, details: str
) -> None:
    request = model_management_pb2.ReloadConfigRequest()
    change(request.config)
    with pytest.raises(grpc.RpcError) as caught:
        models_stub.HandleReloadConfigRequest(request, timeout=TIMEOUT_S)
    assert (caught.value.code(), caught.value.details()) == (INVALID, details)
    test_predict_fills_typed_fields_and_says_who_answered(predictions)


def test_both_protocols_on_either_port_of_the_default_listener(
    server: ServerProcess, request: pytest.FixtureRequest
) -> None:
    if "portable" in request.node.name:
        pytest.skip("the portable listener has one protocol a port")
    import requests

    with grpc.insecure_channel(f"127.0.0.1:{server.rest_port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.Predict(make_request(x=floats(1.0)), timeout=TIMEOUT_S)
    assert list(response.outputs["y"].float_val) == [2.5]
    url = f"http://{server.grpc_target}/v1/models/half_plus_two/versions/1:predict"
    answer = requests.post(url, json={"instances": [1.0]}, timeout=TIMEOUT_S)
    assert answer.json() == {"predictions": [2.5]}
