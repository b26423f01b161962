"""Spans as a collector gets them, over OpenTelemetry's two protocols."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
import tensorflow as tf
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse

from asgi_exchange import exchange, post
from aspira.contracts.errors import Code, InvalidArgument
from aspira.contracts.events import EventBus, GenerationEnded
from aspira.contracts.generation import GenerateRequest, RequestOrigin
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.observability.tracing import make_tracer
from grpc_exchange import call_request, read_result
from language_toys import serving_language_model

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"

Exports = list[Any]


@contextmanager
def http_collector(exports: Exports) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            exports.append(trace_service_pb2.ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def grpc_collector(exports: Exports) -> Iterator[str]:
    class Servicer(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
        def Export(self, request: Any, _: Any) -> Any:  # noqa: N802
            exports.append(request)
            return trace_service_pb2.ExportTraceServiceResponse()

    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Servicer(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


COLLECTORS = {"http/protobuf": http_collector, "grpc": grpc_collector}


def spans_of(exports: Exports) -> list[Any]:
    return [
        span
        for export in exports
        for resource in export.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def attributes_of(attributes: Any) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        kind = value.WhichOneof("value")
        found = getattr(value, kind)
        return [plain(one) for one in found.values] if kind == "array_value" else found

    return {attribute.key: plain(attribute.value) for attribute in attributes}


@pytest.mark.parametrize("protocol", COLLECTORS)
def test_each_generation_is_a_span_in_its_clients_trace(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports: Exports = []
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.75,
        "seed": 3,
        "stop": ["never said"],
        "ignore_eos": True,
    }

    async def run() -> None:
        async with serving_language_model(tmp_path / "m") as server:
            headers = {"traceparent": TRACEPARENT, "x-request-id": "my-request"}
            request = post("/v1/chat/completions", body=body, headers=headers)
            assert (await exchange(server.application, request=request)).status == 200
            stranger = post("/v1/completions", body={"model": "m", "prompt": "x", "max_tokens": 1})
            assert (await exchange(server.application, request=stranger)).status == 200
        await server.close()

    with COLLECTORS[protocol](exports) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        asyncio.run(run())
    chat, completion = sorted(spans_of(exports), key=lambda span: span.name)
    assert (chat.name, completion.name) == ("chat m", "text_completion m")
    assert (chat.trace_id.hex(), chat.parent_span_id.hex()) == (TRACE_ID, PARENT_ID)
    assert completion.trace_id.hex() != TRACE_ID
    assert completion.parent_span_id == b""
    found = attributes_of(chat.attributes)
    latencies = {name for name in found if name.startswith("gen_ai.latency.")}
    assert {name: found[name] for name in found.keys() - latencies} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "aspira",
        "gen_ai.request.model": "m",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.75,
        "gen_ai.request.frequency_penalty": 0.0,
        "gen_ai.request.presence_penalty": 0.0,
        "gen_ai.request.seed": 3,
        "gen_ai.request.choice.count": 1,
        "gen_ai.request.stop_sequences": ["never said"],
        "gen_ai.response.id": "my-request",
        "gen_ai.response.model": "m@1",
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.output_tokens": 9,
        "gen_ai.usage.cache_read.input_tokens": 0,
    }
    (first,) = chat.events
    assert first.name == "first_token"
    assert chat.start_time_unix_nano <= first.time_unix_nano <= chat.end_time_unix_nano
    resource = attributes_of(exports[0].resource_spans[0].resource.attributes)
    assert resource["service.name"] == "aspira"


def text_request() -> PredictRequest:
    request = PredictRequest()
    request.model_spec.name = "m"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto("hi"))
    request.inputs["max_tokens"].CopyFrom(tf.make_tensor_proto(3, dtype=tf.int32))
    return request


def test_a_grpc_call_is_in_its_clients_trace_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports: Exports = []
    path = "/tensorflow.serving.PredictionService/PredictStreamed"

    async def run() -> None:
        async with serving_language_model(tmp_path / "m") as server:
            headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=7"}
            request = call_request(path, text_request(), headers=headers)
            result = read_result(
                await exchange(server.application, request=request), answer_class=PredictResponse
            )
            assert result.code is Code.OK
        await server.close()

    with http_collector(exports) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        asyncio.run(run())
    (span,) = spans_of(exports)
    assert (span.name, span.trace_state) == ("text_completion m", "vendor=7")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE_ID, PARENT_ID)


def ended(outcome: str, *, origin: RequestOrigin | None = None) -> GenerationEnded:
    servable_id = ServableId(ModelName("m"), Version(1))
    times = (None, None, None, 0.5)
    request = GenerateRequest((1,), 0.0, origin=origin or RequestOrigin())
    return GenerationEnded(servable_id, outcome, 7, 0, 0, 1, 16, *times, request)


@pytest.mark.parametrize(
    ("outcome", "is_error"), [("unavailable", True), ("cancelled", False), ("stop", False)]
)
def test_what_fails_is_an_error_and_what_its_client_left_is_none(
    outcome: str, is_error: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports: Exports = []
    with http_collector(exports) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "my-server")
        events = EventBus()
        tracer = make_tracer(events)
        assert tracer is not None
        events.publish_generation(ended(outcome))
        tracer.flush(10)
    (span,) = spans_of(exports)
    assert (span.status.code == span.status.STATUS_CODE_ERROR) == is_error
    assert attributes_of(span.attributes).get("error.type") == (
        None if outcome == "stop" else outcome
    )
    assert list(span.events) == []
    resource = attributes_of(exports[0].resource_spans[0].resource.attributes)
    assert resource["service.name"] == "my-server"


@pytest.mark.parametrize(
    ("traceparent", "tracestate"),
    [
        ("not one", ""),
        (TRACEPARENT + "0" * 4096, ""),
        (TRACEPARENT, "not one"),
        (TRACEPARENT, "a=" + "1" * 8192),
        (TRACEPARENT, ",".join(f"k{index}=1" for index in range(40))),
    ],
)
def test_headers_that_are_none_write_no_lines(
    traceparent: str,
    tracestate: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    exports: Exports = []
    origin = RequestOrigin("chat", "", traceparent, tracestate)
    with http_collector(exports) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        events = EventBus()
        tracer = make_tracer(events)
        assert tracer is not None
        events.publish_generation(ended("stop", origin=origin))
        tracer.flush(10)
    assert spans_of(exports)[0].trace_state == ""
    assert caplog.messages == []


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://there:4318"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://there:4318"},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://there:4318"},
    ],
)
def test_nothing_is_set_up_unless_it_is_asked_for(environment: dict[str, str]) -> None:
    assert make_tracer(EventBus(), environment=environment) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")],
)
def test_what_is_not_there_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} is {value}"):
        make_tracer(
            EventBus(),
            environment={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://there:4318", name: value},
        )


def test_without_the_packages_the_server_says_so_and_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert make_tracer(EventBus(), environment={"OTEL_TRACES_EXPORTER": "otlp"}) is None
    assert "install aspira[otel]" in caplog.text
