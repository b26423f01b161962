import asyncio
import gzip
import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from asgi_exchange import Answer, Request, ScriptedClient, exchange, get, post, read_answer
from aspira.frontends.rest import asgi
from aspira.frontends.rest.options import RestOptions
from aspira.settings import DEFAULT_METRICS_PATH, Settings
from serving_toys import ask, running, single_model, write_version

PREDICT = "/v1/models/m:predict"
BODY = json.dumps({"instances": [2.0]}).encode()
PREDICTED = {"predictions": [2.0]}
EMPTY_DOCUMENT = (400, "JSON Parse error: The document is empty")
CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "POST, GET",
    "access-control-allow-headers": "Content-Type",
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    write_version(tmp_path / "m", version=1)
    return single_model(tmp_path / "m")


def answer(settings: Settings, request: Request) -> Answer:
    (answered,) = ask(settings, request)
    return answered


def answer_gzip(settings: Settings, body: bytes, *, encoding: str = "gzip") -> Answer:
    return answer(settings, post(PREDICT, body=body, headers={"content-encoding": encoding}))


def test_a_body_may_come_in_any_pieces(settings: Settings) -> None:
    for at in range(0, len(BODY) + 1, 5):
        request = Request("POST", PREDICT, chunks=(BODY[:at], BODY[at:]))
        assert answer(settings, request).json == PREDICTED


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "identity, gzip"])
def test_a_gzip_body_is_inflated(settings: Settings, encoding: str) -> None:
    assert answer_gzip(settings, gzip.compress(BODY), encoding=encoding).json == PREDICTED


@pytest.mark.parametrize("headers", [{}, {"content-encoding": "identity"}])
def test_other_bodies_are_not(settings: Settings, headers: dict[str, str]) -> None:
    assert answer(settings, post(PREDICT, body=BODY, headers=headers)).json == PREDICTED


@pytest.mark.parametrize(
    "body",
    [b"", BODY, gzip.compress(BODY)[:-1], gzip.compress(BODY)[:12], zlib.compress(BODY)],
    ids=["nothing", "plain", "no checksum", "truncated", "deflate"],
)
def test_a_damaged_gzip_body_counts_as_empty(settings: Settings, body: bytes) -> None:
    answered = answer_gzip(settings, body)
    assert (answered.status, answered.error) == EMPTY_DOCUMENT


def test_a_gzip_body_over_100_mebibytes_counts_as_empty(settings: Settings) -> None:
    size = 100 * 2**20 + 1
    answered = answer_gzip(settings, gzip.compress(BODY + bytes(size - len(BODY)), compresslevel=1))
    assert (answered.status, answered.error) == EMPTY_DOCUMENT


@pytest.mark.parametrize(("limit", "is_empty"), [(len(BODY), False), (len(BODY) - 1, True)])
def test_a_gzip_body_may_reach_the_limit(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, limit: int, is_empty: bool
) -> None:
    monkeypatch.setattr(asgi, "MAX_INFLATED_BYTES", limit)
    answered = answer_gzip(settings, gzip.compress(BODY))
    assert (answered.status == 400) is is_empty


def test_a_body_announced_too_large_is_refused_unread(settings: Settings) -> None:
    request = post(PREDICT, body=BODY, headers={"content-length": str(2**31)})

    async def run() -> ScriptedClient:
        async with running(settings) as server:
            client = ScriptedClient(request)
            await server.application(request.scope, client.receive, client.send)
            return client

    client = asyncio.run(run())
    answered = read_answer(client.sent)
    assert answered.status == 429
    assert answered.error == "The request body is larger than the limit of 2147483647 bytes"
    assert client.num_unread == 1


@pytest.mark.parametrize(
    "request_",
    [get("/v1/models/m"), post(PREDICT, body=BODY), get("/v1/x"), get("/"), get("/healthz")],
    ids=lambda request: request.path,
)
def test_the_length_of_a_body_is_told(settings: Settings, request_: Request) -> None:
    answered = answer(settings, request_)
    assert answered.headers["content-length"] == str(len(answered.body))
    assert set(answered.headers) == {"content-type", "content-length"}


def cors_headers(answered: Answer) -> dict[str, str]:
    return {name: value for name, value in answered.headers.items() if name.startswith("access-")}


@pytest.mark.parametrize(
    "request_",
    [
        get("/v1/models/m"),
        post(PREDICT, body=BODY),
        post(PREDICT, body=b""),
        get("/v1/x"),
        Request("OPTIONS", PREDICT, headers={"origin": "http://a"}),
        Request("OPTIONS", PREDICT),
    ],
    ids=["status", "predict", "error", "malformed", "preflight", "preflight without origin"],
)
def test_cors_headers_come_with_every_api_answer_if_wanted(
    settings: Settings, request_: Request
) -> None:
    with_cors = replace(settings, rest=RestOptions(is_cors_enabled=True))
    assert cors_headers(answer(with_cors, request_)) == CORS
    assert cors_headers(answer(settings, request_)) == {}


@pytest.mark.parametrize("path", [DEFAULT_METRICS_PATH, "/healthz", "/", "/v1"])
def test_cors_headers_come_with_nothing_else(settings: Settings, path: str) -> None:
    with_cors = replace(settings, rest=RestOptions(is_cors_enabled=True))
    assert cors_headers(answer(with_cors, get(path))) == {}


def test_a_server_that_drains_refuses_inference_and_answers_questions(settings: Settings) -> None:
    with_cors = replace(settings, rest=RestOptions(is_cors_enabled=True))

    async def run() -> tuple[Answer, Answer]:
        async with running(with_cors) as server:
            server.gate.close()
            refused = await exchange(server.application, request=post(PREDICT, body=BODY))
            status = await exchange(server.application, request=get("/v1/models/m"))
            return refused, status

    refused, status = asyncio.run(run())
    assert refused.status == 503
    assert refused.error == "The server is shutting down; retry at another replica"
    assert cors_headers(refused) == CORS
    assert status.status == 200


@pytest.mark.parametrize("chunks", [(), (BODY[:5],), (BODY[:5], BODY[5:])])
def test_a_client_that_leaves_within_its_request_is_sent_nothing(
    settings: Settings, chunks: tuple[bytes, ...]
) -> None:
    request = Request("POST", PREDICT, chunks=chunks, is_complete=False, leaves=True)

    async def run() -> tuple[ScriptedClient, Answer]:
        async with running(settings) as server:
            client = ScriptedClient(request)
            await server.application(request.scope, client.receive, client.send)
            return client, await exchange(server.application, request=get(DEFAULT_METRICS_PATH))

    client, page = asyncio.run(run())
    assert client.sent == []
    assert b"request_count{" not in page.body
