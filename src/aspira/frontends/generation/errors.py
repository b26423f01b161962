"""Errors of HTTP requests that are no fault of a model, and the status that answers an error."""

from collections.abc import Callable, Mapping
from math import ceil
from typing import NamedTuple

from aspira.contracts.errors import (
    InvalidArgument,
    ResourceExhausted,
    ServingError,
    http_status,
)


class MethodNotAllowed(InvalidArgument):
    """The path exists, the method does not; `allowed` does."""

    def __init__(self, message: str, *, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class BodyTooLarge(ResourceExhausted):
    """Another try would be as large."""


class ErrorAnswer(NamedTuple):
    """What answers an error before anything was sent. Afterwards the body is an event's data."""

    status: int
    body: bytes
    headers: Mapping[str, str]


EncodeError = Callable[[ServingError], ErrorAnswer]
"""How an API tells of an error."""


def status_of(error: ServingError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, BodyTooLarge):
        return 413
    if isinstance(error, MethodNotAllowed):
        return 405
    return http_status(error.code)


def headers_of(error: ServingError) -> dict[str, str]:
    """What else to do, as far as HTTP has a word for it: when to try again, by which method."""
    if isinstance(error, MethodNotAllowed):
        return {"allow": error.allowed}
    if error.retry_after_s is None:
        return {}
    return {"retry-after": str(ceil(error.retry_after_s))}
