"""What a user sees when a server starts, or will not."""

import shutil
from pathlib import Path

import pytest
import requests

from aspira.testing.saved_models import write_half_plus_two
from system.server_process import ServerProcess, sockets


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("half_plus_two")
    write_half_plus_two(directory / "1")
    return directory


def run_to_end(server: ServerProcess) -> tuple[int, str]:
    """Exit status, and everything it said."""
    server.start()
    try:
        return server.wait(), server.output() + server.stdout()
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--nope=1", "--model_base_path=/m"), "unknown argument: --nope=1"),
        (("--model_base_path=relative",), "Expected model default to have an absolute path"),
        ((), "server_options.model_base_path and server_options.model_config_file are empty!"),
        (("--max_num_load_retries=many",), "Couldn't interpret value many"),
        (("--model_config_file=/nonexistent",), "/nonexistent; No such file or directory"),
    ],
)
def test_refusals(flags: tuple[str, ...], message: str, tmp_path: Path) -> None:
    status, said = run_to_end(ServerProcess(*flags, log=tmp_path / "log"))
    assert status == 255
    assert message in said
    assert "Traceback" not in said


@pytest.mark.parametrize("listener", ["envoy", "portable"])
def test_a_config_file_that_does_not_parse(listener: str, tmp_path: Path) -> None:
    config = tmp_path / "models.config"
    config.write_text('model_config_list {\n  config { nam: "m" }\n}\n')
    flags = (f"--listener={listener}", f"--model_config_file={config}")
    status, said = run_to_end(ServerProcess(*flags, log=tmp_path / "log"))
    assert status == 255
    assert (
        f"Failed to start server. Error: INVALID_ARGUMENT: Invalid protobuf file: '{config}'"
        in said
    )
    assert "2:12" in said
    assert '"nam"' in said


@pytest.mark.parametrize("listener", ["envoy", "portable"])
def test_a_port_that_is_taken(listener: str, base_path: Path, tmp_path: Path) -> None:
    with sockets(1) as (taken,):
        taken.listen()
        port = taken.getsockname()[1]
        server = ServerProcess(
            f"--listener={listener}",
            f"--model_base_path={base_path}",
            f"--rest_api_port={port}",
            log=tmp_path / "log",
        )
        status, said = run_to_end(server)
    assert status == 255
    assert f"port {port}" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("listener", ["envoy", "portable"])
def test_as_the_original_it_ends_when_a_model_fails(listener: str, tmp_path: Path) -> None:
    base_path = tmp_path / "broken"
    write_half_plus_two(base_path / "1")
    (base_path / "1" / "saved_model.pb").write_bytes(b"no graph")
    server = ServerProcess(
        f"--listener={listener}",
        "--compat=strict",
        f"--model_base_path={base_path}",
        "--max_num_load_retries=0",
        log=tmp_path / "log",
        command="tensorflow_model_server",
    )
    status, said = run_to_end(server)
    assert status == 255
    assert (
        "Failed to start server. Error: UNKNOWN: 1 servable(s) did not become available: "
        "{{name: default version: 1} due to error: DATA_LOSS: "
    ) in said
    assert "Running gRPC ModelServer" not in said


