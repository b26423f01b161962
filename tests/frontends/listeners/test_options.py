import resource
import socket
from collections.abc import Iterator

import pytest

from aspira.contracts.errors import FailedPrecondition
from aspira.frontends.listeners import options as options_module
from aspira.frontends.listeners.options import (
    ListenerOptions,
    bind_port,
    check_ports_free,
    max_connections,
)

LOOPBACK = "127.0.0.1"


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_a_taken_grpc_port_is_told(taken_port: int) -> None:
    options = ListenerOptions(host=LOOPBACK, grpc_port=taken_port, rest_port=0)
    with pytest.raises(FailedPrecondition) as caught:
        check_ports_free(options)
    text = caught.value.message
    assert text.startswith(f"Cannot listen on {LOOPBACK} port {taken_port}: ")
    assert "Address already in use" in text
    assert text.endswith("Is another server running? Choose another with --port or --rest_api_port")


def test_a_taken_rest_port_is_told(taken_port: int, free_port: int) -> None:
    options = ListenerOptions(host=LOOPBACK, grpc_port=free_port, rest_port=taken_port)
    with pytest.raises(FailedPrecondition, match=f"port {taken_port}: "):
        check_ports_free(options)


def test_free_ports_pass_and_stay_free(free_port: int) -> None:
    options = ListenerOptions(host=LOOPBACK, grpc_port=free_port, rest_port=0)
    check_ports_free(options)
    check_ports_free(options)


def test_a_server_without_ports_has_none_to_check() -> None:
    check_ports_free(ListenerOptions(host="no such host", grpc_port=0, rest_port=0))


@pytest.mark.parametrize("port", [-1, 65536, 2**63 - 1])
def test_a_number_that_is_no_port_is_told(port: int) -> None:
    options = ListenerOptions(host=LOOPBACK, grpc_port=port, rest_port=0)
    with pytest.raises(FailedPrecondition, match=f"Cannot listen on {LOOPBACK} port {port}: "):
        check_ports_free(options)


def test_a_host_that_is_not_ours_is_told() -> None:
    options = ListenerOptions(host="192.0.2.1", grpc_port=8500, rest_port=0)
    with pytest.raises(FailedPrecondition, match=r"Cannot listen on 192\.0\.2\.1: .*--host"):
        check_ports_free(options)


@pytest.mark.parametrize(("has_ipv6", "host"), [(True, "::"), (False, "0.0.0.0")])
def test_no_host_means_all_interfaces(
    monkeypatch: pytest.MonkeyPatch, has_ipv6: bool, host: str
) -> None:
    monkeypatch.setattr(options_module, "_has_ipv6", lambda: has_ipv6)
    assert ListenerOptions().bind_host == host
    assert ListenerOptions().shown_host == "localhost"


def test_a_host_is_bound_and_shown_as_given() -> None:
    options = ListenerOptions(host=LOOPBACK)
    assert (options.bind_host, options.shown_host) == (LOOPBACK, LOOPBACK)


@pytest.mark.parametrize(
    ("grpc_port", "rest_port", "ports"),
    [(8500, 8501, (8500, 8501)), (8500, 0, (8500,)), (0, 8501, (8501,)), (0, 0, ())],
)
def test_ports_of_zero_are_not_opened(
    grpc_port: int, rest_port: int, ports: tuple[int, ...]
) -> None:
    assert ListenerOptions(grpc_port=grpc_port, rest_port=rest_port).ports == ports


def test_another_address_is_bound_if_one_is_given() -> None:
    options = ListenerOptions(host=LOOPBACK)
    assert options.at("").bind_host == LOOPBACK
    assert options.at("192.0.2.1").bind_host == "192.0.2.1"


def test_a_port_is_bound_on_all_interfaces_for_both_protocols() -> None:
    if not options_module._has_ipv6():
        pytest.skip("no IPv6 here")
    with bind_port("::", port=0) as server:
        port = server.getsockname()[1]
        for host in (LOOPBACK, "::1"):
            with socket.create_connection((host, port), timeout=30):
                pass


@pytest.mark.parametrize(
    ("num_files", "num_connections"),
    [(1000, 750), (20_000, 19_488), (resource.RLIM_INFINITY, 2**20 - 512)],
)
def test_connections_leave_files_to_open(
    num_files: int, num_connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (num_files, num_files))
    assert max_connections() == num_connections
