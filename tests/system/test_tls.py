"""Encrypted connections, over both listeners, with certificates made here."""

import asyncio
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
import requests
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aspira.frontends.listeners.envoy import EnvoyServer, make_command
from aspira.frontends.listeners.options import ListenerOptions
from aspira.frontends.listeners.tls import read_tls
from aspira.testing.saved_models import write_half_plus_two
from certificates import Certificate, make_certificate, write_ssl_config
from system.counting_application import STARTS_VARIABLE
from system.server_process import ServerProcess, free_ports

LISTENERS = ("envoy", "portable")
TIMEOUT_S = 30


class Certificates(NamedTuple):
    """One authority for all but the stranger, who has its own."""

    authority: Certificate
    server: Certificate
    client: Certificate
    stranger: Certificate


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    directory = tmp_path_factory.mktemp("certificates")
    authority = make_certificate(directory, name="authority")
    server = make_certificate(directory, name="server", issuer=authority)
    client = make_certificate(directory, name="client", issuer=authority)
    return Certificates(authority, server, client, make_certificate(directory, name="stranger"))


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("half_plus_two")
    write_half_plus_two(directory / "1")
    return directory


@pytest.fixture(scope="module", params=LISTENERS)
def server(
    request: pytest.FixtureRequest,
    base_path: Path,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ServerProcess]:
    """A server that proves who it is, and takes any client."""
    directory = tmp_path_factory.mktemp(request.param)
    with start(
        request.param, base_path=base_path, certificates=certificates, directory=directory
    ) as running:
        yield running


@pytest.fixture(scope="module", params=LISTENERS)
def verifying_server(
    request: pytest.FixtureRequest,
    base_path: Path,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ServerProcess]:
    """A server that takes only the authority's clients."""
    directory = tmp_path_factory.mktemp(request.param)
    with start(
        request.param,
        base_path=base_path,
        certificates=certificates,
        directory=directory,
        client_verify=True,
    ) as running:
        yield running


def start(
    listener: str,
    *,
    base_path: Path,
    certificates: Certificates,
    directory: Path,
    client_verify: bool = False,
) -> ServerProcess:
    config = write_ssl_config(
        directory / "ssl.config",
        key=certificates.server.key,
        cert=certificates.server.cert,
        custom_ca=certificates.authority.cert,
        client_verify=client_verify,
    )
    return ServerProcess(
        f"--listener={listener}",
        f"--model_base_path={base_path}",
        f"--ssl_config_file={config}",
        f"--grpc_socket_path={directory / 'grpc.sock'}",
        log=directory / "log",
        scheme="https",
    )


def predict(
    server: ServerProcess, *, certificates: Certificates, client: Certificate | None = None
) -> list[float]:
    """The answer of REST to a client that trusts the authority."""
    answer = requests.post(
        f"{server.rest_url}/v1/models/default:predict",
        json={"instances": [1.0]},
        verify=str(certificates.authority.cert_file),
        cert=(str(client.cert_file), str(client.key_file)) if client else None,
        timeout=TIMEOUT_S,
    )
    predictions: list[float] = answer.json()["predictions"]
    return predictions


def check_health(
    target: str, *, certificates: Certificates, client: Certificate | None = None
) -> int:
    """The answer of gRPC to a client that trusts the authority."""
    credentials = grpc.ssl_channel_credentials(
        root_certificates=certificates.authority.cert.encode(),
        private_key=client.key.encode() if client else None,
        certificate_chain=client.cert.encode() if client else None,
    )
    options = (("grpc.ssl_target_name_override", "localhost"),)
    with grpc.secure_channel(target, credentials, options) as channel:
        request = health_pb2.HealthCheckRequest()
        status: int = health_pb2_grpc.HealthStub(channel).Check(request, timeout=TIMEOUT_S).status
    return status


def socket_target(server: ServerProcess) -> str:
    (flag,) = [a for a in server.arguments if a.startswith("--grpc_socket_path=")]
    return f"unix:{flag.partition('=')[2]}"


def test_rest_is_encrypted(server: ServerProcess, certificates: Certificates) -> None:
    assert predict(server, certificates=certificates) == [2.5]


def test_grpc_is_encrypted(server: ServerProcess, certificates: Certificates) -> None:
    serving = health_pb2.HealthCheckResponse.SERVING
    assert check_health(server.grpc_target, certificates=certificates) == serving


def test_the_unix_socket_is_encrypted(server: ServerProcess, certificates: Certificates) -> None:
    serving = health_pb2.HealthCheckResponse.SERVING
    assert check_health(socket_target(server), certificates=certificates) == serving


def test_the_log_says_so_and_holds_no_key(
    server: ServerProcess, certificates: Certificates
) -> None:
    output = server.output()
    assert "Using SSL credentials\n" in output
    assert certificates.server.key.splitlines()[1] not in output


