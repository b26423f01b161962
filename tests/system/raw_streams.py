"""A generation as a client without any library sees it: one connection, bytes and events."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

DONE = "[DONE]"


class RawStream:
    """One request to `/v1/completions` on its own connection. `close` leaves, at any moment."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self._is_streamed = False

    @classmethod
    async def ask(cls, port: int, **body: Any) -> "RawStream":
        """Send a request; nothing of the answer is read yet."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        data = json.dumps({"stream": True, **body}).encode()
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nhost: test\r\nconnection: close\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)
        )
        await writer.drain()
        return cls(reader, writer)

    async def start(self) -> None:
        """Until the server has accepted or refused it."""
        if not self.status:
            head = await self._reader.readuntil(b"\r\n\r\n")
            self.status = int(head.split()[1])
            self._is_streamed = b"text/event-stream" in head.lower()

    async def events(self) -> AsyncIterator[Any]:
        """The data of each event; `[DONE]` is the last one if the server says so.

        Raises:
            EOFError: the answer breaks off.
        """
        await self.start()
        if not self._is_streamed:
            yield json.loads(await self._reader.read())
            return
        async for block in self._blocks():
            if block.startswith("data: "):
                data = block.removeprefix("data: ")
                yield data if data == DONE else json.loads(data)

    async def _blocks(self) -> AsyncIterator[str]:
        """Events as text, of a body in chunks."""
        rest = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            rest += (await self._reader.readexactly(size + 2))[:-2]
            *blocks, rest = rest.split(b"\n\n")
            for block in blocks:
                yield block.decode()
        assert rest == b""

    def close(self) -> None:
        self._writer.close()
