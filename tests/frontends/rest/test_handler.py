import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from asgi_exchange import Answer, Request, exchange, get, post
from aspira.contracts.errors import Code
from aspira.contracts.events import EventBus, RequestEnded
from aspira.frontends.rest.handler import MetricsPage, RestHandler, RestSurface
from aspira.frontends.rest.messages import HttpRequest
from aspira.frontends.rest.options import RestOptions
from aspira.service.drain import RequestGate
from aspira.settings import DEFAULT_METRICS_PATH, ProcessOptions, Settings
from aspira.testing.clock import JumpClock
from serving_toys import ask, config_entry, listed_models, running, single_model, write_version

ROWS = {"instances": [2.0, 3.0]}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Versions 1 and 2 of the model `m`, of which 2 has the label `next`."""
    write_version(tmp_path / "m", version=1)
    write_version(tmp_path / "m", version=2)
    fields = "model_version_policy { all {} } version_labels { key: 'next' value: 2 }"
    return listed_models(
        tmp_path / "models.txt", entries=[config_entry(tmp_path / "m", fields=fields)]
    )


def answer(settings: Settings, request: Request) -> Answer:
    (answered,) = ask(settings, request)
    return answered


def refusal(settings: Settings, request: Request) -> tuple[int, str]:
    answered = answer(settings, request)
    assert answered.headers["content-type"] == "application/json"
    return answered.status, answered.error


def test_predict_by_row(settings: Settings) -> None:
    answered = answer(settings, post("/v1/models/m:predict", body=ROWS))
    assert answered.status == 200
    assert answered.headers["content-type"] == "application/json"
    assert answered.body == b'{\n    "predictions": [3.0, 3.5\n    ]\n}'


def test_predict_by_named_row(settings: Settings) -> None:
    body = {"signature_name": "serving_default", "instances": [{"x": [2.0]}, {"x": [4.0]}]}
    answered = answer(settings, post("/v1/models/m:predict", body=body))
    assert answered.body == b'{\n    "predictions": [[3.0], [4.0]\n    ]\n}'


def test_predict_by_column(settings: Settings) -> None:
    answered = answer(settings, post("/v1/models/m:predict", body={"inputs": {"x": [2.0, 3.0]}}))
    assert answered.status == 200
    assert answered.body == (b'{\n    "outputs": [\n        3.0,\n        3.5\n    ]\n}')


@pytest.mark.parametrize(
    ("place", "predicted"), [("m", 3.0), ("m/versions/1", 2.0), ("m/labels/next", 3.0)]
)
def test_the_version_asked_for_answers(settings: Settings, place: str, predicted: float) -> None:
    request = post(f"/v1/models/{place}:predict", body={"instances": [2.0]})
    assert answer(settings, request).json == {"predictions": [predicted]}


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        (
            "/v1/models/other:predict",
            ROWS,
            404,
            "Servable not found for request: Latest(other)",
        ),
        (
            "/v1/models/m/versions/7:predict",
            ROWS,
            404,
            "Servable not found for request: Specific(m, 7)",
        ),
        (
            "/v1/models/m/labels/old:predict",
            ROWS,
            400,
            "Unrecognized servable version label: old",
        ),
        (
            "/v1/models/m:predict",
            {"signature_name": "other", **ROWS},
            400,
            'Serving signature name: "other" not found in signature def',
        ),
        ("/v1/models/m:predict", b"", 400, "JSON Parse error: The document is empty"),
        ("/v1/models/m:predict", b"[1]", 400, "JSON Value: [1] Is not object"),
        ("/v1/models/m:predict", {}, 400, "Missing 'inputs' or 'instances' key"),
        (
            "/v1/models/m:predict",
            {"instances": [2.0], "inputs": [2.0]},
            400,
            (
                'JSON Value: {\n    "instances": [2.0],\n    "inputs": [2.0]\n} Not formatted '
                "correctly expecting only one of 'inputs' or 'instances' keys to exist "
            ),
        ),
        (
            "/v1/models/m:predict",
            {"inputs": {"z": [2.0]}},
            400,
            "Missing named input: x in 'inputs' object.",
        ),
    ],
)
def test_predict_refusals(
    settings: Settings, path: str, body: object, status: int, text: str
) -> None:
    assert refusal(settings, post(path, body=body)) == (status, text)


def test_the_body_is_checked_before_the_model(settings: Settings) -> None:
    status, text = refusal(settings, post("/v1/models/other:predict", body=b"{"))
    assert status == 400
    assert text.startswith("JSON Parse error: ")


def test_an_error_body_is_indented_and_has_no_newline_at_its_end(settings: Settings) -> None:
    answered = answer(settings, post("/v1/models/m:predict", body=b""))
    assert answered.body == b'{\n    "error": "JSON Parse error: The document is empty"\n}'


def test_the_runtimes_own_error_is_passed_on_whole(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1, run_error="x" * 2000 + "\n\t 'node'")
    request = post("/v1/models/m:predict", body=ROWS)
    assert refusal(single_model(tmp_path / "m"), request) == (400, "x" * 2000 + "\n\t 'node'")


def test_a_timeout_is_told(settings: Settings) -> None:
    hurried = replace(settings, rest=RestOptions(timeout_s=1e-9))
    request = post("/v1/models/m:predict", body=ROWS)
    assert refusal(hurried, request) == (504, "Timed out waiting for notification")


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_a_timeout_of_nothing_is_none(settings: Settings, timeout_s: float) -> None:
    patient = replace(settings, rest=RestOptions(timeout_s=timeout_s))
    assert answer(patient, post("/v1/models/m:predict", body=ROWS)).status == 200


def test_status(settings: Settings) -> None:
    answered = answer(settings, get("/v1/models/m/versions/2"))
    assert answered.status == 200
    assert answered.headers["content-type"] == "application/json"
    assert answered.body.decode() == (
        '{\n "model_version_status": [\n  {\n   "version": "2",\n   "state": "AVAILABLE",\n'
        '   "status": {\n    "error_code": "OK",\n    "error_message": ""\n   }\n  }\n ]\n}\n'
    )


@pytest.mark.parametrize(
    ("path", "versions"),
    [
        ("/v1/models/m", ["2", "1"]),
        ("/v1/models/m/", ["2", "1"]),
        ("/v1/models/m/labels/next", ["2"]),
        ("/V1/MODELS/m/Versions/1", ["1"]),
    ],
)
def test_status_of_the_versions_asked_for(
    settings: Settings, path: str, versions: list[str]
) -> None:
    entries = answer(settings, get(path)).json["model_version_status"]
    assert [entry["version"] for entry in entries] == versions


def test_status_of_a_version_that_failed(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1, load_error="no variables")
    (entry,) = answer(single_model(tmp_path / "m"), get("/v1/models/m")).json[
        "model_version_status"
    ]
    assert entry == {
        "version": "1",
        "state": "END",
        "status": {"error_code": "DATA_LOSS", "error_message": "no variables"},
    }


def test_a_query_is_no_part_of_the_name(settings: Settings) -> None:
    answered = answer(settings, get("/v1/models/m", query="x=1"))
    assert answered.status == 200


@pytest.mark.parametrize("name", ["caf\u00e9", "a/b", "a b"])
def test_models_may_have_unusual_names(tmp_path: Path, name: str) -> None:
    write_version(tmp_path / "m", version=1)
    encoded = name.replace("/", "%2F").replace(" ", "%20")
    request = post(f"/v1/models/{encoded}:predict", body={"instances": [2.0]})
    answered = answer(single_model(tmp_path / "m", name=name), request)
    assert answered.json == {"predictions": [2.0]}


def test_metadata(settings: Settings) -> None:
    answered = answer(settings, get("/v1/models/m/metadata"))
    assert answered.status == 200
    assert answered.body.startswith(
        b'{\n"model_spec":{\n "name": "m",\n "signature_name": "",\n "version": "2"\n}\n,\n'
        b'"metadata": {"signature_def": {\n "signature_def": {\n  "serving_default": {\n'
    )
    signature = answered.json["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"


def test_metadata_of_a_version(settings: Settings) -> None:
    answered = answer(settings, get("/v1/models/m/versions/1/metadata"))
    assert answered.json["model_spec"]["version"] == "1"


def test_all_models_are_listed_without_telling_where_they_lie(settings: Settings) -> None:
    answered = answer(settings, get("/v1/models"))
    assert answered.status == 200
    (model,) = answered.json["models"]
    assert list(model) == ["name", "model_version_status"]
    assert [v["version"] for v in model["model_version_status"]] == ["2", "1"]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v1/models/other", 404, "Could not find any versions of model other"),
        ("/v1/models/m/versions/7", 404, "Could not find version 7 of model m"),
        ("/v1/models/m/labels/old", 400, "Unrecognized servable version label: old"),
        ("/v1/models/other/metadata", 404, "Servable not found for request: Latest(other)"),
        (
            "/v1/models/m/versions/7/metadata",
            404,
            "Servable not found for request: Specific(m, 7)",
        ),
        (
            "/v1/models/m/versions/9223372036854775808",
            400,
            "Failed to convert version: 9223372036854775808 to numeric.",
        ),
    ],
)
def test_question_refusals(settings: Settings, path: str, status: int, text: str) -> None:
    assert refusal(settings, get(path)) == (status, text)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (get("/v1/models/m/x"), "Malformed request: GET /v1/models/m/x"),
        (get("/v1/models/m:predict"), "Malformed request: GET /v1/models/m:predict"),
        (
            post("/v1/models/m:explain", body=ROWS),
            "Malformed request: POST /v1/models/m:explain",
        ),
        (get("/v1/x", query="a=1&b"), "Malformed request: GET /v1/x?a=1&b"),
        (Request("PUT", "/v1/models/m"), "Malformed request: PUT /v1/models/m"),
        (Request("DELETE", "/v1/models/m"), "Malformed request: DELETE /v1/models/m"),
        (get("/v1/caf\u00e9%2F"), "Malformed request: GET /v1/caf\u00e9%2F"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_malformed_requests(settings: Settings, request_: Request, text: str) -> None:
    assert refusal(settings, request_) == (400, text)


def preflight(path: str, *, origin: str | None) -> Request:
    headers = {} if origin is None else {"origin": origin}
    return Request("OPTIONS", path, headers=headers)


@pytest.mark.parametrize("origin", ["http://example.com", "https://example.com"])
@pytest.mark.parametrize("path", ["/v1/models/m:predict", "/v1/anything"])
def test_options_with_an_origin(settings: Settings, path: str, origin: str) -> None:
    answered = answer(settings, preflight(path, origin=origin))
    assert answered.status == 200
    assert answered.body == b""
    assert answered.headers["content-type"] == "text/html; charset=ISO-8859-1"


@pytest.mark.parametrize("origin", [None, "", "null", "file://x"])
def test_options_without_an_origin(settings: Settings, origin: str | None) -> None:
    status, text = refusal(settings, preflight("/v1/models/m", origin=origin))
    assert status == 400
    assert "Origin" in text


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "PUT"])
@pytest.mark.parametrize("path", ["/", "/v1", "/v3/models/m", "/favicon.ico"])
def test_paths_outside_the_api_get_a_page(settings: Settings, method: str, path: str) -> None:
    answered = answer(settings, Request(method, path))
    assert answered.status == 404
    assert answered.headers["content-type"] == "text/html"
    assert answered.body == (
        b"<HTML><HEAD>\n<TITLE>404 Not Found</TITLE>\n</HEAD><BODY>\n"
        b"<H1>Not Found</H1>\n</BODY></HTML>\n"
    )


def test_metrics_count_every_api_request_by_how_it_ended(settings: Settings) -> None:
    *_, page = ask(
        settings,
        post("/v1/models/m:predict", body=ROWS),
        post("/v1/models/m:predict", body=b""),
        get("/healthz"),
        get(DEFAULT_METRICS_PATH),
    )
    assert page.status == 200
    assert page.headers["content-type"] == "text/plain"
    lines = page.body.decode().splitlines()
    assert ':tensorflow:serving:request_count{model_name="m",status="OK"} 1' in lines
    assert ':tensorflow:serving:request_count{model_name="m",status="INVALID_ARGUMENT"} 1' in lines
    assert (
        ":aspira:request_count"
        '{model_name="m",version="2",api="predict",entrypoint="rest",status="OK"} 1'
    ) in lines
    assert sum(line.startswith(":tensorflow:serving:request_count{") for line in lines) == 2


def test_the_metrics_page_takes_no_query(settings: Settings) -> None:
    answered = answer(settings, get(DEFAULT_METRICS_PATH, query="a=1"))
    assert answered.status == 400
    assert answered.headers["content-type"] == "text/plain"
    assert answered.body.decode() == (
        f"Unexpected path: {DEFAULT_METRICS_PATH}?a=1. Should be {DEFAULT_METRICS_PATH}"
    )


def test_the_metrics_page_is_made_beside_the_event_loop() -> None:
    makers: list[int] = []

    def render() -> bytes:
        makers.append(threading.get_ident())
        return b"page"

    handler = make_handler(EventBus(), metrics=MetricsPage("/metrics", render))
    response = asyncio.run(handler.handle(HttpRequest("GET", "/metrics", "", (), b"", None)))
    assert (response.status, response.body) == (200, b"page")
    assert len(makers) == 1
    assert makers != [threading.get_ident()]


def monitored(settings: Settings, file: Path, *, text: str) -> Settings:
    file.write_text(text)
    return replace(settings, process=ProcessOptions(monitoring_config_file=str(file)))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("prometheus_config { enable: true }", DEFAULT_METRICS_PATH),
        ("prometheus_config { enable: true path: '/metrics' }", "/metrics"),
    ],
)
def test_a_monitoring_file_says_where_metrics_are(
    settings: Settings, tmp_path: Path, text: str, path: str
) -> None:
    answered = answer(monitored(settings, tmp_path / "monitoring.txt", text=text), get(path))
    assert answered.status == 200
    assert answered.body.startswith(b"# TYPE ")


@pytest.mark.parametrize("text", ["", "prometheus_config { enable: false path: '/metrics' }"])
@pytest.mark.parametrize("path", [DEFAULT_METRICS_PATH, "/metrics"])
def test_a_monitoring_file_can_turn_metrics_off(
    settings: Settings, tmp_path: Path, text: str, path: str
) -> None:
    answered = answer(monitored(settings, tmp_path / "monitoring.txt", text=text), get(path))
    assert answered.status == 404


def test_metrics_can_be_off_where_no_file_says_otherwise(settings: Settings) -> None:
    without = replace(settings, process=ProcessOptions(is_metrics_default=False))
    assert answer(without, get(DEFAULT_METRICS_PATH)).status == 404


def test_a_server_with_its_models_is_alive_and_ready(settings: Settings) -> None:
    alive, ready = ask(settings, get("/healthz"), get("/readyz"))
    assert (alive.status, alive.json) == (200, {"status": "alive"})
    assert (ready.status, ready.json) == (200, {"status": "ready"})


def test_a_server_without_a_model_is_alive_and_says_what_it_lacks(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=3, load_error="no variables")
    alive, ready = ask(single_model(tmp_path / "m"), get("/healthz"), get("/readyz"))
    assert alive.status == 200
    assert ready.status == 503
    assert ready.json == {
        "status": "not ready",
        "unavailable": {"m": "{name: m version: 3} due to error: DATA_LOSS: no variables"},
    }


def test_a_server_that_drains_is_alive_and_not_ready(settings: Settings) -> None:
    async def run() -> list[Answer]:
        async with running(settings) as server:
            server.gate.close()
            return [
                await exchange(server.application, request=get(path))
                for path in ("/healthz", "/readyz", "/v1/models/m")
            ]

    alive, ready, status = asyncio.run(run())
    assert alive.status == 200
    assert (ready.status, ready.json) == (503, {"status": "shutting down"})
    assert status.status == 200


def make_handler(events: EventBus, *, metrics: MetricsPage | None = None) -> RestHandler:
    """A handler whose services are missing."""
    return RestHandler(
        None,  # type: ignore[arg-type]
        models=None,  # type: ignore[arg-type]
        gate=RequestGate(),
        events=events,
        clock=JumpClock(),
        surface=RestSurface(RestOptions(), metrics),
    )


def handle_with_a_bug(request: HttpRequest, *, on_event: Callable[[RequestEnded], None]) -> str:
    """The error text of a handler whose services are missing."""
    events = EventBus()
    events.subscribe_requests(on_event)
    response = asyncio.run(make_handler(events).handle(request))
    assert response.status == 500
    return response.body.decode()


def test_a_bug_is_logged_counted_and_answered_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[RequestEnded] = []
    request = HttpRequest("GET", "/v1/models/m", "", (), b"", None)
    body = handle_with_a_bug(request, on_event=seen.append)
    assert body == '{\n    "error": "The server met a bug; its log has the details"\n}'
    assert "A request met a bug: GET /v1/models/m" in caplog.text
    assert seen == [RequestEnded("m", None, "", "rest", Code.INTERNAL, 0.0)]
