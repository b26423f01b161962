import asyncio
import gzip
import threading
from collections.abc import AsyncIterator

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from asgi_exchange import Answer, Request, ScriptedClient, exchange, read_answer
from aspira.contracts.errors import Code, NotFound
from aspira.frontends import departures
from aspira.frontends.grpc import asgi
from aspira.frontends.grpc.asgi import GrpcApplication
from aspira.frontends.grpc.methods import StreamMethod, UnaryCall, UnaryMethod
from aspira.service.drain import RequestGate
from aspira.testing.clock import JumpClock
from grpc_exchange import CallResult, call_request, frame, read_result

UNARY = "/test.Echo/Once"
STREAM = "/test.Echo/Many"


class Echo:
    """Answers with what it was sent, in a service of a unary and a stream method."""

    def __init__(self) -> None:
        self.calls: list[UnaryCall] = []
        self.num_ended_streams = 0
        self.is_asked_ahead = asyncio.Event()
        self.clock = JumpClock()
        self.gate = RequestGate()
        self.application = GrpcApplication(
            {
                UNARY: UnaryMethod(StringValue, self.once),
                STREAM: StreamMethod(StringValue, self.many),
            },
            gate=self.gate,
            clock=self.clock,
        )

    async def once(self, call: UnaryCall) -> StringValue:
        self.calls.append(call)
        if call.message.value == "error":
            raise NotFound("no such thing: 50%\n")
        if call.message.value == "wait":
            await asyncio.Event().wait()
        return call.message

    async def many(self, requests: AsyncIterator[StringValue]) -> AsyncIterator[StringValue]:
        """`error` raises, `bug` too, `wait` answers and then waits forever.

        `ahead` ends while it waits for a further message.
        """
        try:
            async for message in requests:
                if message.value == "error":
                    raise NotFound("no such thing")
                if message.value == "bug":
                    raise ZeroDivisionError
                if message.value == "ahead":
                    reading = asyncio.ensure_future(anext(aiter(requests)))
                    await self.is_asked_ahead.wait()
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
                    return
                yield message
                if message.value == "wait":
                    await asyncio.Event().wait()
        finally:
            self.num_ended_streams += 1


@pytest.fixture
def echo() -> Echo:
    return Echo()


def ask(echo: Echo, request: Request) -> Answer:
    return asyncio.run(exchange(echo.application, request=request))


def result(answer: Answer) -> CallResult:
    return read_result(answer, answer_class=StringValue)


def texts(answer: Answer) -> list[str]:
    return [message.value for message in result(answer).messages]


def words(path: str, *values: str, headers: dict[str, str] | None = None) -> Request:
    return call_request(path, *(StringValue(value=value) for value in values), headers=headers)


def raw(path: str, *chunks: bytes, headers: dict[str, str] | None = None) -> Request:
    return Request("POST", path, headers=headers or {}, chunks=chunks)


def split(request: Request, *, at: int) -> Request:
    (body,) = request.chunks
    return Request("POST", request.path, chunks=(body[:at], body[at:]))


def test_a_unary_answer_is_one_message_and_a_status_in_the_trailers(echo: Echo) -> None:
    answer = ask(echo, words(UNARY, "hello"))
    assert answer.status == 200
    assert answer.headers == {"content-type": "application/grpc"}
    assert answer.body == frame(StringValue(value="hello").SerializeToString())
    assert answer.trailers == {"grpc-status": "0"}


def test_an_error_is_a_reply_of_headers_alone(echo: Echo) -> None:
    answer = ask(echo, words(UNARY, "error"))
    assert answer.status == 200
    assert answer.headers == {
        "content-type": "application/grpc",
        "grpc-status": "5",
        "grpc-message": "no such thing: 50%25%0A",
    }
    assert answer.body == b""
    assert answer.trailers == {}


def test_a_body_may_come_in_any_pieces(echo: Echo) -> None:
    whole = words(UNARY, "hello")
    for at in range(len(whole.chunks[0]) + 1):
        assert texts(ask(echo, split(whole, at=at))) == ["hello"]


