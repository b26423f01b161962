"""How a server ends: in order on the first signal, at once on the second, never left behind."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

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


def wait_until_counting(server: ServerProcess) -> None:
    """Until the server is at work: its processor time grows by more than idling costs."""
    stat = Path(f"/proc/{server.serving_pid()}/stat")
    before = sum(int(ticks) for ticks in stat.read_text().rpartition(")")[2].split()[11:13])
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    while True:
        now = sum(int(ticks) for ticks in stat.read_text().rpartition(")")[2].split()[11:13])
        if now - before > ticks_per_s // 5:
            return
        time.sleep(0.01)


@pytest.fixture
def heeded_hangup() -> Iterator[None]:
    """Servers inherit that SIGHUP is ignored, as it is where nohup runs the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("listener", "number"),
    [
        ("envoy", signal.SIGTERM),
        ("envoy", signal.SIGHUP),
        ("portable", signal.SIGTERM),
        ("portable", signal.SIGINT),
    ],
)
@pytest.mark.usefixtures("heeded_hangup")
def test_the_first_signal_lets_requests_finish(
    listener: str, number: signal.Signals, base_path: Path, tmp_path: Path
) -> None:
    flags = (f"--listener={listener}", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        with grpc.insecure_channel(server.grpc_target) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            stub.Predict(count_request(1), timeout=60)
            pending = stub.Predict.future(count_request(1_000_000), timeout=60)
            wait_until_counting(server)
            server.signal(number)
            assert server.wait_for_line("Shutting down")
            answer = requests.get(f"{server.rest_url}/readyz", timeout=30)
            assert (answer.status_code, answer.json()) == (503, {"status": "shutting down"})
            with pytest.raises(grpc.RpcError) as refused:
                stub.Predict(count_request(1), timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert list(pending.result().outputs["counted"].int64_val) == [1_000_000]
        assert server.wait() == 0
        assert "Done unloading servable version {name: default version: 1}" in server.output()


@pytest.mark.parametrize(
    ("listener", "number", "status"),
    [("envoy", signal.SIGTERM, 143), ("portable", signal.SIGINT, 130)],
)
def test_as_the_original_the_first_signal_ends_everything(
    listener: str, number: signal.Signals, status: int, base_path: Path, tmp_path: Path
) -> None:
    flags = (f"--listener={listener}", "--compat=strict", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        children = server.children()
        with grpc.insecure_channel(server.grpc_target) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            pending = stub.Predict.future(count_request(1_000_000), timeout=60)
            wait_until_counting(server)
            server.signal(number)
            assert server.wait() == status
            assert pending.code() is grpc.StatusCode.UNAVAILABLE
        assert "Shutting down" not in server.output()
        assert all(wait_gone(child) for child in children)


@LISTENERS
def test_a_request_that_outlasts_the_grace_period_is_cut(
    listener: str, base_path: Path, tmp_path: Path
) -> None:
    flags = (f"--listener={listener}", f"--model_base_path={base_path}")
    with ServerProcess(*flags, "--shutdown_grace_seconds=0.2", log=tmp_path / "log") as server:
        with grpc.insecure_channel(server.grpc_target) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            pending = stub.Predict.future(count_request(10**12), timeout=60)
            wait_until_counting(server)
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
            assert pending.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
        assert "were cut" in server.output()


@LISTENERS
def test_the_second_signal_ends_at_once(listener: str, base_path: Path, tmp_path: Path) -> None:
    flags = (f"--listener={listener}", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        serving_pid = server.serving_pid()
        with grpc.insecure_channel(server.grpc_target) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            # Kept, since a call that is forgotten is cancelled.
            pending = stub.Predict.future(count_request(10**12), timeout=60)
            wait_until_counting(server)
            server.signal(signal.SIGTERM)
            assert server.wait_for_line("Shutting down")
            server.signal(signal.SIGTERM)
            assert server.wait() == 130
            assert pending.code() is grpc.StatusCode.UNAVAILABLE
        assert wait_gone(serving_pid)


def test_a_signal_during_start_up(base_path: Path, tmp_path: Path) -> None:
    server = ServerProcess(f"--model_base_path={base_path}", log=tmp_path / "log")
    server.start()
    try:
        while not server.children():
            os.sched_yield()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    finally:
        server.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare command")
@LISTENERS
def test_as_process_1_it_ends_on_sigterm(listener: str, base_path: Path, tmp_path: Path) -> None:
    flags = (f"--listener={listener}", f"--model_base_path={base_path}")
    server = ServerProcess(*flags, log=tmp_path / "log")
    server.arguments = ["unshare", "--pid", "--fork", "--kill-child", *server.arguments]
    with server:
        (process_1,) = server.children()
        os.kill(process_1, signal.SIGTERM)
        assert server.wait() == 0
        assert "Stopped." in server.output()


def test_a_dead_server_process_is_reported_and_replaced(base_path: Path, tmp_path: Path) -> None:
    flags = ("--listener=envoy", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        first_pid = server.serving_pid()
        os.kill(first_pid, signal.SIGKILL)
        assert server.wait_for_line("The server process died (signal 9)")
        body = {"inputs": 3}
        url = f"{server.rest_url}/v1/models/default:predict"
        assert wait_answering(url, body=body).json() == {"outputs": 3}
        assert server.serving_pid() != first_pid


def test_a_server_process_that_dies_while_it_restarts_is_replaced_too(
    base_path: Path, tmp_path: Path
) -> None:
    flags = ("--listener=envoy", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        first_pid = server.serving_pid()
        os.kill(first_pid, signal.SIGKILL)
        assert server.wait_for_line("The server process died (signal 9)")
        while server.serving_pid() in {first_pid, server.pid}:
            time.sleep(0.01)
        os.kill(server.serving_pid(), signal.SIGKILL)
        assert server.wait_for_line("The server did not start again")
        url = f"{server.rest_url}/v1/models/default:predict"
        assert wait_answering(url, body={"inputs": 3}).json() == {"outputs": 3}


def test_a_server_process_that_hangs_is_killed(base_path: Path, tmp_path: Path) -> None:
    flags = ("--listener=envoy", "--shutdown_grace_seconds=0.1", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        serving_pid = server.serving_pid()
        os.kill(serving_pid, signal.SIGSTOP)
        server.signal(signal.SIGTERM)
        assert server.wait() == 1
        assert "did not answer, and was killed" in server.output()
        assert wait_gone(serving_pid)


def test_nothing_is_left_on_disk(base_path: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    flags = ("--listener=envoy", f"--model_base_path={base_path}")
    environment = {"TMPDIR": str(private)}
    with ServerProcess(*flags, log=tmp_path / "log", environment=environment) as server:
        (directory,) = private.iterdir()
        assert [file.name for file in directory.iterdir()] == ["admin.sock"]
        with grpc.insecure_channel(server.grpc_target) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            pending = stub.Predict.future(count_request(10**12), timeout=60)
            wait_until_counting(server)
            server.signal(signal.SIGTERM)
            assert server.wait_for_line("Shutting down")
            server.signal(signal.SIGTERM)
            assert server.wait() == 130
            pending.cancel()
        assert list(private.iterdir()) == []


def test_no_server_process_outlives_its_parent(base_path: Path, tmp_path: Path) -> None:
    flags = ("--listener=envoy", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        serving_pid = server.serving_pid()
        server.signal(signal.SIGKILL)
        server.wait()
        assert wait_gone(serving_pid)


def test_a_log_that_cannot_be_written_stops_nothing(base_path: Path) -> None:
    server = ServerProcess(f"--model_base_path={base_path}", log=Path("/dev/full"))
    server.start()
    try:
        url = f"{server.rest_url}/v1/models/default:predict"
        assert wait_answering(url, body={"inputs": 3}).json() == {"outputs": 3}
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    finally:
        server.kill()


def wait_answering(url: str, *, body: Any) -> requests.Response:
    while True:
        try:
            return requests.post(url, json=body, timeout=30)
        except requests.ConnectionError:
            os.sched_yield()


def wait_gone(pid: int) -> bool:
    """Whether the process ends, or is a zombie that its new parent has still to bury."""
    gone = threading.Event()

    def watch() -> None:
        while True:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except FileNotFoundError:
                state = "Z"
            if state == "Z":
                gone.set()
                return

    threading.Thread(target=watch, daemon=True).start()
    return gone.wait(30)
