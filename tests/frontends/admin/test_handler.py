import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aspira.app import Server
from aspira.frontends.admin.handler import AdminHandler
from aspira.frontends.rest.messages import HttpRequest, HttpResponse
from aspira.settings import DEFAULT_METRICS_PATH, Settings
from serving_toys import (
    config_entry,
    config_list,
    listed_models,
    make_toy_loader,
    running,
    single_model,
    write_version,
)

RELOAD = "/v1/config:reload"


def request(method: str, path: str, *, body: str = "", headers: Any = ()) -> HttpRequest:
    path, _, query = path.partition("?")
    return HttpRequest(method, path, query, headers, body.encode(), deadline=None)


async def ask(
    handler: AdminHandler, method: str, path: str, *, is_verified: bool = True, **parts: Any
) -> HttpResponse:
    return await handler.handle(request(method, path, **parts), is_verified=is_verified)


def error_of(response: HttpResponse) -> str:
    text: str = json.loads(response.body)["error"]
    return text


def play(settings: Settings, scenario: Callable[[AdminHandler, Server], Awaitable[None]]) -> None:
    """With the handler of a running server."""

    async def act() -> None:
        handler = AdminHandler()
        async with running(settings) as server:
            handler.attach(server.admin_services())
            await scenario(handler, server)

    asyncio.run(act())


