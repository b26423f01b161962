import gzip
import tracemalloc
import zlib
from urllib.parse import unquote

import pytest

from aspira.contracts.errors import (
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unimplemented,
)
from aspira.frontends.grpc.framing import (
    CallHeaders,
    decode_only_message,
    encode_message,
    parse_headers,
    parse_timeout,
    status_headers,
)
from grpc_exchange import frame

COMPRESS = {b"gzip": gzip.compress, b"deflate": zlib.compress}


def decode(body: bytes, *, encoding: bytes = b"identity", max_bytes: int = 100) -> bytes:
    return decode_only_message(body, encoding=encoding, max_bytes=max_bytes)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"2H", 7200.0),
        (b"3M", 180.0),
        (b"4S", 4.0),
        (b"100m", 0.1),
        (b"5u", 5e-6),
        (b"6n", 6e-9),
        (b"0S", 0.0),
        (b"007S", 7.0),
        (b"99999999H", 359999996400.0),
    ],
)
def test_timeouts(value: bytes, seconds: float) -> None:
    assert parse_timeout(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    [b"", b"S", b"1", b"1s", b"1h", b"-1S", b"+1S", b"1.5S", b"1e3S", b" 1S", b"1 S", b"1S ",
     b"1_0S", b"123456789S", "\N{FULLWIDTH DIGIT ONE}S".encode()],
)  # fmt: skip
def test_malformed_timeouts(value: bytes) -> None:
    with pytest.raises(InvalidArgument, match="grpc-timeout is not a number and a unit"):
        parse_timeout(value)


def test_headers_that_matter() -> None:
    headers = parse_headers(
        [
            (b":path", b"/a/b"),
            (b"grpc-timeout", b"100m"),
            (b"grpc-encoding", b"gzip"),
            (b"grpc-accept-encoding", b"deflate"),
            (b"content-length", b"17"),
        ]
    )
    assert headers == CallHeaders(timeout_s=pytest.approx(0.1), encoding=b"gzip", content_length=17)


def test_headers_may_be_missing() -> None:
    assert parse_headers([(b"te", b"trailers")]) == CallHeaders(None, b"identity", None)


@pytest.mark.parametrize("value", [b"", b"-1", b"many", b"1.0"])
def test_a_senseless_content_length_is_ignored(value: bytes) -> None:
    assert parse_headers([(b"content-length", value)]).content_length is None


def test_a_malformed_timeout_header_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        parse_headers([(b"grpc-timeout", b"soon")])


@pytest.mark.parametrize("payload", [b"", b"\0", b"abc" * 100])
def test_messages_round_trip(payload: bytes) -> None:
    assert decode(encode_message(payload)) == payload


def test_a_message_is_a_flag_four_bytes_of_length_and_the_payload() -> None:
    assert encode_message(b"x" * 258) == b"\0\0\0\1\2" + b"x" * 258


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
@pytest.mark.parametrize("payload", [b"", b"abc", b"x" * 100])
def test_compressed_messages(payload: bytes, encoding: bytes) -> None:
    body = frame(COMPRESS[encoding](payload), is_compressed=True)
    assert decode(body, encoding=encoding) == payload


def test_a_message_may_stay_uncompressed_under_an_encoding() -> None:
    assert decode(frame(b"abc"), encoding=b"gzip") == b"abc"


@pytest.mark.parametrize(
    "body",
    [b"", b"\0\0\0\0", frame(b"abc")[:-1], frame(b"abc") + b"\0", frame(b"abc") * 2, b"\0\0\0\0\1"],
)
def test_a_body_that_is_not_one_message_is_refused(body: bytes) -> None:
    with pytest.raises(Internal, match="not exactly one length-prefixed gRPC message"):
        decode(body)


def test_an_unknown_encoding_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(Unimplemented) as caught:
        decode(frame(b"abc", is_compressed=True), encoding=b"snappy")
    assert caught.value.message == (
        "grpc-encoding snappy is not supported; use one of gzip, deflate"
    )


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
@pytest.mark.parametrize("num_bytes", [0, 1, 12])
def test_a_truncated_message_is_refused(encoding: bytes, num_bytes: int) -> None:
    compressed = COMPRESS[encoding](b"abcdefgh" * 10)[:num_bytes]
    with pytest.raises(Internal, match="The compressed message is truncated"):
        decode(frame(compressed, is_compressed=True), encoding=encoding)


@pytest.mark.parametrize("cut", [1, 4, 8])
def test_a_message_without_its_checksum_is_refused(cut: int) -> None:
    compressed = gzip.compress(b"abc")[:-cut]
    with pytest.raises(Internal, match="The compressed message is truncated"):
        decode(frame(compressed, is_compressed=True), encoding=b"gzip")


@pytest.mark.parametrize("payload", [b"not gzip at all", zlib.compress(b"abc")])
def test_a_damaged_message_is_refused(payload: bytes) -> None:
    with pytest.raises(Internal, match="The compressed message is damaged"):
        decode(frame(payload, is_compressed=True), encoding=b"gzip")


@pytest.mark.parametrize("tail", [b"\0", gzip.compress(b"more", mtime=0)], ids=["zero", "member"])
def test_bytes_after_the_compressed_message_are_not_dropped_in_silence(tail: bytes) -> None:
    compressed = gzip.compress(b"abc") + tail
    with pytest.raises(Internal, match="The compressed message is damaged"):
        decode(frame(compressed, is_compressed=True), encoding=b"gzip")


def test_a_message_may_inflate_to_the_limit() -> None:
    body = frame(gzip.compress(b"x" * 100), is_compressed=True)
    assert decode(body, encoding=b"gzip", max_bytes=100) == b"x" * 100


def test_a_message_may_not_inflate_past_the_limit() -> None:
    body = frame(gzip.compress(b"x" * 101), is_compressed=True)
    with pytest.raises(ResourceExhausted) as caught:
        decode(body, encoding=b"gzip", max_bytes=100)
    assert caught.value.message == "The inflated message is larger than 100 bytes"


def test_a_bomb_does_not_take_the_memory_it_asks_for() -> None:
    bomb = frame(gzip.compress(bytes(64 * 2**20)), is_compressed=True)
    tracemalloc.start()
    try:
        with pytest.raises(ResourceExhausted):
            decode(bomb, encoding=b"gzip", max_bytes=1000)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2**20


def test_ok_has_no_message() -> None:
    assert status_headers(None) == [(b"grpc-status", b"0")]


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("", b""),
        ("Servable not found for request: Latest(m)", b"Servable not found for request: Latest(m)"),
        ("50% of {a}~\"'\\", b"50%25 of {a}~\"'\\"),
        ("two\nlines\t\x7f", b"two%0Alines%09%7F"),
        ("caf\u00e9 \u2713", b"caf%C3%A9 %E2%9C%93"),
        ("lone \ud800", b"lone ?"),
    ],
)
def test_messages_are_percent_encoded(text: str, encoded: bytes) -> None:
    assert status_headers(NotFound(text)) == [(b"grpc-status", b"5"), (b"grpc-message", encoded)]


def test_a_long_message_is_cut_before_it_is_encoded() -> None:
    message = dict(status_headers(NotFound("\n" * 5000)))[b"grpc-message"]
    assert unquote(message.decode()) == "\n" * 1024 + "...TRUNCATED"
