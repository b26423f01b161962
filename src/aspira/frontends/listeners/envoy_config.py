"""The configuration Envoy is started with: one listener on all addresses, one Python application.

One listener, because each further one would import the application with an event loop of its own.
"""

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aspira.contracts.errors import FailedPrecondition
from aspira.frontends.listeners.channel_arguments import connection_options, http2_options
from aspira.frontends.listeners.options import ListenerOptions, max_connections
from aspira.frontends.listeners.tls import Tls

Config = dict[str, Any]

_TYPES = "type.googleapis.com/envoy.extensions.filters"
_TLS_TYPE = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
_CONNECTIONS_TYPE = (
    "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3"
    ".DownstreamConnectionsConfig"
)
_WINDOW_BYTES = 16 * 2**20
_MAX_CONCURRENT_STREAMS = 2**31 - 1
_STAT_PREFIX = "aspira"
_HEADERS_TIMEOUT = "30s"
# Envoy's own bound, 100, is for the patterns of others.
_MAX_PATTERN_SIZE = 1000
_NOT_HEX = "[^%0-9A-Fa-f]"
_HEX = "[0-9A-Fa-f]"
_CONTINUED = f"%[89AaBb]{_HEX}"
# RFC 3629, section 4, as escapes.
_CHARACTER = "|".join(
    [
        f"%[0-7]{_HEX}",
        f"%(?:[Cc][2-9A-Fa-f]|[Dd]{_HEX}){_CONTINUED}",
        f"%[Ee](?:0%[AaBb]{_HEX}|[Dd]%[89]{_HEX}|[1-9A-Ca-cEeFf]{_CONTINUED}){_CONTINUED}",
        f"%[Ff](?:0%[9AaBb]{_HEX}|4%8{_HEX}|[1-3]{_CONTINUED})(?:{_CONTINUED}){{2}}",
    ]
)
# A percent sign that begins no escape stands for itself.
_UTF_8_PATH = f"(?:[^%]|{_CHARACTER}|(?:%{_HEX}?)+(?:{_NOT_HEX}|{_CHARACTER}|$))*"
_NOT_UTF_8 = '{"error": "The path is not UTF-8 once its escapes are decoded."}\n'


@dataclass(frozen=True, slots=True)
class EnvoyPaths:
    """Files of one Envoy process."""

    admin_socket: Path
    module: Path


def find_pyvoy_module() -> Path:
    """The shared library with which Envoy runs Python.

    Raises:
        FailedPrecondition: pyvoy is not installed.
    """
    spec = importlib.util.find_spec("pyvoy._pyvoy") if importlib.util.find_spec("pyvoy") else None
    if spec is None or spec.origin is None:
        raise FailedPrecondition("pyvoy is not installed; use --listener=portable")
    return Path(spec.origin)


def make_config(
    options: ListenerOptions, *, application: str, paths: EnvoyPaths, tls: Tls | None = None
) -> Config:
    """Envoy's bootstrap configuration, ready for `json.dumps`. With `tls` it holds the key."""
    filters = [_connection_manager(options, application=application, module=paths.module)]
    chain: Config = {"filters": filters}
    if tls is not None:
        chain["transport_socket"] = _transport_socket(tls)
    addresses = [_socket_address(options, port=port) for port in options.ports]
    if options.grpc_socket_path:
        addresses.append({"pipe": {"path": options.grpc_socket_path}})
    listener: Config = {
        "name": "front-door",
        "address": addresses[0],
        "additional_addresses": [{"address": address} for address in addresses[1:]],
        # Two servers on one port must clash, not share it.
        "enable_reuse_port": False,
        "per_connection_buffer_limit_bytes": _WINDOW_BYTES,
        # One chain for all addresses, the UNIX socket too.
        "filter_chains": [chain],
    }
    limits: Config = {"re2": {"max_program_size": {"error_level": _MAX_PATTERN_SIZE}}}
    return {
        "admin": {"address": {"pipe": {"path": str(paths.admin_socket)}}},
        "static_resources": {"listeners": [listener]},
        "layered_runtime": {"layers": [{"name": "limits", "static_layer": limits}]},
        "overload_manager": {"resource_monitors": [_connection_limit()]},
    }


