"""Clients that leave, and servers that leave the clients who watch them."""

import signal
import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from aspira.settings import DEFAULT_METRICS_PATH
from aspira.testing.saved_models import write_counter
from system.server_process import ServerProcess

LISTENERS = pytest.mark.parametrize("listener", ["envoy", "portable"])


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that counts, and takes its time."""
    directory = tmp_path_factory.mktemp("counter")
    write_counter(directory / "1")
    return directory


def count_request(number: int) -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "default"
    request.inputs["n"].CopyFrom(tf.make_tensor_proto(np.int64(number)))
    return request


def wait_for_metric(server: ServerProcess, *, part: str) -> None:
    """Until a line of the metrics page has `part` in it."""
    while part not in requests.get(f"{server.rest_url}{DEFAULT_METRICS_PATH}", timeout=30).text:
        time.sleep(0.05)


@LISTENERS
def test_a_call_whose_client_left_is_cancelled(
    listener: str, base_path: Path, tmp_path: Path
) -> None:
    flags = (f"--listener={listener}", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        with grpc.insecure_channel(server.grpc_target) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            pending = stub.Predict.future(count_request(10**12))
            with pytest.raises(grpc.FutureTimeoutError):
                pending.result(timeout=1)
            pending.cancel()
        wait_for_metric(server, part='entrypoint="grpc",status="CANCELLED"} 1')
        server.kill()


@LISTENERS
def test_a_rest_request_whose_client_left_is_cancelled(
    listener: str, base_path: Path, tmp_path: Path
) -> None:
    flags = (f"--listener={listener}", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        url = f"{server.rest_url}/v1/models/default:predict"
        with pytest.raises(requests.ReadTimeout):
            requests.post(url, json={"inputs": 10**12}, timeout=1)
        wait_for_metric(server, part='entrypoint="rest",status="CANCELLED"} 1')
        server.kill()


@LISTENERS
def test_a_watch_is_told_of_the_shutdown_and_ended(
    listener: str, base_path: Path, tmp_path: Path
) -> None:
    flags = (f"--listener={listener}", f"--model_base_path={base_path}")
    statuses = []
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        with grpc.insecure_channel(server.grpc_target) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            statuses.append(next(watch).status)
            server.signal(signal.SIGTERM)
            statuses.append(next(watch).status)
            with pytest.raises(grpc.RpcError) as ended:
                next(watch)
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
            assert ended.value.details() == "The server is shutting down; watch another replica"
        assert server.wait() == 0
    assert statuses == [
        health_pb2.HealthCheckResponse.SERVING,
        health_pb2.HealthCheckResponse.NOT_SERVING,
    ]
