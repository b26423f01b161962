"""uvicorn's HTTP/1 with bounds on connections and request heads, which it leaves to a proxy."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from aspira.frontends.listeners.options import max_connections

MAX_HEAD_BYTES = 60 << 10
"""Envoy's bound; a part of a read may come on top."""

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain\r\n"
    b"content-length: 31\r\n"
    b"connection: close\r\n\r\n"
    b"Request Header Fields Too Large"
)


class BoundedHttp(HttpToolsProtocol):  # type: ignore[misc] # uvicorn is not followed
    """Refuses a request line, headers or trailers without end: the parser would keep them all."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_head_over = False
        self._num_head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        super().connection_made(transport)
        if len(self.connections) > max_connections():
            # With no file left, asyncio would tell of thousands of failures a second.
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """A piece of what the client sends."""
        self._is_head_over = False
        super().data_received(data)
        self._num_head_bytes = 0 if self._is_head_over else self._num_head_bytes + len(data)
        if self._num_head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_headers_complete(self) -> None:
        """The parser has come to the end of a request's headers."""
        self._is_head_over = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """The parser has met a part of a body."""
        self._is_head_over = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The parser has come to the end of a request."""
        self._is_head_over = True
        super().on_message_complete()
