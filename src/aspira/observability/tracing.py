"""Traces: a span for each generation, by OpenTelemetry's conventions for generative AI.

Set up by OpenTelemetry's own environment variables, and nothing without them. What clients wrote
and models answered is never in a trace.
"""

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.events import EventBus, GenerationEnded, GenerationEvent
from aspira.contracts.generation import GenerateRequest

_logger = logging.getLogger(__name__)

_NANOS = 10**9
_FINISHED = ("stop", "length")
_CANCELLED = "cancelled"
_PARSERS = ("opentelemetry.trace.span", "opentelemetry.trace.propagation.tracecontext")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

# The package is an optional one.
Provider = Any


class GenerationTracer:
    """Made by `make_tracer`. Spans are made when requests have ended, on the engine's thread."""

    def __init__(self, provider: Provider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        _quiet_parsers()
        self._provider = provider
        self._tracer = provider.get_tracer("aspira")
        self._propagator = TraceContextTextMapPropagator()

    def on_generation(self, event: GenerationEvent) -> None:
        """Make the span of a request that ended."""
        if not isinstance(event, GenerationEnded):
            return
        from opentelemetry.trace import SpanKind, StatusCode

        origin, name = event.request.origin, event.servable_id.name
        end = time.time_ns()
        start = end - int(event.total_s * _NANOS)
        span = self._tracer.start_span(
            f"{origin.operation} {name}",
            # What is no traceparent begins a trace of its own.
            context=self._propagator.extract(
                {"traceparent": origin.traceparent, "tracestate": origin.tracestate}
            ),
            kind=SpanKind.SERVER,
            attributes=_attributes_of(event),
            start_time=start,
        )
        first_token_s = _first_token_s(event)
        if first_token_s is not None:
            span.add_event("first_token", timestamp=start + int(first_token_s * _NANOS))
        if event.outcome not in (*_FINISHED, _CANCELLED):
            span.set_status(StatusCode.ERROR, event.outcome)
        span.end(end)

    def flush(self, timeout_s: float) -> None:
        """Send what waits to be sent. Blocks for so long at most."""
        self._provider.force_flush(int(timeout_s * 1000))


def _quiet_parsers() -> None:
    """They log each header that they do not take; clients could fill the log with that."""
    for name in _PARSERS:
        logging.getLogger(name).setLevel(logging.ERROR)


def make_tracer(
    events: EventBus, *, environment: Mapping[str, str] = os.environ
) -> GenerationTracer | None:
    """A tracer of these events, as the `OTEL_*` variables say; None if they ask for no traces.

    Raises:
        InvalidArgument: they ask for something that is not there.
    """
    tracer = _try_make_tracer(environment)
    if tracer is not None:
        events.subscribe_generations(tracer.on_generation)
    return tracer


def _try_make_tracer(environment: Mapping[str, str]) -> GenerationTracer | None:
    if not _is_wanted(environment):
        return None
    try:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = _make_exporter(environment)
    except ImportError:
        _logger.warning(
            "OTEL_* variables ask for traces, and there will be none: install aspira[otel]"
        )
        return None
    is_named = "OTEL_SERVICE_NAME" in environment or "service.name=" in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if is_named else {SERVICE_NAME: "aspira"})
    # The server decides when it ends; the process must not wait for a collector that is gone.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return GenerationTracer(provider)


def _is_wanted(environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if exporter not in ("", "none", "otlp"):
        raise InvalidArgument(f"OTEL_TRACES_EXPORTER is {exporter}; it can be otlp or none here")
    return exporter == "otlp" or (exporter == "" and any(map(environment.get, _ENDPOINTS)))


def _make_exporter(environment: Mapping[str, str]) -> Any:
    protocol = environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    elif protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    else:
        raise InvalidArgument(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}; it can be http/protobuf or grpc here"
        )
    return OTLPSpanExporter()


def _first_token_s(event: GenerationEnded) -> float | None:
    if event.queue_s is None or event.prefill_s is None:
        return None
    return event.queue_s + event.prefill_s


def _attributes_of(event: GenerationEnded) -> dict[str, Any]:
    """By the names of the conventions; those of times are vLLM's."""
    origin = event.request.origin
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": origin.operation,
        "gen_ai.provider.name": "aspira",
        "gen_ai.request.model": event.servable_id.name,
        "gen_ai.response.model": f"{event.servable_id.name}@{event.servable_id.version}",
        "gen_ai.response.id": origin.request_id,
        "gen_ai.usage.input_tokens": event.prompt_tokens,
        "gen_ai.usage.output_tokens": event.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": event.cached_tokens,
        "gen_ai.latency.e2e": event.total_s,
        "gen_ai.latency.time_in_queue": event.queue_s,
        "gen_ai.latency.time_in_model_prefill": event.prefill_s,
        "gen_ai.latency.time_in_model_decode": event.decode_s,
        "gen_ai.latency.time_to_first_token": _first_token_s(event),
        **_request_attributes(event.request, max_tokens=event.max_tokens),
    }
    if event.outcome in _FINISHED:
        attributes["gen_ai.response.finish_reasons"] = (event.outcome,)
    else:
        attributes["error.type"] = event.outcome
    return {name: value for name, value in attributes.items() if value not in (None, "", ())}


def _request_attributes(request: GenerateRequest, *, max_tokens: int) -> dict[str, Any]:
    sampling = request.sampling
    return {
        "gen_ai.request.max_tokens": max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k or None,
        "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
        "gen_ai.request.presence_penalty": sampling.presence_penalty,
        "gen_ai.request.seed": sampling.seed,
        "gen_ai.request.choice.count": request.num_choices,
        "gen_ai.request.stop_sequences": request.stops.strings,
    }
