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
from aspira.frontends.listeners.options import ListenerOptions
from aspira.frontends.listeners.tls import Tls

Config = dict[str, Any]

_TYPES = "type.googleapis.com/envoy.extensions.filters"
_TLS_TYPE = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
_WINDOW_BYTES = 16 * 2**20
_MAX_CONCURRENT_STREAMS = 2**31 - 1
_STAT_PREFIX = "aspira"


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
    return {
        "admin": {"address": {"pipe": {"path": str(paths.admin_socket)}}},
        "static_resources": {"listeners": [listener]},
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
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"]}]},
            "http_filters": [_python_filter(application, module=module)],
        },
    }


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
