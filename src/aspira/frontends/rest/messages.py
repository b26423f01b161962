"""An HTTP exchange as values: what REST handlers take and give, whatever the listener."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

JSON = "application/json"

Headers = Iterable[tuple[bytes, bytes]]
"""Names are lower case."""

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class HttpRequest(NamedTuple):
    """A request with its whole body, inflated.

    `path` is as received, without the query; `deadline` is in seconds of the server's clock.
    """

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes
    deadline: float | None
    priority: int = 0

    @property
    def target(self) -> str:
        """Path and query as received, for messages."""
        return f"{self.path}?{self.query}" if self.query else self.path

    def header(self, name: bytes) -> str:
        """A header's first value; empty if there is none."""
        for given, value in self.headers:
            if given == name:
                return value.decode("latin-1")
        return ""


class HttpResponse(NamedTuple):
    """A complete answer."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = _NO_HEADERS


class InferenceAnswer(NamedTuple):
    """The answer to an inference, the version that gave it, and how long its run took."""

    response: HttpResponse
    version: int
    run_s: float
