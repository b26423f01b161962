import grpc
import pytest

from aspira.contracts import errors
from aspira.contracts.errors import (
    Code,
    ServingError,
    Unknown,
    error_from_code,
    http_status,
    shorten,
)

# TensorFlow Serving's table.
HTTP_STATUS = (
    (Code.OK, 200),
    (Code.CANCELLED, 499),
    (Code.UNKNOWN, 500),
    (Code.INVALID_ARGUMENT, 400),
    (Code.DEADLINE_EXCEEDED, 504),
    (Code.NOT_FOUND, 404),
    (Code.ALREADY_EXISTS, 409),
    (Code.PERMISSION_DENIED, 403),
    (Code.RESOURCE_EXHAUSTED, 429),
    (Code.FAILED_PRECONDITION, 400),
    (Code.ABORTED, 409),
    (Code.OUT_OF_RANGE, 400),
    (Code.UNIMPLEMENTED, 501),
    (Code.INTERNAL, 500),
    (Code.UNAVAILABLE, 503),
    (Code.DATA_LOSS, 500),
    (Code.UNAUTHENTICATED, 401),
)
FAILURES = [code for code in Code if code is not Code.OK]


def test_the_table_has_every_code() -> None:
    assert [code for code, _ in HTTP_STATUS] == list(Code)


@pytest.mark.parametrize(("code", "status"), HTTP_STATUS)
def test_http_status(code: Code, status: int) -> None:
    assert http_status(code) == status


def test_codes_are_grpcs() -> None:
    assert {code.name: code.value for code in Code} == {
        status.name: status.value[0] for status in grpc.StatusCode
    }


@pytest.mark.parametrize("code", FAILURES)
def test_each_code_has_its_class(code: Code) -> None:
    error = error_from_code(int(code), message="why")
    assert type(error).__name__ == code.name.title().replace("_", "")
    assert type(error) is getattr(errors, type(error).__name__)
    assert error.code is code
    assert error.message == "why"


@pytest.mark.parametrize("number", [0, 17, -1, 1000])
def test_a_number_that_is_no_error_gives_unknown(number: int) -> None:
    error = error_from_code(number, message="why")
    assert type(error) is Unknown
    assert error.message == "why"


@pytest.mark.parametrize("code", FAILURES)
def test_an_error_reads_as_its_code_and_message(code: Code) -> None:
    error: ServingError = error_from_code(code, message="a\nb")
    assert str(error) == f"{code.name}: a\nb"
    assert isinstance(error, ServingError)


@pytest.mark.parametrize("text", ["", "m", "m" * 200])
def test_what_clients_normally_send_is_quoted_whole(text: str) -> None:
    assert shorten(text) == text


def test_what_is_long_is_quoted_by_its_begin() -> None:
    assert shorten("m" * 201) == "m" * 200 + "..."