def test_an_unknown_path_is_unimplemented(echo: Echo) -> None:
    answered = result(ask(echo, words("/test.Echo/Never", "hello")))
    assert answered == CallResult([], Code.UNIMPLEMENTED, "Method not found: /test.Echo/Never")


def test_a_compressed_message_is_inflated(echo: Echo) -> None:
    payload = gzip.compress(StringValue(value="hello").SerializeToString())
    request = raw(UNARY, frame(payload, is_compressed=True), headers={"grpc-encoding": "gzip"})
    assert texts(ask(echo, request)) == ["hello"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", Code.INTERNAL),
        (frame(b"abc")[:-1], Code.INTERNAL),
        (frame(b"\xff"), Code.INTERNAL),
        (frame(b"", is_compressed=True), Code.UNIMPLEMENTED),
    ],
)
def test_what_is_no_message_never_reaches_the_handler(echo: Echo, body: bytes, code: Code) -> None:
    assert result(ask(echo, raw(UNARY, body))).code is code
    assert echo.calls == []


def test_a_body_announced_too_large_is_refused_unread(echo: Echo) -> None:
    request = words(UNARY, "hello", headers={"content-length": str(2**31 + 5)})
    client = ScriptedClient(request)
    asyncio.run(echo.application(request.scope, client.receive, client.send))
    answered = result(read_answer(client.sent))
    assert answered.code is Code.RESOURCE_EXHAUSTED
    assert "larger than the limit" in answered.text
    assert client.num_unread == 1
    assert echo.calls == []


def test_a_timeout_becomes_a_deadline_of_the_servers_clock(echo: Echo) -> None:
    echo.clock.jump(100)
    ask(echo, words(UNARY, "hello", headers={"grpc-timeout": "2S"}))
    ask(echo, words(UNARY, "hello"))
    assert [call.deadline for call in echo.calls] == [102.0, None]


def test_a_malformed_timeout_is_refused(echo: Echo) -> None:
    answered = result(ask(echo, words(UNARY, "hello", headers={"grpc-timeout": "soon"})))
    assert answered.code is Code.INVALID_ARGUMENT
    assert echo.calls == []


def test_a_client_that_leaves_within_its_request_is_not_served(echo: Echo) -> None:
    request = Request("POST", UNARY, chunks=(b"\0\0",), is_complete=False, leaves=True)
    assert result(ask(echo, request)).code is Code.CANCELLED
    assert echo.calls == []


def test_a_closed_gate_refuses_unary_calls(echo: Echo) -> None:
    async def run() -> Answer:
        echo.gate.close()
        return await exchange(echo.application, request=words(UNARY, "hello"))

    answered = result(asyncio.run(run()))
    assert answered.code is Code.UNAVAILABLE
    assert answered.text == "The server is shutting down; retry at another replica"
    assert echo.calls == []


@pytest.mark.parametrize("value", ["hello", "error"])
def test_an_answered_call_does_not_hold_the_gate(echo: Echo, value: str) -> None:
    async def run() -> None:
        await exchange(echo.application, request=words(UNARY, value))
        echo.gate.close()
        async with asyncio.timeout(10):
            await echo.gate.wait_empty()

    asyncio.run(run())


def test_the_gate_is_held_until_the_answer_is_handed_over(echo: Echo) -> None:
    async def run() -> list[bool]:
        request = words(UNARY, "hello")
        client = ScriptedClient(request)
        emptied = asyncio.create_task(echo.gate.wait_empty())
        was_empty = []

        async def send(event: object) -> None:
            echo.gate.close()
            await asyncio.sleep(0)
            was_empty.append(emptied.done())

        await echo.application(request.scope, client.receive, send)
        async with asyncio.timeout(10):
            await emptied
        return was_empty

    assert asyncio.run(run()) == [False, False, False]


def test_each_streamed_message_is_answered_in_a_chunk_of_its_own(echo: Echo) -> None:
    answer = ask(echo, words(STREAM, "one", "two"))
    assert texts(answer) == ["one", "two"]
    assert len([chunk for chunk in answer.chunks if chunk]) == 2
    assert answer.trailers == {"grpc-status": "0"}


