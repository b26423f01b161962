import asyncio
import logging
import threading

import pytest
from google.protobuf.wrappers_pb2 import Int64Value, StringValue

from aspira.contracts.errors import Code, Internal, NotFound
from aspira.frontends.grpc.methods import UnaryCall, UnaryMethod, call_unary, status_message

MARK = "...TRUNCATED"


async def answer_length(call: UnaryCall) -> Int64Value:
    if call.message.value == "bug":
        raise ZeroDivisionError("a secret")
    if call.message.value == "error":
        raise NotFound("nothing there")
    return Int64Value(value=len(call.message.value))


LENGTH = UnaryMethod(StringValue, answer_length)


def call_length(payload: bytes) -> bytes:
    return asyncio.run(call_unary(LENGTH, payload=payload, deadline=None))


@pytest.mark.parametrize("text", ["", "short", "x" * 1024, "\u00e9" * 512])
def test_messages_up_to_1024_bytes_are_kept(text: str) -> None:
    assert status_message(NotFound(text)) == text


def test_longer_messages_are_cut_and_marked() -> None:
    assert status_message(NotFound("x" * 1025)) == "x" * 1024 + MARK


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("\u00e9" * 513, "\u00e9" * 512),
        ("a" + "\u00e9" * 512, "a" + "\u00e9" * 511),
        ("ab" + "\U0001f600" * 256, "ab" + "\U0001f600" * 255),
    ],
)
def test_a_cut_never_splits_a_character(text: str, kept: str) -> None:
    assert status_message(NotFound(text)) == kept + MARK


def test_a_call_is_parsed_handled_and_serialized() -> None:
    payload = StringValue(value="four").SerializeToString()
    assert call_length(payload) == Int64Value(value=4).SerializeToString()


def test_an_invalid_message_is_an_internal_error_that_names_its_type() -> None:
    with pytest.raises(Internal) as caught:
        call_length(b"\x0a\xff")
    assert caught.value.message.startswith(
        "Failed to parse the request as google.protobuf.StringValue: "
    )


def test_an_error_of_the_handler_is_the_status() -> None:
    with pytest.raises(NotFound, match="nothing there"):
        call_length(StringValue(value="error").SerializeToString())


def test_a_bug_of_the_handler_is_logged_and_answered_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(Internal) as caught:
        call_length(StringValue(value="bug").SerializeToString())
    assert caught.value.code is Code.INTERNAL
    assert caught.value.message == "The server met a bug; its log has the details"
    assert "a secret" in caplog.text


def test_a_handler_may_serialize_its_response_itself() -> None:
    async def answer(call: UnaryCall) -> bytes:
        return b"serialized"

    method = UnaryMethod(StringValue, answer)
    assert asyncio.run(call_unary(method, payload=b"", deadline=None)) == b"serialized"


@pytest.mark.parametrize(("num_bytes", "is_on_loop"), [(10, True), (256 * 2**10, False)])
def test_only_large_messages_are_parsed_off_the_loop(num_bytes: int, is_on_loop: bool) -> None:
    threads: list[threading.Thread] = []

    class Recorder:
        @staticmethod
        def FromString(payload: bytes) -> StringValue:  # noqa: N802 - protobuf's name
            threads.append(threading.current_thread())
            return StringValue.FromString(payload)

    async def answer(call: UnaryCall) -> Int64Value:
        return Int64Value(value=call.num_bytes)

    payload = StringValue(value="x" * num_bytes).SerializeToString()
    method = UnaryMethod(Recorder, answer)
    answered = asyncio.run(call_unary(method, payload=payload, deadline=None))
    assert Int64Value.FromString(answered).value == len(payload)
    assert [thread is threading.main_thread() for thread in threads] == [is_on_loop]