def test_as_the_original_it_opens_its_ports_when_all_models_are_there(
    base_path: Path, tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    server = ServerProcess("--compat=strict", f"--model_base_path={missing}", log=tmp_path / "log")
    server.start()
    try:
        assert server.wait_for_line(f"Could not find base path {missing}")
        with pytest.raises(requests.ConnectionError):
            requests.get(server.rest_url, timeout=30)
        shutil.copytree(base_path, missing)
        assert server.wait_for_line("Exporting HTTP/REST API")
        url = f"{server.rest_url}/v1/models/default:predict"
        answer = requests.post(url, json={"instances": [1.0]}, timeout=30)
        assert answer.json() == {"predictions": [2.5]}
        assert requests.get(f"{server.rest_url}/readyz", timeout=30).status_code == 404
    finally:
        server.kill()


def test_the_drop_in_command_tolerates_unknown_flags(base_path: Path, tmp_path: Path) -> None:
    with ServerProcess(
        f"--model_base_path={base_path}",
        "--no_such_flag=1",
        "--model_name=m",
        log=tmp_path / "log",
        command="tensorflow_model_server",
    ) as server:
        assert "WARNING: ignoring unknown argument --no_such_flag=1" in server.output()
        url = f"{server.rest_url}/v1/models/m:predict"
        answer = requests.post(url, json={"instances": [1.0]}, timeout=30)
        assert answer.json() == {"predictions": [2.5]}
        metrics = f"{server.rest_url}/monitoring/prometheus/metrics"
        assert requests.get(metrics, timeout=30).status_code == 404


@pytest.mark.parametrize("listener", ["envoy", "portable"])
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_without_a_host_all_addresses_answer(
    listener: str, host: str, base_path: Path, tmp_path: Path
) -> None:
    server = ServerProcess(
        f"--listener={listener}", f"--model_base_path={base_path}", log=tmp_path / "log"
    )
    # Tests keep to loopback; this one is about what happens when nobody says so.
    server.arguments.remove("--host=127.0.0.1")
    with server:
        url = f"http://{host}:{server.rest_port}/v1/models/default:predict"
        answer = requests.post(url, json={"instances": [1.0]}, timeout=30)
        assert answer.json() == {"predictions": [2.5]}


def test_rest_is_off_unless_asked_for(base_path: Path, tmp_path: Path) -> None:
    server = ServerProcess(
        f"--model_base_path={base_path}", log=tmp_path / "log", command="tensorflow_model_server"
    )
    server.arguments.append("--rest_api_port=0")
    server.start()
    try:
        assert server.wait_for_line("Running gRPC ModelServer")
        url = f"http://{server.grpc_target}/v1/models/default:predict"
        answer = requests.post(url, json={"instances": [1.0]}, timeout=30)
        assert (answer.status_code, "--rest_api_port" in answer.text) == (404, True)
    finally:
        server.kill()


def test_a_unix_socket_and_a_monitoring_file(base_path: Path, tmp_path: Path) -> None:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    monitoring = tmp_path / "monitoring.config"
    monitoring.write_text('prometheus_config { enable: true path: "/metrics" }')
    path = tmp_path / "grpc.sock"
    with ServerProcess(
        f"--model_base_path={base_path}",
        f"--monitoring_config_file={monitoring}",
        f"--grpc_socket_path={path}",
        log=tmp_path / "log",
    ) as server:
        with grpc.insecure_channel(f"unix:{path}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            answer = health.Check(health_pb2.HealthCheckRequest(), timeout=30)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        page = requests.get(f"{server.rest_url}/metrics", timeout=30)
        assert page.headers["content-type"] == "text/plain"
        assert page.text.startswith("# TYPE ")


@pytest.mark.parametrize("listener", ["envoy", "portable"])
def test_channel_arguments_are_taken_or_named(
    listener: str, base_path: Path, tmp_path: Path
) -> None:
    known = (
        "grpc.max_concurrent_streams=10,grpc.keepalive_time_ms=30000,"
        "grpc.max_connection_idle_ms=60000,grpc.max_connection_age_ms=600000"
    )
    with ServerProcess(
        f"--listener={listener}",
        f"--model_base_path={base_path}",
        f"--grpc_channel_arguments={known},grpc.http2.max_frame_size=32768",
        log=tmp_path / "log",
    ) as server:
        url = f"{server.rest_url}/v1/models/default:predict"
        answer = requests.post(url, json={"instances": [1.0]}, timeout=30)
        assert answer.json() == {"predictions": [2.5]}
        warning = (
            "W aspira/server] grpc.http2.max_frame_size=32768 of --grpc_channel_arguments has "
            "NO EFFECT with the Envoy listener; --listener=portable passes everything to gRPC\n"
        )
        assert (warning in server.output()) == (listener == "envoy")


def test_alts_is_refused(base_path: Path, tmp_path: Path) -> None:
    flags = (f"--model_base_path={base_path}", "--use_alts_credentials")
    for command in ("aspira", "tensorflow_model_server"):
        server = ServerProcess(*flags, log=tmp_path / "log", command=command)
        status, said = run_to_end(server)
        assert status == 255
        assert said == (
            "Failed to start server. Error: UNIMPLEMENTED: --use_alts_credentials is not "
            "supported; use --ssl_config_file\n"
        )
