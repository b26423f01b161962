"""Errors of HTTP requests that are no fault of a model, and the status that answers an error."""

from collections.abc import Callable, Mapping
from math import ceil
from typing import NamedTuple

from aspira.contracts.errors import (
    Code,
    InvalidArgument,
    ResourceExhausted,
    ServingError,
    http_status,
)


class MethodNotAllowed(InvalidArgument):
    """The path exists, the method does not."""


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
    if error.code is Code.FAILED_PRECONDITION:
        # A conflict that clients would try again; here it is the wrong kind of model.
        return 400
    return http_status(error.code)


def retry_headers(error: ServingError) -> dict[str, str]:
    """When to try again, if that is known."""
    if error.retry_after_s is None:
        return {}
    return {"retry-after": str(ceil(error.retry_after_s))}
