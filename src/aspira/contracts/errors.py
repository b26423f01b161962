"""The error tree: each class carries its canonical code, each code its HTTP status.

    ServingError
    +-- Cancelled            +-- ResourceExhausted    +-- Internal
    +-- Unknown              +-- FailedPrecondition   +-- Unavailable
    +-- InvalidArgument      +-- Aborted              +-- DataLoss
    +-- DeadlineExceeded     +-- OutOfRange           +-- Unauthenticated
    +-- NotFound             +-- Unimplemented
    +-- AlreadyExists        +-- PermissionDenied

Codes and their numbers are gRPC's; the HTTP column is TensorFlow Serving's table.
"""

from enum import IntEnum
from types import MappingProxyType
from typing import ClassVar


class Code(IntEnum):
    """Canonical status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_MAX_QUOTED = 200
_HTTP_STATUS = (200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401)


def http_status(code: Code) -> int:
    """The HTTP status that answers for `code`."""
    return _HTTP_STATUS[code]


class ServingError(Exception):
    """An answer that is not a result. The message is for the person who sent the request.

    `retry_after_s` tells when the same request may fare better; None says nothing about it.
    """

    code: ClassVar[Code] = Code.UNKNOWN

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class Cancelled(ServingError):
    """The caller went away, or the work was withdrawn."""

    code = Code.CANCELLED


class Unknown(ServingError):
    """An error of a library that has no code of its own."""

    code = Code.UNKNOWN


class InvalidArgument(ServingError):
    """The request is wrong whatever the state of the server."""

    code = Code.INVALID_ARGUMENT


class DeadlineExceeded(ServingError):
    """The deadline passed before an answer was ready."""

    code = Code.DEADLINE_EXCEEDED


class NotFound(ServingError):
    """No such model, version or file."""

    code = Code.NOT_FOUND


class AlreadyExists(ServingError):
    """What was to be created is there."""

    code = Code.ALREADY_EXISTS


class PermissionDenied(ServingError):
    """The caller may not do this."""

    code = Code.PERMISSION_DENIED


class ResourceExhausted(ServingError):
    """A bound was reached: message size, queue, memory."""

    code = Code.RESOURCE_EXHAUSTED


class FailedPrecondition(ServingError):
    """The request could be right in another state of the server."""

    code = Code.FAILED_PRECONDITION


class Aborted(ServingError):
    """A concurrent change got in the way."""

    code = Code.ABORTED


class OutOfRange(ServingError):
    """A value past the valid range."""

    code = Code.OUT_OF_RANGE


class Unimplemented(ServingError):
    """Known by name, not supported here."""

    code = Code.UNIMPLEMENTED


class Internal(ServingError):
    """An invariant of the server or of a runtime broke."""

    code = Code.INTERNAL


class Unavailable(ServingError):
    """Not now; the same request may be retried, here or at another replica."""

    code = Code.UNAVAILABLE


class DataLoss(ServingError):
    """A file is damaged."""

    code = Code.DATA_LOSS


class Unauthenticated(ServingError):
    """The caller did not say who it is."""

    code = Code.UNAUTHENTICATED


_CLASS_BY_CODE = MappingProxyType({
    subclass.code: subclass
    for subclass in (
        Cancelled, Unknown, InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists,
        PermissionDenied, ResourceExhausted, FailedPrecondition, Aborted, OutOfRange,
        Unimplemented, Internal, Unavailable, DataLoss, Unauthenticated,
    )
})  # fmt: skip


def shorten(text: str) -> str:
    """What a client has sent, for a message: whole, or the begin of it and an ellipsis.

    Every message that quotes a client says it through this, so that no answer and no line of the
    log grows with what somebody sends.
    """
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}..."


def error_from_code(code: int, *, message: str) -> ServingError:
    """The error of the tree for a canonical code number; an unlisted number gives Unknown."""
    try:
        return _CLASS_BY_CODE[Code(code)](message)
    except (ValueError, KeyError):
        return Unknown(message)
