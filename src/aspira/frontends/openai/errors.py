"""Errors as OpenAI's clients know them: an object with message, type, param and code."""

from collections.abc import Mapping
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from aspira.contracts.embedding import InputTooLong
from aspira.contracts.errors import (
    Code,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    ServingError,
    http_status,
)
from aspira.contracts.generation import ContextLengthExceeded

_TYPES: Mapping[int, str] = MappingProxyType(
    {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "invalid_request_error",
        405: "invalid_request_error",
        409: "invalid_request_error",
        413: "invalid_request_error",
        429: "rate_limit_error",
        501: "invalid_request_error",
        504: "timeout_error",
    }
)
# The codes for which another try may do better; clients would try others again too.
_RETRIED = frozenset({Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE})


class BadField(InvalidArgument):
    """A field of the body is wrong; `param` names it."""

    def __init__(self, message: str, *, param: str) -> None:
        super().__init__(message)
        self.param = param


class MethodNotAllowed(InvalidArgument):
    """The path exists, the method does not."""


class BodyTooLarge(ResourceExhausted):
    """Another try would be as large."""


class ErrorAnswer(NamedTuple):
    """What answers an error before anything was sent."""

    status: int
    body: bytes
    headers: Mapping[str, str]


def error_answer(error: ServingError) -> ErrorAnswer:
    """The status, the error object, and what tells clients whether to try again."""
    status = _status(error)
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(ceil(error.retry_after_s))
    if status >= 500 and error.code not in _RETRIED:
        headers["x-should-retry"] = "false"
    return ErrorAnswer(status, encode_error(error), headers)


def encode_error(error: ServingError) -> bytes:
    """The error object, as a body or as the data of an event."""
    return orjson.dumps({"error": _describe(error)})


def _describe(error: ServingError) -> dict[str, Any]:
    status = _status(error)
    return {
        "message": error.message,
        "type": _TYPES.get(status, "server_error"),
        "param": error.param if isinstance(error, BadField) else None,
        "code": _code(error),
    }


def _status(error: ServingError) -> int:
    if isinstance(error, BodyTooLarge):
        return 413
    if isinstance(error, MethodNotAllowed):
        return 405
    if error.code is Code.FAILED_PRECONDITION:
        # A conflict that clients would try again; here it is the wrong kind of model.
        return 400
    return http_status(error.code)


def _code(error: ServingError) -> str:
    if isinstance(error, ContextLengthExceeded | InputTooLong):
        return "context_length_exceeded"
    if isinstance(error, NotFound):
        return "model_not_found"
    if isinstance(error, MethodNotAllowed):
        return "method_not_allowed"
    return error.code.name.lower()
