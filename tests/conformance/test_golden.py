"""Golden requests and answers over both listeners.

The answers are written after TensorFlow Serving's source, not after what this server says.
"""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import requests
from google.protobuf import text_format
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    predict_pb2,
    regression_pb2,
)

from conformance.golden_file import Exchange, read_exchanges
from system.server_process import ServerProcess

TIMEOUT_S = 60
REST = read_exchanges("rest")
GRPC = read_exchanges("grpc")

PREDICTIONS = "tensorflow.serving.PredictionService"
MODELS = "tensorflow.serving.ModelService"
METHODS = {
    "Predict": (PREDICTIONS, predict_pb2.PredictRequest, predict_pb2.PredictResponse),
    "Classify": (
        PREDICTIONS,
        classification_pb2.ClassificationRequest,
        classification_pb2.ClassificationResponse,
    ),
    "Regress": (
        PREDICTIONS,
        regression_pb2.RegressionRequest,
        regression_pb2.RegressionResponse,
    ),
    "MultiInference": (
        PREDICTIONS,
        inference_pb2.MultiInferenceRequest,
        inference_pb2.MultiInferenceResponse,
    ),
    "GetModelMetadata": (
        PREDICTIONS,
        get_model_metadata_pb2.GetModelMetadataRequest,
        get_model_metadata_pb2.GetModelMetadataResponse,
    ),
    "GetModelStatus": (
        MODELS,
        get_model_status_pb2.GetModelStatusRequest,
        get_model_status_pb2.GetModelStatusResponse,
    ),
    "HandleReloadConfigRequest": (
        MODELS,
        model_management_pb2.ReloadConfigRequest,
        model_management_pb2.ReloadConfigResponse,
    ),
}


def test_there_are_enough_exchanges_and_each_has_a_name_of_its_own() -> None:
    names = [exchange.name for exchange in (*REST, *GRPC)]
    assert len(names) >= 250
    assert len(set(names)) == len(names)


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as opened:
        yield opened


@pytest.fixture(scope="module")
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc_target) as opened:
        yield opened


@pytest.mark.parametrize("exchange", REST, ids=lambda exchange: exchange.name)
def test_rest(server: ServerProcess, session: requests.Session, exchange: Exchange) -> None:
    method, path = exchange.target.split(" ", 1)
    # Built by hand: requests would tidy up the path.
    prepared = requests.Request(method, server.rest_url).prepare()
    prepared.url = f"{server.rest_url}{path}"
    prepared.headers.update(exchange.headers)
    prepared.prepare_body(exchange.request.encode(), None)
    answer = session.send(prepared, timeout=TIMEOUT_S)
    assert str(answer.status_code) == exchange.status, answer.text
    if exchange.comparison == "json":
        assert answer.json() == requests.compat.json.loads(exchange.answer)
    elif exchange.comparison == "contains":
        assert exchange.answer in answer.text
    else:
        assert answer.content.decode() == exchange.answer
    if path.startswith("/v1/") and answer.content:
        assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("exchange", GRPC, ids=lambda exchange: exchange.name)
def test_grpc(channel: grpc.Channel, exchange: Exchange) -> None:
    service, request_class, response_class = METHODS[exchange.target]
    call: Any = channel.unary_unary(
        f"/{service}/{exchange.target}",
        request_serializer=request_class.SerializeToString,
        response_deserializer=response_class.FromString,
    )
    request = text_format.Parse(exchange.request, request_class())
    if exchange.status == "OK":
        expected = text_format.Parse(exchange.answer, response_class())
        assert call(request, timeout=TIMEOUT_S) == expected
        return
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=TIMEOUT_S)
    assert caught.value.code().name == exchange.status
    if exchange.comparison == "contains":
        assert exchange.answer in caught.value.details()
    else:
        assert caught.value.details() == exchange.answer