def test_streamed_messages_may_be_split_anywhere(echo: Echo) -> None:
    whole = words(STREAM, "one", "", "three")
    for at in range(len(whole.chunks[0]) + 1):
        assert texts(ask(echo, split(whole, at=at))) == ["one", "", "three"]


def test_streamed_messages_may_come_byte_by_byte(echo: Echo) -> None:
    (body,) = words(STREAM, "one", "two").chunks
    chunks = tuple(body[index : index + 1] for index in range(len(body)))
    assert texts(ask(echo, raw(STREAM, *chunks))) == ["one", "two"]


def test_a_stream_without_messages_is_answered_with_a_status(echo: Echo) -> None:
    answer = ask(echo, raw(STREAM, b""))
    assert result(answer) == CallResult([], Code.OK, "")


def test_streamed_messages_may_be_compressed(echo: Echo) -> None:
    payload = gzip.compress(StringValue(value="one").SerializeToString())
    body = frame(payload, is_compressed=True) + frame(StringValue(value="two").SerializeToString())
    assert texts(ask(echo, raw(STREAM, body, headers={"grpc-encoding": "gzip"}))) == ["one", "two"]


def test_an_error_before_the_first_response_is_a_reply_of_headers_alone(echo: Echo) -> None:
    answer = ask(echo, words(STREAM, "error"))
    assert result(answer) == CallResult([], Code.NOT_FOUND, "no such thing")
    assert answer.trailers == {}


def test_an_error_after_a_response_is_a_status_in_the_trailers(echo: Echo) -> None:
    answer = ask(echo, words(STREAM, "one", "error", "two"))
    assert texts(answer) == ["one"]
    assert answer.trailers == {"grpc-status": "5", "grpc-message": "no such thing"}


@pytest.mark.parametrize("before", [(), ("one",)])
def test_a_bug_ends_a_stream_with_a_status(echo: Echo, before: tuple[str, ...]) -> None:
    answer = ask(echo, words(STREAM, *before, "bug"))
    assert texts(answer) == list(before)
    assert result(answer).code is Code.INTERNAL


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (frame(b"")[:-1], Code.INTERNAL),
        (frame(b"\xff"), Code.INTERNAL),
        (frame(b"", is_compressed=True), Code.UNIMPLEMENTED),
    ],
)
def test_a_stream_of_something_else_is_refused(echo: Echo, body: bytes, code: Code) -> None:
    assert result(ask(echo, raw(STREAM, body))).code is code


def test_a_streamed_message_announced_too_large_is_refused_before_it_comes(echo: Echo) -> None:
    request = Request("POST", STREAM, chunks=(b"\0\x80\0\0\0",), is_complete=False)
    assert result(ask(echo, request)).code is Code.RESOURCE_EXHAUSTED


def test_streams_go_on_while_the_server_drains(echo: Echo) -> None:
    async def run() -> Answer:
        echo.gate.close()
        return await exchange(echo.application, request=words(STREAM, "one"))

    assert texts(asyncio.run(run())) == ["one"]


def test_a_client_that_leaves_ends_the_handler_of_its_stream(echo: Echo) -> None:
    async def run() -> ScriptedClient:
        request = words(STREAM, "wait")
        client = ScriptedClient(request)
        client.leave()
        async with asyncio.timeout(10):
            await echo.application(request.scope, client.receive, client.send)
        return client

    client = asyncio.run(run())
    assert echo.num_ended_streams == 1
    assert not any(event["type"] == "http.response.trailers" for event in client.sent)


def test_a_client_that_leaves_within_its_stream_ends_the_handler(echo: Echo) -> None:
    (body,) = words(STREAM, "one").chunks
    request = Request("POST", STREAM, chunks=(body,), is_complete=False, leaves=True)
    answer = ask(echo, request)
    assert texts(answer) == ["one"]
    assert answer.trailers["grpc-status"] == str(int(Code.CANCELLED))
    assert echo.num_ended_streams == 1


