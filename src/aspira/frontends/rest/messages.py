"""An HTTP exchange as values: what REST handlers take and give, whatever the listener."""

from collections.abc import Mapping
from dataclasses import dataclass, field

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request with its whole body, inflated. Header names are lower case.

    `path` is as received, without the query; `deadline` is in seconds of the server's clock.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    deadline: float | None

    @property
    def target(self) -> str:
        """Path and query as received, for messages."""
        return f"{self.path}?{self.query}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete answer."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