def _connection_limit() -> Config:
    """One more is closed at once. Without files Envoy would try to accept it over and over."""
    return {
        "name": "envoy.resource_monitors.global_downstream_max_connections",
        "typed_config": {
            "@type": _CONNECTIONS_TYPE,
            "max_active_downstream_connections": max_connections(),
        },
    }


def _socket_address(options: ListenerOptions, *, port: int) -> Config:
    host = options.bind_host
    address: Config = {"address": host, "port_value": port}
    if host == "::":
        address["ipv4_compat"] = True
    return {"socket_address": address}


def _transport_socket(tls: Tls) -> Config:
    certificate = {
        "certificate_chain": {"inline_string": tls.server_cert},
        "private_key": {"inline_string": tls.server_key},
    }
    common: Config = {"tls_certificates": [certificate], "alpn_protocols": ["h2", "http/1.1"]}
    context: Config = {"@type": _TLS_TYPE, "common_tls_context": common}
    if tls.client_ca:
        context["require_client_certificate"] = True
        common["validation_context"] = {"trusted_ca": {"inline_string": tls.client_ca}}
    return {"name": "envoy.transport_sockets.tls", "typed_config": context}


def _connection_manager(options: ListenerOptions, *, application: str, module: Path) -> Config:
    return {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": f"{_TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": _STAT_PREFIX,
            "codec_type": "AUTO",
            "server_name": "aspira",
            "generate_request_id": False,
            "http_protocol_options": {
                "accept_http_10": True,
                "default_host_for_http_10": "localhost",
            },
            "http2_protocol_options": {
                "max_concurrent_streams": _MAX_CONCURRENT_STREAMS,
                "initial_stream_window_size": _WINDOW_BYTES,
                "initial_connection_window_size": _WINDOW_BYTES,
                **http2_options(options.grpc_channel_arguments),
            },
            "common_http_protocol_options": connection_options(options.grpc_channel_arguments),
            # Deadlines are the application's business: a model may think for longer than Envoy
            # would wait.
            "stream_idle_timeout": "0s",
            "request_timeout": "0s",
            # But headers come at once, or their sender only holds a connection open.
            "request_headers_timeout": _HEADERS_TIMEOUT,
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"]}]},
            "http_filters": [_path_filter(), _python_filter(application, module=module)],
            "local_reply_config": _path_refusal(),
        },
    }


def _path_filter() -> Config:
    """Refuses paths that decode to no UTF-8: the Python module would never answer them."""
    path = {"path": {"safe_regex": {"regex": _UTF_8_PATH}}}
    policy = {"permissions": [{"not_rule": {"url_path": path}}], "principals": [{"any": True}]}
    return {
        "name": "paths",
        "typed_config": {
            "@type": f"{_TYPES}.http.rbac.v3.RBAC",
            "rules": {"action": "DENY", "policies": {"not UTF-8": policy}},
        },
    }


def _path_refusal() -> Config:
    """What answers those paths. Envoy itself says 403, and says it for nothing else here."""
    forbidden = {"comparison": {"op": "EQ", "value": {"default_value": 403, "runtime_key": "none"}}}
    body = {"text_format_source": {"inline_string": _NOT_UTF_8}, "content_type": "application/json"}
    mapper = {
        "filter": {"status_code_filter": forbidden},
        "status_code": 400,
        "body_format_override": body,
    }
    return {"mappers": [mapper]}


def _python_filter(application: str, *, module: Path) -> Config:
    return {
        "name": "pyvoy",
        "typed_config": {
            "@type": f"{_TYPES}.http.dynamic_modules.v3.DynamicModuleFilter",
            "dynamic_module_config": {"module": {"local": {"filename": str(module)}}},
            "filter_name": "pyvoy",
            "terminal_filter": True,
            "filter_config": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": json.dumps({"app": application, "interface": "asgi", "lifespan": True}),
            },
        },
    }
