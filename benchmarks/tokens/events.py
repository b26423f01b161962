"""Reads a streamed HTTP answer after the fact: which text came when."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import httptools

from tokens.timelines import Timeline

_DONE = "[DONE]"


class Piece(NamedTuple):
    """What one read of the socket brought."""

    at: float
    data: bytes


class _Events:
    """Takes pieces of an answer apart into events, each with the time of its last byte."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.found: list[tuple[float, str]] = []
        self.is_complete = False
        self._parser = httptools.HttpResponseParser(self)
        self._now = 0.0

    def feed(self, piece: Piece) -> None:
        self._now = piece.at
        self._parser.feed_data(piece.data)

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self.body = (self.body + body).replace(b"\r\n", b"\n")
        while b"\n\n" in self.body:
            event, _, self.body = self.body.partition(b"\n\n")
            for line in event.decode().splitlines():
                if line.startswith("data:"):
                    self.found.append((self._now, line.removeprefix("data:").strip()))

    def on_message_complete(self) -> None:
        self.is_complete = True


def read_timeline(asked_at: float, *, pieces: Iterable[Piece]) -> Timeline:
    """The timeline of one answer, with its error if it is not as it should be."""
    events = _Events()
    last_at = asked_at
    try:
        for piece in pieces:
            last_at = piece.at
            events.feed(piece)
    except httptools.HttpParserError as error:
        return Timeline(asked_at, (), last_at, 0, error=f"no HTTP: {error}")
    if events.status != 200:
        said = " ".join(events.body.decode(errors="replace").split())
        return Timeline(asked_at, (), last_at, 0, error=f"status {events.status}: {said[:120]}")
    return _read_events(asked_at, events=events, last_at=last_at)


def _read_events(asked_at: float, *, events: _Events, last_at: float) -> Timeline:
    texts_at: list[float] = []
    parts: list[str] = []
    num_tokens, error = 0, "the answer broke off"
    for at, data in events.found:
        if data == _DONE:
            error = ""
            continue
        body = json.loads(data)
        if "error" in body:
            return Timeline(asked_at, tuple(texts_at), at, 0, error=str(body["error"])[:120])
        if events.is_complete and _is_last(body):
            # transformers sends nothing after the finish reason.
            error = ""
        text = "".join(_texts(body))
        if text:
            texts_at.append(at)
            parts.append(text)
        num_tokens = (body.get("usage") or {}).get("completion_tokens", num_tokens)
    count = num_tokens or len(texts_at)
    return Timeline(asked_at, tuple(texts_at), last_at, count, error, "".join(parts))


def _is_last(body: dict[str, Any]) -> bool:
    return any(choice.get("finish_reason") for choice in body.get("choices", ()))


def _texts(body: dict[str, Any]) -> Iterator[str]:
    """Of completions and of chat completions."""
    for choice in body.get("choices", ()):
        yield choice.get("text") or (choice.get("delta") or {}).get("content") or ""
