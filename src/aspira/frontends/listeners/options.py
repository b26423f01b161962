"""Where a server listens."""

import socket
from dataclasses import dataclass

from aspira.contracts.errors import FailedPrecondition


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """Addresses of the front door; one field, one flag."""

    host: str = ""
    """Address to bind; empty means all interfaces, IPv6 included where the machine has it."""

    grpc_port: int = 8500
    """0 opens no gRPC port."""

    rest_port: int = 8501
    """0 opens no REST port."""

    grpc_socket_path: str = ""
    """A UNIX socket for gRPC beside or instead of the port."""

    grpc_channel_arguments: tuple[str, ...] = ()
    """Settings of gRPC's server, each `name=value`; see `channel_arguments`."""

    ssl_config_file: str = ""
    """A text SSLConfig; with it every address is encrypted."""

    use_alts: bool = False
    """Google's own encryption; refused."""

    @property
    def bind_host(self) -> str:
        if self.host:
            return self.host
        return "::" if _has_ipv6() else "0.0.0.0"

    @property
    def shown_host(self) -> str:
        """The host a person on this machine can connect to."""
        return self.host or "localhost"

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(port for port in (self.grpc_port, self.rest_port) if port)


def check_ports_free(options: ListenerOptions) -> None:
    """Find out before models are loaded, and in plain words, that an address is taken.

    Raises:
        FailedPrecondition: a port cannot be bound.
    """
    family = socket.AF_INET6 if ":" in options.bind_host else socket.AF_INET
    for port in options.ports:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((options.bind_host, port))
            except (OSError, OverflowError) as error:
                raise FailedPrecondition(
                    f"Cannot listen on {options.bind_host} port {port}: {error}. "
                    "Is another server running? Choose another with --port or --rest_api_port"
                ) from error


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True
