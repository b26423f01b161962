import asyncio

import pytest

from asgi_exchange import Request, ScriptedClient
from aspira.contracts.errors import Cancelled, ResourceExhausted
from aspira.frontends.asgi import read_body

LIMIT = 6


def read(*chunks: bytes, content_length: int | None = None, leaves: bool = False) -> bytes:
    request = Request("POST", "/", chunks=chunks, is_complete=not leaves, leaves=leaves)
    client = ScriptedClient(request)
    return asyncio.run(read_body(client.receive, max_bytes=LIMIT, content_length=content_length))


@pytest.mark.parametrize("chunks", [(b"",), (b"abcdef",), (b"abc", b"def"), (b"abc", b"", b"d")])
def test_chunks_are_joined(chunks: tuple[bytes, ...]) -> None:
    assert read(*chunks) == b"".join(chunks)


@pytest.mark.parametrize(
    "chunks", [(b"abcdefg",), (b"abcdef", b"g"), (b"abcdefg", b""), (b"", b"abcdefg")]
)
def test_a_body_over_the_limit_is_refused(chunks: tuple[bytes, ...]) -> None:
    with pytest.raises(ResourceExhausted) as caught:
        read(*chunks)
    assert caught.value.message == "The request body is larger than the limit of 6 bytes"


def test_an_announced_length_at_the_limit_is_read() -> None:
    assert read(b"abcdef", content_length=LIMIT) == b"abcdef"


def test_a_length_over_the_limit_is_refused_before_the_body_is_read() -> None:
    client = ScriptedClient(Request("POST", "/", chunks=(b"abc",)))
    with pytest.raises(ResourceExhausted):
        asyncio.run(read_body(client.receive, max_bytes=LIMIT, content_length=LIMIT + 1))
    assert client.num_unread == 1


def test_an_endless_body_is_refused_once_it_is_too_large() -> None:
    client = ScriptedClient(Request("POST", "/", chunks=(b"abcd",) * 9, is_complete=False))
    with pytest.raises(ResourceExhausted):
        asyncio.run(read_body(client.receive, max_bytes=LIMIT, content_length=None))
    assert client.num_unread == 7


@pytest.mark.parametrize("chunks", [(), (b"abc",), (b"abc", b"def")])
def test_a_client_that_leaves_early_is_noticed(chunks: tuple[bytes, ...]) -> None:
    with pytest.raises(Cancelled):
        read(*chunks, leaves=True)
