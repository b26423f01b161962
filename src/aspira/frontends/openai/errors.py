"""Errors as OpenAI's clients know them: an object with message, type, param and code."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import orjson

from aspira.contracts.embedding import InputTooLong
from aspira.contracts.errors import Code, NotFound, ServingError
from aspira.contracts.generation import ContextLengthExceeded
from aspira.frontends.generation.errors import (
    ErrorAnswer,
    MethodNotAllowed,
    headers_of,
    status_of,
)
from aspira.frontends.generation.fields import BadField

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


def encode_error(error: ServingError) -> ErrorAnswer:
    """The status, the error object, and what tells clients whether to try again."""
    status = status_of(error)
    headers = headers_of(error)
    if status >= 500 and error.code not in _RETRIED:
        headers["x-should-retry"] = "false"
    return ErrorAnswer(status, orjson.dumps({"error": _describe(error, status=status)}), headers)


def _describe(error: ServingError, *, status: int) -> dict[str, Any]:
    return {
        "message": error.message,
        "type": _TYPES.get(status, "server_error"),
        "param": error.param if isinstance(error, BadField) else None,
        "code": _code(error),
    }


def _code(error: ServingError) -> str:
    if isinstance(error, ContextLengthExceeded | InputTooLong):
        return "context_length_exceeded"
    if isinstance(error, NotFound):
        return "model_not_found"
    if isinstance(error, MethodNotAllowed):
        return "method_not_allowed"
    return error.code.name.lower()
