"""An HTTP exchange as values: what REST handlers take and give, whatever the listener."""

from collections.abc import Iterable, Mapping
from math import ceil
from types import MappingProxyType
from typing import NamedTuple

from aspira.contracts.errors import InvalidArgument, ServingError, http_status
from aspira.frontends.rest.json_response import encode_error

JSON = "application/json"

Headers = Iterable[tuple[bytes, bytes]]
"""Names are lower case."""

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class BodilessError(InvalidArgument):
    """An error that TensorFlow Serving answers without a body."""


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


def error_response(error: ServingError) -> HttpResponse:
    """The JSON answer of an error."""
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(ceil(error.retry_after_s))
    return HttpResponse(http_status(error.code), encode_error(error.message), headers=headers)