def test_a_question_to_the_server_stands_when_its_stream_has_ended(echo: Echo) -> None:
    async def run() -> list[asyncio.Future[dict[str, object]]]:
        request = words(STREAM, "ahead")
        (body,) = request.chunks
        open_stream = {"type": "http.request", "body": body, "more_body": True}
        asked: list[asyncio.Future[dict[str, object]]] = []

        def receive() -> asyncio.Future[dict[str, object]]:
            asked.append(asyncio.get_running_loop().create_future())
            if len(asked) == 1:
                asked[0].set_result(open_stream)
            else:
                echo.is_asked_ahead.set()
            return asked[-1]

        async with asyncio.timeout(60):
            await echo.application(request.scope, receive, ScriptedClient(request).send)
        return asked

    assert not any(question.cancelled() for question in asyncio.run(run()))


MAX_STREAMED_BYTES = 4 * 2**20


def test_a_streamed_message_may_have_4_mebibytes(echo: Echo) -> None:
    body = b"x" * (MAX_STREAMED_BYTES - 5)
    (text,) = texts(ask(echo, words(STREAM, body.decode())))
    assert len(text) == len(body)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_streamed_message_over_4_mebibytes_is_refused(echo: Echo, is_compressed: bool) -> None:
    payload = StringValue(value="x" * MAX_STREAMED_BYTES).SerializeToString()
    if is_compressed:
        payload = gzip.compress(payload)
    body = frame(payload, is_compressed=is_compressed)
    answered = result(ask(echo, raw(STREAM, body, headers={"grpc-encoding": "gzip"})))
    assert answered.code is Code.RESOURCE_EXHAUSTED
    assert "4194304 bytes" in answered.text


def test_reading_a_stream_copies_each_byte_a_few_times_only(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages in one chunk are found where they lie; what follows is not copied for each."""
    num_messages, starts = 1000, []
    frame_end = asgi._frame_end

    def note_start(buffer: bytearray, *, start: int, max_bytes: int) -> int | None:
        starts.append(start)
        return frame_end(buffer, start=start, max_bytes=max_bytes)

    monkeypatch.setattr(asgi, "_frame_end", note_start)
    assert len(texts(ask(echo, words(STREAM, *["x"] * num_messages)))) == num_messages
    assert starts == [8 * index for index in range(num_messages + 1)]


def test_a_unary_message_may_not_inflate_past_100_mebibytes(echo: Echo) -> None:
    payload = gzip.compress(bytes(100 * 2**20 + 1), compresslevel=1)
    request = raw(UNARY, frame(payload, is_compressed=True), headers={"grpc-encoding": "gzip"})
    answered = result(ask(echo, request))
    assert answered == CallResult(
        [], Code.RESOURCE_EXHAUSTED, "The inflated message is larger than 104857600 bytes"
    )
    assert echo.calls == []


@pytest.mark.parametrize("path", [UNARY, STREAM])
def test_messages_are_inflated_off_the_loop(
    echo: Echo, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    threads: list[threading.Thread] = []
    name = "decode_only_message" if path == UNARY else "inflate"
    inflate = getattr(asgi, name)

    def note_thread(payload: bytes, *, encoding: bytes, max_bytes: int) -> bytes:
        threads.append(threading.current_thread())
        inflated: bytes = inflate(payload, encoding=encoding, max_bytes=max_bytes)
        return inflated

    monkeypatch.setattr(asgi, name, note_thread)
    payload = gzip.compress(StringValue(value="hello").SerializeToString())
    request = raw(path, frame(payload, is_compressed=True), headers={"grpc-encoding": "gzip"})
    assert texts(ask(echo, request)) == ["hello"]
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_a_unary_call_ends_when_its_client_leaves(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "_TICK_S", 0.0)

    async def run() -> ScriptedClient:
        request = words(UNARY, "wait")
        client = ScriptedClient(request)
        client.leave()
        async with asyncio.timeout(10):
            await echo.application(request.scope, client.receive, client.send)
            echo.gate.close()
            await echo.gate.wait_empty()
        return client

    client = asyncio.run(run())
    assert len(echo.calls) == 1
    assert result(read_answer(client.sent)).code is Code.CANCELLED
