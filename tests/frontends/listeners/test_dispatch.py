import asyncio
import logging

import pytest

from asgi_exchange import Request, ScriptedClient
from aspira.frontends.asgi import Receive, Scope, Send
from aspira.frontends.listeners.dispatch import Dispatcher


class Recorder:
    """An application that notes the paths it was called with."""

    def __init__(self, error: Exception | None = None) -> None:
        self.paths: list[str] = []
        self._error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        if self._error is not None:
            raise self._error


def dispatch(headers: dict[str, str], *, error: Exception | None = None) -> tuple[int, int]:
    """How often gRPC and REST were called for one request."""
    grpc, rest = Recorder(error), Recorder(error)
    request = Request("POST", "/some/path", headers=headers)
    client = ScriptedClient(request)
    asyncio.run(Dispatcher(grpc=grpc, rest=rest)(request.scope, client.receive, client.send))
    assert {*grpc.paths, *rest.paths} == {"/some/path"}
    return len(grpc.paths), len(rest.paths)


@pytest.mark.parametrize(
    "content_type", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"]
)
def test_grpc_is_told_by_its_content_type(content_type: str) -> None:
    assert dispatch({"te": "trailers", "content-type": content_type}) == (1, 0)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/json"},
        {"content-type": ""},
        {"content-type": "text/application/grpc"},
        {"accept": "application/grpc"},
    ],
)
def test_everything_else_is_rest(headers: dict[str, str]) -> None:
    assert dispatch(headers) == (0, 1)


@pytest.mark.parametrize(("path", "is_taken"), [("/a", True), ("/a/", False), ("/b", False)])
def test_some_paths_have_an_application_of_their_own(path: str, is_taken: bool) -> None:
    grpc, rest, own = Recorder(), Recorder(), Recorder()
    dispatcher = Dispatcher(grpc=grpc, rest=rest, by_path={"/a": own})
    client = ScriptedClient(Request("POST", path))
    asyncio.run(dispatcher(Request("POST", path).scope, client.receive, client.send))
    assert (own.paths, rest.paths, grpc.paths) == (
        ([path], [], []) if is_taken else ([], [path], [])
    )


@pytest.mark.parametrize("error", [OSError("reset"), ConnectionResetError(), BrokenPipeError()])
def test_a_client_that_left_before_its_answer_is_no_news(
    error: OSError, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="aspira"):
        assert dispatch({}, error=error) == (0, 1)
    assert caplog.records == []


def test_a_bug_is_logged_with_the_path_and_goes_no_further(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert dispatch({}, error=ZeroDivisionError("oops")) == (0, 1)
    assert "A request was not answered: /some/path" in caplog.text
    assert "oops" in caplog.text
