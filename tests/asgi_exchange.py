"""Plays a client of an ASGI application: scripted requests in, checked answers out, no socket."""

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from aspira.frontends.asgi import Application

Event = MutableMapping[str, Any]
Headers = Mapping[str, str]


@dataclass(frozen=True)
class Request:
    """What a client sends; it stays afterwards, waiting, unless `leaves` says otherwise."""

    method: str
    path: str
    query: str = ""
    headers: Headers = field(default_factory=dict)
    chunks: tuple[bytes, ...] = (b"",)
    is_complete: bool = True
    leaves: bool = False

    @property
    def scope(self) -> dict[str, Any]:
        return {
            "type": "http",
            "method": self.method,
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": self.query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in self.headers.items()],
        }

    @property
    def events(self) -> list[Event]:
        last = len(self.chunks) - 1 if self.is_complete else None
        events: list[Event] = [
            {"type": "http.request", "body": chunk, "more_body": index != last}
            for index, chunk in enumerate(self.chunks)
        ]
        return [*events, {"type": "http.disconnect"}] if self.leaves else events


class ScriptedClient:
    """The `receive` and `send` of one request. Once its events are told, `receive` blocks."""

    def __init__(self, request: Request) -> None:
        self._events = deque(request.events)
        self._left = asyncio.Event()
        self.sent: list[Event] = []

    @property
    def num_unread(self) -> int:
        return len(self._events)

    def leave(self) -> None:
        self._left.set()

    async def receive(self) -> Event:
        if self._events:
            return self._events.popleft()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Event) -> None:
        self.sent.append(event)


@dataclass(frozen=True)
class Answer:
    """A complete and well-formed response."""

    status: int
    headers: dict[str, str]
    chunks: tuple[bytes, ...]
    trailers: dict[str, str]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The message of a REST error, whose body holds nothing else."""
        assert list(self.json) == ["error"]
        text: str = self.json["error"]
        return text


def read_answer(sent: Iterable[Event]) -> Answer:
    """The answer that `sent` makes, which must be exactly one, in ASGI's order."""
    start, *rest = sent
    assert start["type"] == "http.response.start"
    trailers: dict[str, str] = {}
    if start.get("trailers"):
        last = rest.pop()
        assert last["type"] == "http.response.trailers"
        trailers = _decode_headers(last["headers"])
    assert [event["type"] for event in rest] == ["http.response.body"] * len(rest)
    assert [bool(event.get("more_body")) for event in rest] == [True] * (len(rest) - 1) + [False]
    chunks = tuple(event["body"] for event in rest)
    return Answer(start["status"], _decode_headers(start["headers"]), chunks, trailers)


async def exchange(application: Application, *, request: Request) -> Answer:
    """The application's answer to one request."""
    client = ScriptedClient(request)
    await application(request.scope, client.receive, client.send)
    return read_answer(client.sent)


def get(path: str, *, query: str = "", headers: Headers | None = None) -> Request:
    return Request("GET", path, query=query, headers=headers or {})


def post(path: str, *, body: object, headers: Headers | None = None) -> Request:
    """A POST of bytes as they are, of anything else as JSON."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", path, headers=headers or {}, chunks=(payload,))


def _decode_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    pairs = [(name.decode(), value.decode()) for name, value in headers]
    assert len({name for name, _ in pairs}) == len(pairs)
    assert all(name == name.lower() for name, _ in pairs)
    return dict(pairs)
