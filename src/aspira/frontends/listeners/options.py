"""Where a server listens."""

import errno
import resource
import socket
from dataclasses import dataclass, replace

from aspira.contracts.errors import FailedPrecondition

_BACKLOG = 2048
_MANY_FILES = 2**20
_SPARE_FILES = 512


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

    def at(self, host: str) -> "ListenerOptions":
        """The same, bound to another address if one is given."""
        return replace(self, host=host) if host else self


def max_connections() -> int:
    """As many as leave files to open for models and the admin port."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_files = _MANY_FILES if limit == resource.RLIM_INFINITY else limit
    return num_files - min(num_files // 4, _SPARE_FILES)


def check_ports_free(options: ListenerOptions) -> None:
    """Find out before models are loaded, and in plain words, that an address is taken.

    Raises:
        FailedPrecondition: a port cannot be bound.
    """
    for port in options.ports:
        check_port_free(options.bind_host, port=port, flags="--port or --rest_api_port")


def check_port_free(host: str, *, port: int, flags: str) -> None:
    """As `check_ports_free`; `flags` are those that choose the port.

    Raises:
        FailedPrecondition: it cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise cannot_listen(host, port=port, flags=flags, error=error) from error


def bind_port(host: str, *, port: int) -> socket.socket:
    """A listening socket; that of `::` takes IPv4 too.

    Raises:
        OSError: it cannot be bound.
    """
    return socket.create_server(
        (host, port),
        family=socket.AF_INET6 if ":" in host else socket.AF_INET,
        dualstack_ipv6=host == "::",
        backlog=_BACKLOG,
    )


def cannot_listen(host: str, *, port: int, flags: str, error: Exception) -> FailedPrecondition:
    """The error of a port that cannot be bound."""
    if isinstance(error, socket.gaierror) or getattr(error, "errno", None) == errno.EADDRNOTAVAIL:
        return FailedPrecondition(
            f"Cannot listen on {host}: {error}. --host and --admin_host take addresses of this "
            "machine; empty means all"
        )
    return FailedPrecondition(
        f"Cannot listen on {host} port {port}: {error}. "
        f"Is another server running? Choose another with {flags}"
    )


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True
