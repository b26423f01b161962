"""`aspira chat` against a server that answers as it is told to."""

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from aspira.cli import main
from aspira.cli.chat import Chat
from aspira.cli.chat_client import ChatClient

EXIT_FAILED = 255


class StandIn(BaseHTTPRequestHandler):
    """Speaks the part of the API that a chat needs."""

    url: ClassVar[str] = ""
    models: ClassVar[list[str]] = ["m"]
    status: ClassVar[int] = 200
    events: ClassVar[list[str]] = []
    asked: ClassVar[list[Any]] = []
    keys: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.answer(json.dumps({"data": [{"id": name} for name in self.models]}))

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        self.asked.append(json.loads(self.rfile.read(length)))
        self.keys.append(self.headers["authorization"])
        self.answer("".join(self.events))

    def answer(self, body: str) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments: Any) -> None:
        return


def event(text: str) -> str:
    return f"data: {json.dumps({'choices': [{'delta': {'content': text}}]})}\n\n"


DONE = "data: [DONE]\n\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[StandIn]]:
    monkeypatch.setattr(StandIn, "asked", [])
    monkeypatch.setattr(StandIn, "keys", [])
    monkeypatch.setattr(StandIn, "events", [": wait\n\n", event("Hé"), event("llo"), DONE])
    with HTTPServer(("127.0.0.1", 0), StandIn) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setattr(StandIn, "url", f"http://127.0.0.1:{server.server_port}")
        yield StandIn
        server.shutdown()
        thread.join()


def chat(server: type[StandIn], *flags: str) -> int:
    return main.run(["chat", f"--url={server.url}", *flags])


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_one_message_is_answered_as_it_comes(
    server: type[StandIn], capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    flags = ["--message=hi", "--system=be kind", "--max_tokens=5", "--temperature=0"]
    assert main.run(["chat", f"--url={server.url}{suffix}", *flags]) == 0
    assert capsys.readouterr().out == "Héllo\n"
    assert server.asked == [
        {
            "model": "m",
            "temperature": 0.0,
            "max_tokens": 5,
            "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": "hi"},
            ],
            "stream": True,
        }
    ]


def test_a_conversation_goes_on_until_it_is_cleared(
    server: type[StandIn], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\n\ntwo\n/clear\nthree\n"))
    assert chat(server) == 0
    said = [[message["content"] for message in asked["messages"]] for asked in server.asked]
    assert said == [["one"], ["one", "Héllo", "two"], ["three"]]
    assert "max_tokens" not in server.asked[0]
    assert capsys.readouterr().out.count("Héllo\n") == 3


def test_what_fails_is_said_and_not_remembered(
    server: type[StandIn], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))
    error = json.dumps({"error": {"message": "out of luck"}})
    monkeypatch.setattr(server, "events", [event("He"), f"data: {error}\n\n"])
    assert chat(server) == 0
    assert capsys.readouterr().err.count("aspira chat: out of luck") == 2
    assert [len(asked["messages"]) for asked in server.asked] == [1, 1]


def test_the_key_is_sent(server: type[StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "abc")
    assert chat(server, "--message=hi") == 0
    assert server.keys == ["Bearer abc"]


@pytest.mark.parametrize(
    ("changes", "flags", "message"),
    [
        ({"models": []}, [], "lists no language model"),
        ({"events": [event("He")]}, [], "broke off"),
        ({"events": ["data: {}\n\n"]}, [], "no piece of an answer"),
        ({"status": 404, "events": ['{"error": {"message": "no m"}}']}, ["--model=m"], "no m"),
        ({"status": 400, "events": ['{"error": "Malformed"}']}, ["--model=m"], "Malformed"),
        ({}, ["--no_such"], "unknown argument: --no_such"),
        ({}, ["--ca_file=/no/such"], "/no/such"),
        ({}, ["--url=ftp://x"], "http://"),
        ({}, ["--url=http://127.0.0.1:1"], "no answer from"),
    ],
)
def test_failures_end_it_with_a_reason(
    server: type[StandIn],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    flags: list[str],
    message: str,
) -> None:
    for name, value in changes.items():
        monkeypatch.setattr(server, name, value)
    assert chat(server, "--message=hi", *flags) == EXIT_FAILED
    assert message in capsys.readouterr().err


def test_help_lists_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["chat", "--help"]) == 0
    assert "--url" in capsys.readouterr().out


def test_an_answer_that_is_stopped_stays_as_far_as_it_got(server: type[StandIn]) -> None:
    def write(piece: str) -> None:
        if piece == "llo":
            raise KeyboardInterrupt

    client = ChatClient(server.url, api_key="", ca_file="")
    conversation = Chat(client, body={"model": "m"}, system="", write=write)
    conversation.ask("one")
    conversation.ask("two")
    said = [message["content"] for message in server.asked[1]["messages"]]
    assert said == ["one", "Héllo", "two"]