def test_plain_requests_are_not_answered(server: ServerProcess) -> None:
    with pytest.raises(requests.ConnectionError):
        requests.get(f"http://127.0.0.1:{server.rest_port}/healthz", timeout=TIMEOUT_S)
    with grpc.insecure_channel(server.grpc_target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            health.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_client_that_trusts_another_authority_turns_away(
    server: ServerProcess, certificates: Certificates
) -> None:
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(
            f"{server.rest_url}/healthz",
            verify=str(certificates.stranger.cert_file),
            timeout=TIMEOUT_S,
        )


def test_rest_speaks_http_2_where_the_listener_does(
    server: ServerProcess, certificates: Certificates
) -> None:
    context = ssl.create_default_context(cafile=str(certificates.authority.cert_file))
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", server.rest_port), TIMEOUT_S) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as encrypted,
    ):
        is_envoy = "--listener=envoy" in server.arguments
        assert encrypted.selected_alpn_protocol() == ("h2" if is_envoy else "http/1.1")


def test_a_client_with_a_certificate_is_answered(
    verifying_server: ServerProcess, certificates: Certificates
) -> None:
    client = certificates.client
    assert predict(verifying_server, certificates=certificates, client=client) == [2.5]
    for target in (verifying_server.grpc_target, socket_target(verifying_server)):
        status = check_health(target, certificates=certificates, client=client)
        assert status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("name", ["nobody", "stranger"])
def test_other_clients_are_turned_away(
    name: str, verifying_server: ServerProcess, certificates: Certificates
) -> None:
    client = certificates.stranger if name == "stranger" else None
    with pytest.raises(requests.ConnectionError):
        predict(verifying_server, certificates=certificates, client=client)
    for target in (verifying_server.grpc_target, socket_target(verifying_server)):
        with pytest.raises(grpc.RpcError) as caught:
            check_health(target, certificates=certificates, client=client)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_bad_file_is_refused_before_anything_starts(
    listener: str, base_path: Path, certificates: Certificates, tmp_path: Path
) -> None:
    config = write_ssl_config(
        tmp_path / "ssl.config", key=certificates.client.key, cert=certificates.server.cert
    )
    server = ServerProcess(
        f"--listener={listener}",
        f"--model_base_path={base_path}",
        f"--ssl_config_file={config}",
        log=tmp_path / "log",
    )
    server.start()
    try:
        assert server.wait() == 255
        assert server.stdout() == (
            f"Failed to start server. Error: INVALID_ARGUMENT: Invalid SSLConfig file: '{config}': "
            "server_key is not the key of server_cert\n"
        )
        assert server.output() == ""
    finally:
        server.kill()


def test_the_key_is_nowhere_to_be_read_while_serving(
    base_path: Path, certificates: Certificates, tmp_path: Path
) -> None:
    with start(
        "envoy", base_path=base_path, certificates=certificates, directory=tmp_path
    ) as server:
        process = Path(f"/proc/{server.serving_pid()}")
        secret = certificates.server.key.splitlines()[1].encode()
        assert secret not in (process / "cmdline").read_bytes()
        assert secret not in (process / "environ").read_bytes()
        command = (process / "cmdline").read_bytes().decode().split("\0")
        file = Path(command[command.index("--config-path") + 1])
        assert not file.exists()
        assert file.parent.stat().st_mode & 0o777 == 0o700
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert not file.parent.exists()


def test_envoy_starts_the_application_once_for_all_addresses(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = tmp_path / "starts"
    monkeypatch.setenv(STARTS_VARIABLE, str(starts))
    config = write_ssl_config(
        tmp_path / "ssl.config", key=certificates.server.key, cert=certificates.server.cert
    )
    grpc_port, rest_port = free_ports(2)
    options = ListenerOptions(
        host="127.0.0.1",
        grpc_port=grpc_port,
        rest_port=rest_port,
        grpc_socket_path=str(tmp_path / "grpc.sock"),
    )
    trusted = ("--cacert", str(certificates.authority.cert_file))

    async def run() -> set[str]:
        command = make_command(
            options,
            settings="{}",
            directory=tmp_path,
            tls=read_tls(str(config)),
            application="system.counting_application:application",
        )
        server = await EnvoyServer.start(command, directory=tmp_path)
        try:
            await server.wait_listening()
            return {
                await ask(*trusted, f"https://localhost:{grpc_port}/"),
                await ask(*trusted, "--http1.1", f"https://localhost:{rest_port}/"),
                await ask(
                    *trusted, "--unix-socket", options.grpc_socket_path, "https://localhost/"
                ),
            }
        finally:
            await server.stop()

    loops = {answer.split()[0] for answer in asyncio.run(run())}
    assert loops == {starts.read_text().strip()}


async def ask(*arguments: str) -> str:
    """The answer that curl gets: the loop, the scheme and the HTTP version."""
    process = await asyncio.create_subprocess_exec(
        *("curl", "--silent", "--show-error", "--max-time", str(TIMEOUT_S), *arguments),
        stdout=subprocess.PIPE,
    )
    answer = (await process.communicate())[0].decode()
    assert re.fullmatch(r"\d+ https (2|1\.1)", answer)
    return answer
