"""A batched model on a real server: many clients, one at a time and in crowds."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from aspira.testing.saved_models import write_fixed_cost
from system.server_process import ServerProcess

EXIT_FAILED = 255
METRICS = "/monitoring/prometheus/metrics"
NUM_CLIENTS = 24
NUM_REQUESTS = 20


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 5 ms a run, whatever the rows."""
    directory = tmp_path_factory.mktemp("fixed_cost")
    write_fixed_cost(directory / "1", num_steps=40)
    return directory


@pytest.fixture(params=["envoy", "portable"])
def server(
    request: pytest.FixtureRequest, model: Path, tmp_path: Path
) -> Iterator[Callable[..., ServerProcess]]:
    started: list[ServerProcess] = []

    def start(parameters: str, *flags: str) -> ServerProcess:
        path = tmp_path / "batching.pbtxt"
        path.write_text(parameters)
        server = ServerProcess(
            f"--listener={request.param}",
            f"--model_base_path={model}",
            "--enable_batching",
            f"--batching_parameters_file={path}",
            *flags,
            log=tmp_path / "log",
        )
        started.append(server.__enter__())
        return server

    yield start
    for each in started:
        each.kill()


def metric(server: ServerProcess, name: str) -> float:
    page = requests.get(server.rest_url + METRICS, timeout=30).text
    (line,) = [line for line in page.splitlines() if line.startswith(f":tensorflow:serving:{name}")]
    return float(line.rpartition(" ")[2])


def post(server: ServerProcess, rows: list[list[float]], **headers: str) -> requests.Response:
    url = f"{server.rest_url}/v1/models/default:predict"
    return requests.post(url, json={"instances": rows}, headers=headers, timeout=30)


def grpc_request(rows: list[list[float]]) -> predict_pb2.PredictRequest:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "default"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.float32(rows)))
    return request


def test_crowds_share_runs_and_each_gets_its_own_rows(
    server: Callable[..., ServerProcess],
) -> None:
    running = server("max_batch_size { value: 64 } num_batch_threads { value: 1 }")

    def ask(client: int) -> None:
        with grpc.insecure_channel(running.grpc_target) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            for number in range(NUM_REQUESTS):
                rows = [[client, number]] * (1 + client % 3)
                expected = [[client / 2 + 2, number / 2 + 2]] * len(rows)
                if client % 2:
                    found = post(running, rows).json()["predictions"]
                else:
                    answer = stub.Predict(grpc_request(rows), timeout=30)
                    found = tf.make_ndarray(answer.outputs["y"]).tolist()
                assert found == expected

    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        list(pool.map(ask, range(NUM_CLIENTS)))
    assert metric(running, "batching_session:wrapped_run_count") < NUM_CLIENTS * NUM_REQUESTS / 2


def test_a_crowd_too_large_is_told_when_to_come_back(
    server: Callable[..., ServerProcess],
) -> None:
    running = server(
        "max_batch_size { value: 1 } max_enqueued_batches { value: 1 } "
        "num_batch_threads { value: 1 }"
    )
    refused: list[Any] = []
    start = threading.Barrier(NUM_CLIENTS)

    def ask(client: int) -> int:
        start.wait(30)
        with grpc.insecure_channel(running.grpc_target) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            answered = 0
            for _ in range(NUM_REQUESTS):
                if client % 2:
                    answer = post(running, [[1.0]])
                    is_refused = answer.status_code == 503
                    hint = answer.headers.get("Retry-After")
                    text = answer.text
                else:
                    try:
                        stub.Predict(grpc_request([[1.0]]), timeout=30)
                        is_refused = False
                    except grpc.RpcError as raised:
                        error: Any = raised
                        is_refused = error.code() is grpc.StatusCode.UNAVAILABLE
                        hint = dict(error.trailing_metadata()).get("grpc-retry-pushback-ms")
                        text = error.details()
                if is_refused:
                    assert "max_enqueued_batches is 1" in text
                    assert hint is not None
                    assert int(hint) >= 1
                    refused.append(text)
                else:
                    answered += 1
            return answered

    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        answered = sum(pool.map(ask, range(NUM_CLIENTS)))
    assert answered > 0
    assert refused
    assert answered + len(refused) == NUM_CLIENTS * NUM_REQUESTS


def test_a_bad_request_fails_alone(server: Callable[..., ServerProcess]) -> None:
    running = server("max_batch_size { value: 64 } batch_timeout_micros { value: 50000 }")

    def ask(client: int) -> requests.Response:
        return post(running, [["x"]] if client % 4 == 0 else [[client]])

    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        answers = list(pool.map(ask, range(NUM_CLIENTS)))
    for client, answer in enumerate(answers):
        if client % 4 == 0:
            assert answer.status_code == 400
        else:
            assert answer.json() == {"predictions": [[client / 2 + 2]]}


def test_a_server_does_not_start_with_parameters_that_it_cannot_read(
    model: Path, tmp_path: Path
) -> None:
    flags = ("--enable_batching", "--batching_parameters_file=/nowhere")
    server = ServerProcess(f"--model_base_path={model}", *flags, log=tmp_path / "log")
    server.start()
    try:
        assert server.wait() == EXIT_FAILED
        assert "/nowhere; No such file or directory" in server.stdout()
    finally:
        server.kill()
