import json
import re
from pathlib import Path
from typing import Any

import pytest

from aspira.contracts.errors import FailedPrecondition
from aspira.frontends.listeners import envoy_config
from aspira.frontends.listeners.envoy_config import EnvoyPaths, find_pyvoy_module, make_config
from aspira.frontends.listeners.options import ListenerOptions, max_connections
from aspira.frontends.listeners.tls import Tls

PATHS = EnvoyPaths(admin_socket=Path("/run/admin.sock"), module=Path("/lib/pyvoy.so"))
APPLICATION = "aspira.asgi:application"


def config_of(options: ListenerOptions) -> Any:
    """The configuration as Envoy reads it."""
    return json.loads(json.dumps(make_config(options, application=APPLICATION, paths=PATHS)))


def listener_of(options: ListenerOptions) -> Any:
    (listener,) = config_of(options)["static_resources"]["listeners"]
    return listener


def addresses_of(options: ListenerOptions) -> list[Any]:
    listener = listener_of(options)
    further = [entry["address"] for entry in listener["additional_addresses"]]
    return [listener["address"], *further]


def socket_address(host: str, *, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def connection_manager(options: ListenerOptions) -> Any:
    (chain,) = listener_of(options)["filter_chains"]
    (network_filter,) = chain["filters"]
    return network_filter["typed_config"]


def test_one_listener_has_all_addresses() -> None:
    options = ListenerOptions(
        host="127.0.0.1", grpc_port=8500, rest_port=8501, grpc_socket_path="/run/grpc.sock"
    )
    assert addresses_of(options) == [
        socket_address("127.0.0.1", port=8500),
        socket_address("127.0.0.1", port=8501),
        {"pipe": {"path": "/run/grpc.sock"}},
    ]


def test_a_single_port_needs_no_further_address() -> None:
    options = ListenerOptions(host="127.0.0.1", grpc_port=8500, rest_port=0)
    assert addresses_of(options) == [socket_address("127.0.0.1", port=8500)]


def test_a_unix_socket_may_be_the_only_address() -> None:
    options = ListenerOptions(grpc_port=0, rest_port=0, grpc_socket_path="/run/grpc.sock")
    assert addresses_of(options) == [{"pipe": {"path": "/run/grpc.sock"}}]


def test_all_interfaces_of_ipv6_take_ipv4_too() -> None:
    (address,) = addresses_of(ListenerOptions(host="::", grpc_port=8500, rest_port=0))
    assert address["socket_address"]["ipv4_compat"] is True


def test_two_servers_cannot_share_a_port() -> None:
    assert listener_of(ListenerOptions())["enable_reuse_port"] is False


def test_the_admin_interface_is_on_a_private_socket() -> None:
    assert config_of(ListenerOptions())["admin"] == {
        "address": {"pipe": {"path": "/run/admin.sock"}}
    }


def test_requests_end_in_the_application() -> None:
    *_, last = connection_manager(ListenerOptions())["http_filters"]
    filter_config = last["typed_config"]
    assert filter_config["terminal_filter"] is True
    module = filter_config["dynamic_module_config"]["module"]["local"]["filename"]
    assert module == "/lib/pyvoy.so"
    assert json.loads(filter_config["filter_config"]["value"]) == {
        "app": APPLICATION,
        "interface": "asgi",
        "lifespan": True,
    }


@pytest.mark.parametrize(
    ("path", "is_taken"),
    [
        ("/v1/models/m:predict", True),
        ("/v1/models/h%C3%A9/%e2%82%ac/%F0%9F%98%80", True),
        ("/v1/models/%/%zz/%4/%%41%", True),
        ("/v1/models/%ff", False),
        ("/v1/models/%c3", False),
        ("/v1/models/%c0%80", False),
        ("/v1/models/%ed%a0%80", False),
        ("/v1/models/%f4%90%80%80", False),
        ("/%%ff", False),
    ],
)
def test_paths_that_are_no_utf_8_are_refused_at_the_door(path: str, is_taken: bool) -> None:
    """The module that runs Python decodes them, and answers nothing if it cannot."""
    first, _ = connection_manager(ListenerOptions())["http_filters"]
    rules = first["typed_config"]["rules"]
    ((permission,),) = [policy["permissions"] for policy in rules["policies"].values()]
    pattern = permission["not_rule"]["url_path"]["path"]["safe_regex"]["regex"]
    assert rules["action"] == "DENY"
    assert (re.fullmatch(pattern, path) is not None) is is_taken


def test_a_model_may_take_as_long_as_it_likes() -> None:
    manager = connection_manager(ListenerOptions())
    assert manager["stream_idle_timeout"] == "0s"
    assert manager["request_timeout"] == "0s"
    assert manager["request_headers_timeout"] == "30s"


def test_both_protocols_are_told_apart_on_every_port() -> None:
    assert connection_manager(ListenerOptions())["codec_type"] == "AUTO"


def test_the_module_is_a_file() -> None:
    assert find_pyvoy_module().is_file()


def test_a_missing_module_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envoy_config.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FailedPrecondition) as caught:
        find_pyvoy_module()
    assert caught.value.message == "pyvoy is not installed; use --listener=portable"


def transport_socket(tls: Tls) -> Any:
    config = make_config(ListenerOptions(), application=APPLICATION, paths=PATHS, tls=tls)
    (listener,) = json.loads(json.dumps(config))["static_resources"]["listeners"]
    (chain,) = listener["filter_chains"]
    return chain["transport_socket"]["typed_config"]


def test_connections_are_plain_without_a_key() -> None:
    (chain,) = listener_of(ListenerOptions())["filter_chains"]
    assert chain.keys() == {"filters"}


def test_one_chain_encrypts_every_address_for_both_protocols() -> None:
    context = transport_socket(Tls("key", "cert"))
    assert context["common_tls_context"] == {
        "tls_certificates": [
            {
                "certificate_chain": {"inline_string": "cert"},
                "private_key": {"inline_string": "key"},
            }
        ],
        "alpn_protocols": ["h2", "http/1.1"],
    }
    assert "require_client_certificate" not in context


def test_clients_are_verified_where_there_is_an_authority_for_them() -> None:
    context = transport_socket(Tls("key", "cert", "authority"))
    assert context["require_client_certificate"] is True
    assert context["common_tls_context"]["validation_context"] == {
        "trusted_ca": {"inline_string": "authority"}
    }


def test_channel_arguments_that_envoy_knows_are_passed_on() -> None:
    arguments = ("grpc.max_concurrent_streams=5", "grpc.max_connection_idle_ms=2000")
    manager = connection_manager(ListenerOptions(grpc_channel_arguments=arguments))
    assert manager["http2_protocol_options"]["max_concurrent_streams"] == 5
    assert manager["common_http_protocol_options"] == {"idle_timeout": "2.000s"}


def test_streams_are_not_bounded_unless_asked_for() -> None:
    options = connection_manager(ListenerOptions())["http2_protocol_options"]
    assert options["max_concurrent_streams"] == 2**31 - 1


def test_connections_leave_files_for_models_and_the_admin_port() -> None:
    (monitor,) = config_of(ListenerOptions())["overload_manager"]["resource_monitors"]
    assert monitor["typed_config"]["max_active_downstream_connections"] == max_connections()
