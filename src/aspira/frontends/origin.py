"""Where the request that is being answered comes from, for its trace.

What a transport knows of a request has to reach the token engine through APIs that have no use for
it, so it goes with the task, as traces do everywhere.
"""

from collections.abc import Iterable
from contextvars import ContextVar

from aspira.contracts.generation import RequestOrigin

TRACEPARENT, _TRACESTATE = b"traceparent", b"tracestate"
CHAT, TEXT = "chat", "text_completion"
"""What OpenTelemetry calls the operations."""

_current: ContextVar[RequestOrigin | None] = ContextVar("request_origin", default=None)


def set_origin(
    headers: Iterable[tuple[bytes, bytes]], *, operation: str, request_id: str = ""
) -> None:
    """Note it for the running task, and those that it starts. Names are in lower case."""
    found = {TRACEPARENT: "", _TRACESTATE: ""}
    for name, value in headers:
        if name in found:
            found[name] = value.decode("latin-1")
    _current.set(RequestOrigin(operation, request_id, found[TRACEPARENT], found[_TRACESTATE]))


def current_origin() -> RequestOrigin:
    """That of the running task's request."""
    return _current.get() or RequestOrigin()
