"""A server is measured once it answers well, and not before."""

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from time import monotonic
from types import ModuleType

import pytest

NUM_REFUSALS = 2


class LateHandler(BaseHTTPRequestHandler):
    """Refuses the first requests, as servers do that open their port before their models load."""

    def do_POST(self) -> None:
        assert isinstance(self.server, LateServer)
        self.server.num_requests += 1
        is_ready = self.server.num_requests > NUM_REFUSALS
        self.send_response(200 if is_ready else 503)
        self.end_headers()
        self.wfile.write(b"ready" if is_ready else b"loading")

    def log_message(self, *_: object) -> None:
        """Nothing to the terminal."""


class LateServer(HTTPServer):
    num_requests = 0


@pytest.fixture
def server() -> Iterator[LateServer]:
    with LateServer(("127.0.0.1", 0), LateHandler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def serving(import_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return import_benchmark("serving")


@pytest.fixture
def make_endpoint(import_benchmark: Callable[[str], ModuleType]) -> Callable[[bytes], object]:
    endpoints = import_benchmark("endpoints")
    return lambda answer: endpoints.Endpoint(
        endpoints.Protocol.REST, "/", body=b"x", is_right=lambda found: found == answer
    )


def test_refusals_are_waited_out(
    serving: ModuleType, server: LateServer, make_endpoint: Callable[[bytes], object]
) -> None:
    endpoint = make_endpoint(b"ready")
    checked = serving._wait_right(endpoint, port=server.server_port, give_up=monotonic() + 60)
    assert server.num_requests == NUM_REFUSALS + 1
    assert checked.answer_bytes == len(b"ready")


@pytest.mark.parametrize(
    ("num_requests", "reason"),
    [(0, "HTTP status 503: b'loading'"), (NUM_REFUSALS, "the answer is wrong: b'ready'")],
)
def test_after_the_limit_the_last_answer_is_the_reason(
    serving: ModuleType,
    server: LateServer,
    make_endpoint: Callable[[bytes], object],
    num_requests: int,
    reason: str,
) -> None:
    server.num_requests = num_requests
    endpoint = make_endpoint(b"something else")
    with pytest.raises(serving.CheckError) as caught:
        serving._wait_right(endpoint, port=server.server_port, give_up=monotonic())
    assert str(caught.value) == reason