def answer(settings: Settings, method: str, path: str, **parts: Any) -> HttpResponse:
    answers: list[HttpResponse] = []

    async def scenario(handler: AdminHandler, server: Server) -> None:
        answers.append(await ask(handler, method, path, **parts))

    play(settings, scenario)
    return answers[0]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Versions 1 and 2 of the model `m`, of which 2 has the label `next`; `n` is missing."""
    write_version(tmp_path / "m", version=1)
    write_version(tmp_path / "m", version=2)
    fields = "model_version_policy { all {} } version_labels { key: 'next' value: 2 }"
    return listed_models(
        tmp_path / "models.txt",
        entries=[config_entry(tmp_path / "m", fields=fields), config_entry(tmp_path / "n")],
    )


def test_before_there_is_a_server_it_is_alive_and_not_ready() -> None:
    async def run() -> None:
        handler = AdminHandler()
        assert (await ask(handler, "GET", "/healthz")).status == 200
        readiness = await ask(handler, "GET", "/readyz")
        assert (readiness.status, json.loads(readiness.body)) == (503, {"status": "starting"})
        listing = await ask(handler, "GET", "/v1/models")
        assert (listing.status, error_of(listing)) == (503, "The server is starting")

    asyncio.run(run())


def test_while_models_load_readiness_says_which(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1)

    async def run() -> None:
        handler = AdminHandler()
        server = Server(single_model(tmp_path / "m"), make_runtime_loader=make_toy_loader)
        handler.attach(server.admin_services())
        early = await ask(handler, "GET", "/readyz")
        assert (early.status, json.loads(early.body)["status"]) == (503, "starting")
        await server.start()
        assert (await ask(handler, "GET", "/readyz")).status == 200
        assert await server.drain(grace_s=30)
        late = await ask(handler, "GET", "/readyz")
        assert (late.status, json.loads(late.body)) == (503, {"status": "shutting down"})
        assert (await ask(handler, "GET", "/healthz")).status == 200
        refused = await ask(handler, "POST", RELOAD)
        assert refused.status == 503

    asyncio.run(run())


def test_readiness_names_what_cannot_answer(settings: Settings) -> None:
    readiness = answer(settings, "GET", "/readyz")
    assert readiness.status == 200
    told = json.loads(readiness.body)
    assert told["status"] == "ready"
    assert list(told["unavailable"]) == ["n"]
    assert "Could not find base path" in told["unavailable"]["n"]


def test_all_models_are_listed(settings: Settings, tmp_path: Path) -> None:
    m, n = json.loads(answer(settings, "GET", "/v1/models").body)["models"]
    assert (m["name"], m["base_path"]) == ("m", str(tmp_path / "m"))
    assert "unavailable" not in m
    assert [
        (v["version"], v["state"], v["version_labels"], v["signature_names"])
        for v in m["model_version_status"]
    ] == [
        ("2", "AVAILABLE", ["next"], ["serving_default"]),
        ("1", "AVAILABLE", [], ["serving_default"]),
    ]
    assert n["model_version_status"] == []
    assert "Could not find base path" in n["unavailable"]


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/v1/models/m/labels/next", b'"version": "2"'),
        ("/v1/models/m/metadata", b'"signature_def"'),
        (DEFAULT_METRICS_PATH, b"# TYPE "),
    ],
)
def test_questions_are_answered(settings: Settings, path: str, part: bytes) -> None:
    response = answer(settings, "GET", path)
    assert response.status == 200
    assert part in response.body


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/v1/models/x", 404, "Could not find any versions of model x"),
        ("GET", "/nope", 404, "The admin port has GET /healthz"),
        ("POST", "/v1/models/m:predict", 404, "The admin port has GET /healthz"),
        ("PUT", RELOAD, 404, "The admin port has GET /healthz"),
        ("GET", RELOAD, 404, "The admin port has GET /healthz"),
        ("POST", "/v1/models/x:record_warmup", 404, "Servable not found for request: Latest(x)"),
    ],
)
def test_refusals(settings: Settings, method: str, path: str, status: int, text: str) -> None:
    response = answer(settings, method, path)
    assert response.status == status
    assert error_of(response).startswith(text)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/v1/models", 403),
        ("GET", DEFAULT_METRICS_PATH, 403),
        ("POST", RELOAD, 403),
    ],
)
def test_without_the_certificate_that_is_asked_for_only_health_is_told(
    settings: Settings, method: str, path: str, status: int
) -> None:
    assert answer(settings, method, path, is_verified=False).status == status


def test_a_web_page_cannot_give_orders(settings: Settings) -> None:
    headers = ((b"origin", b"https://example.org"),)
    response = answer(settings, "POST", RELOAD, headers=headers)
    assert response.status == 403
    assert error_of(response) == "The admin port takes no orders from web pages"


def as_text(base_path: Path) -> str:
    return config_list(config_entry(base_path))


def as_json(base_path: Path) -> str:
    entry = {
        "name": base_path.name,
        "basePath": str(base_path),
        "model_platform": "tensorflow",
    }
    return json.dumps({"modelConfigList": {"config": [entry]}})


@pytest.mark.parametrize("write", [as_text, as_json])
def test_a_reload_replaces_the_models(
    settings: Settings, tmp_path: Path, write: Callable[[Path], str]
) -> None:
    write_version(tmp_path / "k", version=7)
    response = answer(settings, "POST", RELOAD, body=write(tmp_path / "k"))
    assert response.status == 200
    (k,) = json.loads(response.body)["models"]
    assert k["name"] == "k"
    assert [(v["version"], v["state"]) for v in k["model_version_status"]] == [("7", "AVAILABLE")]


def test_an_empty_reload_reads_the_file_again(settings: Settings, tmp_path: Path) -> None:
    write_version(tmp_path / "k", version=7)

    def rewrite() -> None:
        Path(settings.models.config_file).write_text(as_text(tmp_path / "k"))

    async def scenario(handler: AdminHandler, server: Server) -> None:
        rewrite()
        response = await ask(handler, "POST", RELOAD, body=" \n")
        assert [m["name"] for m in json.loads(response.body)["models"]] == ["k"]

    play(settings, scenario)


def test_an_empty_reload_of_a_single_model_looks_at_it_again(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1)

    async def scenario(handler: AdminHandler, server: Server) -> None:
        write_version(tmp_path / "m", version=2)
        response = await ask(handler, "POST", RELOAD)
        (m,) = json.loads(response.body)["models"]
        assert [v["version"] for v in m["model_version_status"]] == ["2", "1"]

    play(single_model(tmp_path / "m"), scenario)


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ("model_config_list { config { nam: 'm' } }", 400, "Invalid protobuf file: 'request body'"),
        ('{"modelConfigList": 3}', 400, "Invalid protobuf JSON: 'request body': Error parsing "),
        ("{", 400, "Invalid protobuf JSON: 'request body'"),
        ("# nothing", 400, "Cannot transition to requested config."),
        ("custom_model_config {}", 400, "ModelServer does not yet support custom model config."),
        (as_text(Path("m")), 400, "Expected model m to have an absolute path or URI"),
        (as_text(Path("/nonexistent/k")), 500, "1 model(s) did not become available: "),
    ],
)
def test_reloads_that_fail(settings: Settings, body: str, status: int, text: str) -> None:
    response = answer(settings, "POST", RELOAD, body=body)
    assert response.status == status
    assert error_of(response).startswith(text)


def test_a_body_that_is_no_text_is_refused(settings: Settings) -> None:
    asked = request("POST", RELOAD)._replace(body=b"\xff")

    async def scenario(handler: AdminHandler, server: Server) -> None:
        response = await handler.handle(asked, is_verified=True)
        assert response.status == 400
        assert error_of(response) == "The request body is not UTF-8 text"

    play(settings, scenario)
