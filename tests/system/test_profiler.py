"""TensorFlow's own client captures profiles of real servers, over both listeners."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import requests
import tensorflow as tf
from tensorflow.python.profiler.internal import _pywrap_profiler_plugin
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from aspira.testing.saved_models import write_mlp
from aspira.wire.profiler_service import make_profiler_messages
from system.server_process import ServerProcess

LISTENERS = pytest.mark.parametrize("listener", ["envoy", "portable"])
MESSAGES = make_profiler_messages()
TIMEOUT_S = 30


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mlp")
    write_mlp(directory / "1", sizes=(4, 8, 1))
    return directory


@contextmanager
def traffic(server: ServerProcess) -> Iterator[None]:
    """Requests, one after the other."""
    ended = threading.Event()

    def ask() -> None:
        url = f"{server.rest_url}/v1/models/default:predict"
        with requests.Session() as session:
            while not ended.is_set():
                session.post(url, json={"instances": [[1.0] * 4]}, timeout=TIMEOUT_S)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
@LISTENERS
def test_tensorflows_client_gets_a_profile_that_tensorboard_reads(
    listener: str, base_path: Path, tmp_path: Path
) -> None:
    flags = (f"--listener={listener}", f"--model_base_path={base_path}")
    logs = tmp_path / "logs"
    with ServerProcess(*flags, log=tmp_path / "log") as server, traffic(server):
        tf.profiler.experimental.client.trace(f"grpc://{server.grpc_target}", str(logs), 300)
    (file,) = logs.glob(f"plugins/profile/*/{server.grpc_target.replace(':', '_')}.xplane.pb")
    planes = xplane_pb2.XSpace.FromString(file.read_bytes()).planes
    names = {data.name for plane in planes for data in plane.event_metadata.values()}
    assert any("MatMul" in name for name in names)
    # What TensorBoard's plugin makes its pages with.
    page, is_made = _pywrap_profiler_plugin.xspace_to_tools_data([str(file)], "trace_viewer")
    assert is_made
    assert b"MatMul" in page


def try_profile(profile: Any) -> Any:
    """The error of a short profile; None if there is none."""
    try:
        profile(MESSAGES.profile_request(duration_ms=1), timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        return error
    return None


def begin(profile: Any) -> tuple[Any, Any]:
    """A long profile that has begun, and the error that another one meets."""
    while True:
        begun = profile.future(MESSAGES.profile_request(duration_ms=500_000, session_id="long"))
        # If the short one came first, the long one was refused.
        if (error := try_profile(profile)) is not None:
            return begun, error


@pytest.mark.slow
@LISTENERS
def test_one_profile_at_a_time_and_none_for_a_client_that_left(
    listener: str, base_path: Path, tmp_path: Path
) -> None:
    flags = (f"--listener={listener}", f"--model_base_path={base_path}")
    with (
        ServerProcess(*flags, log=tmp_path / "log") as server,
        grpc.insecure_channel(server.grpc_target) as channel,
    ):
        profile = channel.unary_unary(
            "/tensorflow.ProfilerService/Profile",
            request_serializer=MESSAGES.profile_request.SerializeToString,
            response_deserializer=MESSAGES.profile_response.FromString,
        )
        terminate = channel.unary_unary(
            "/tensorflow.ProfilerService/Terminate",
            request_serializer=MESSAGES.terminate_request.SerializeToString,
            response_deserializer=MESSAGES.terminate_response.FromString,
        )
        begun, refusal = begin(profile)
        assert refusal.code() is grpc.StatusCode.INTERNAL
        assert refusal.details() == "Another profiling session active."
        terminate(MESSAGES.terminate_request(session_id="long"), timeout=TIMEOUT_S)
        assert begun.result(timeout=TIMEOUT_S).tool_data[0].name == "xplane.pb"
        begun, _ = begin(profile)
        begun.cancel()
        # That it has left becomes known soon; otherwise this would end with the test's time.
        while try_profile(profile) is not None:
            time.sleep(0.05)
