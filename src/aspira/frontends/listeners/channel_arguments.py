"""`--grpc_channel_arguments`: settings of gRPC's own server, and what Envoy has in their place.

With Envoy both protocols share the connections' settings, so REST gets them too.
"""

from collections.abc import Iterable
from typing import Any

Config = dict[str, Any]

_MAX_INT32 = 2**31 - 1
# gRPC's own, for the one of the two that is not given.
_KEEPALIVE_TIME_MS = 7_200_000
_KEEPALIVE_TIMEOUT_MS = 20_000

_STREAMS = "grpc.max_concurrent_streams"
_KEEPALIVE_TIME = "grpc.keepalive_time_ms"
_KEEPALIVE_TIMEOUT = "grpc.keepalive_timeout_ms"
_IDLE = "grpc.max_connection_idle_ms"
_AGE = "grpc.max_connection_age_ms"
_KNOWN_TO_ENVOY = frozenset({_STREAMS, _KEEPALIVE_TIME, _KEEPALIVE_TIMEOUT, _IDLE, _AGE})


def split_channel_arguments(text: str) -> tuple[str, ...]:
    """The arguments of the flag, each `name=value`.

    Raises:
        ValueError: one has no name or no value.
    """
    arguments = tuple(part for part in text.split(",") if part)
    if not all(name and value for name, _, value in (a.partition("=") for a in arguments)):
        raise ValueError(text)
    return arguments


def channel_options(arguments: Iterable[str]) -> dict[str, int | str]:
    """As gRPC takes them: what reads as an int32 is a number, all else a string; the last wins."""
    pairs = (argument.partition("=") for argument in arguments)
    return {name: _as_option(value) for name, _, value in pairs}


def http2_options(arguments: Iterable[str]) -> Config:
    """Fields of Envoy's `Http2ProtocolOptions`."""
    known = _known_to_envoy(arguments)
    options: Config = {}
    if _STREAMS in known:
        options["max_concurrent_streams"] = known[_STREAMS]
    if known.keys() & {_KEEPALIVE_TIME, _KEEPALIVE_TIMEOUT}:
        options["connection_keepalive"] = {
            "interval": _as_duration(known.get(_KEEPALIVE_TIME, _KEEPALIVE_TIME_MS)),
            "timeout": _as_duration(known.get(_KEEPALIVE_TIMEOUT, _KEEPALIVE_TIMEOUT_MS)),
        }
    return options


def connection_options(arguments: Iterable[str]) -> Config:
    """Fields of Envoy's `HttpProtocolOptions`."""
    known = _known_to_envoy(arguments)
    fields = {_IDLE: "idle_timeout", _AGE: "max_connection_duration"}
    return {fields[name]: _as_duration(known[name]) for name in fields.keys() & known.keys()}


def unknown_to_envoy(arguments: Iterable[str]) -> tuple[str, ...]:
    """The arguments, as they were given, that only gRPC's own server can follow."""
    given = tuple(arguments)
    known = _known_to_envoy(given)
    return tuple(argument for argument in given if argument.partition("=")[0] not in known)


def _known_to_envoy(arguments: Iterable[str]) -> dict[str, int]:
    return {
        name: value
        for name, value in channel_options(arguments).items()
        if name in _KNOWN_TO_ENVOY and isinstance(value, int) and value > 0
    }


def _as_option(text: str) -> int | str:
    try:
        value = int(text) if "_" not in text else None
    except ValueError:
        return text
    is_int32 = value is not None and -_MAX_INT32 - 1 <= value <= _MAX_INT32
    return value if value is not None and is_int32 else text


def _as_duration(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.3f}s"
