"""What token engines do, as vLLM's vocabulary has it; the books balance after real traffic."""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

from asgi_exchange import ScriptedClient, exchange, get, post
from aspira.contracts.events import (
    EngineEnded,
    EngineStarted,
    GenerationEnded,
    GenerationStepEnded,
)
from aspira.contracts.generation import GenerateRequest, GenerationStatistics
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.llm.model_source import SourceOptions
from aspira.llm.options import EngineOptions
from aspira.observability.exposition import render
from aspira.observability.generation_metrics import GenerationMetrics
from language_toys import ToySource, serving_language_model, until

SERVABLE_ID = ServableId(ModelName("m"), Version(3))
LABELS = 'model_name="m",version="3"'


def ended(outcome: str, **changes: Any) -> GenerationEnded:
    event = GenerationEnded(
        SERVABLE_ID, outcome, 7, 5, 2, 1, 16, 0.02, 0.03, 0.5, 0.6, GenerateRequest((1,), 0.0)
    )
    return event._replace(**changes)


def test_steps_and_ends_become_series() -> None:
    metrics = GenerationMetrics()
    metrics.count(GenerationStepEnded(SERVABLE_ID, 40, 3, 0.02, (0.05, 0.3), (0.02,)))
    for outcome in ("stop", "length", "cancelled", "deadline_exceeded", "stop"):
        metrics.count(ended(outcome))
    metrics.count(ended("unavailable", queue_s=None, prefill_s=None, decode_s=None))
    page = render(metrics.families).decode().splitlines()
    for line in (
        f"aspira:time_to_first_token_seconds_count{{{LABELS}}} 2",
        f"aspira:inter_token_latency_seconds_sum{{{LABELS}}} 0.02",
        f"aspira:iteration_tokens_total_sum{{{LABELS}}} 40",
        f'aspira:request_success_total{{{LABELS},finished_reason="stop"}} 2',
        f'aspira:request_success_total{{{LABELS},finished_reason="length"}} 1',
        f'aspira:request_success_total{{{LABELS},finished_reason="abort"}} 1',
        f'aspira:request_success_total{{{LABELS},finished_reason="error"}} 2',
        f"aspira:e2e_request_latency_seconds_count{{{LABELS}}} 6",
        f"aspira:request_queue_time_seconds_count{{{LABELS}}} 5",
        f"aspira:request_prompt_tokens_sum{{{LABELS}}} 42",
    ):
        assert line in page


def test_a_version_that_has_ended_is_forgotten() -> None:
    metrics = GenerationMetrics()
    metrics.count(ended("stop"))
    metrics.count(ended("stop", servable_id=ServableId(ModelName("m"), Version(4))))
    metrics.drop("m", version=3)
    page = render(metrics.families).decode()
    assert 'version="3"' not in page
    assert 'version="4"' in page
    metrics.drop("m")
    assert metrics.families == ()


class ToyEngine:
    """Tells what it is set to."""

    def __init__(self, metrics: GenerationMetrics, **statistics: float) -> None:
        self._metrics = metrics
        self.statistics = GenerationStatistics(**statistics)
        metrics.count(EngineStarted(SERVABLE_ID, self._read))

    def _read(self) -> GenerationStatistics:
        return self.statistics

    def end(self) -> None:
        self._metrics.count(EngineEnded(SERVABLE_ID, self._read))


def lines_of(metrics: GenerationMetrics) -> list[str]:
    return render(metrics.families).decode().splitlines()


def test_engines_have_gauges_and_counters() -> None:
    metrics = GenerationMetrics()
    ToyEngine(
        metrics,
        num_requests_running=2,
        num_requests_waiting=1,
        kv_cache_usage=0.25,
        prompt_tokens=900,
    )
    for line in (
        "# TYPE aspira:kv_cache_usage_perc gauge",
        f"aspira:kv_cache_usage_perc{{{LABELS}}} 0.25",
        f"aspira:num_requests_running{{{LABELS}}} 2",
        f"aspira:num_requests_waiting{{{LABELS}}} 1",
        f"aspira:prompt_tokens_total{{{LABELS}}} 900",
    ):
        assert line in lines_of(metrics)


def test_totals_do_not_go_back_when_a_version_leaves_and_comes_again() -> None:
    metrics = GenerationMetrics()
    first = ToyEngine(metrics, prompt_tokens=900, num_requests_running=3)
    # Another life of the same version, which overlaps with the first one.
    second = ToyEngine(metrics, prompt_tokens=5, num_requests_running=1)
    assert f"aspira:prompt_tokens_total{{{LABELS}}} 905" in lines_of(metrics)
    assert f"aspira:num_requests_running{{{LABELS}}} 4" in lines_of(metrics)
    first.statistics = GenerationStatistics(prompt_tokens=1000)
    first.end()
    assert f"aspira:prompt_tokens_total{{{LABELS}}} 1005" in lines_of(metrics)
    assert f"aspira:num_requests_running{{{LABELS}}} 1" in lines_of(metrics)
    second.end()
    assert f"aspira:prompt_tokens_total{{{LABELS}}} 1005" in lines_of(metrics)
    assert not [line for line in lines_of(metrics) if "num_requests_running" in line]
    metrics.drop("m", version=3)
    assert metrics.families == ()


def test_the_books_balance(tmp_path: Path) -> None:
    """Finished are those accepted; first tokens are the streams that had a token."""
    source = ToySource(SourceOptions(engine=EngineOptions(watermark=0.0, max_queued_requests=8)))

    async def run() -> str:
        async with serving_language_model(tmp_path / "m", source=source) as server:
            requests = [post("/v1/completions", body=body(number)) for number in range(40)]
            clients = [ScriptedClient(request) for request in requests]
            tasks = [
                asyncio.ensure_future(server.application(r.scope, c.receive, c.send))
                for r, c in zip(requests, clients, strict=True)
            ]
            for client in clients[::5]:
                client.leave()
            await asyncio.gather(*tasks)
            ((_, model),) = server._manager.ready()
            await until(
                lambda: (
                    sum(model.statistics.requests_ended.values())
                    == model.statistics.requests_accepted
                )
            )
            request = get("/monitoring/prometheus/metrics")
            page: str = (await exchange(server.application, request=request)).body.decode()
            return page

    totals: Counter[str] = Counter()
    page = asyncio.run(run())
    for name, value in re.findall(r"^aspira:(\w+)\{[^}]*\} (\S+)$", page, re.MULTILINE):
        totals[name] += float(value)
    accepted = totals["requests_accepted_total"]
    assert accepted + totals["admission_rejections_total"] == 40
    assert accepted > 0
    assert totals["request_success_total"] == accepted
    assert totals["e2e_request_latency_seconds_count"] == accepted
    assert (
        totals["time_to_first_token_seconds_count"] == totals["request_prefill_time_seconds_count"]
    )
    assert totals["request_generation_tokens_sum"] == totals["generation_tokens_total"]
    assert totals["request_prompt_tokens_sum"] >= totals["prompt_tokens_total"]
    assert totals["num_requests_running"] == totals["num_requests_waiting"] == 0
    assert totals["kv_cache_usage_perc"] == 0


def body(number: int) -> dict[str, Any]:
    return {
        "model": "m",
        "prompt": "x" * (1 + number % 7),
        "max_tokens": 1 + number % 11,
        "stream": number % 2 == 0,
        "ignore_eos": True,
    }
