"""A version is loaded warm, within the memory budget, and gives all back."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from aspira.contracts.clock import SystemClock
from aspira.contracts.errors import (
    InvalidArgument,
    ResourceExhausted,
    ServingError,
    Unavailable,
)
from aspira.contracts.events import EngineEnded, EngineStarted, EventBus, GenerationEvent
from aspira.contracts.generation import GenerateRequest
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.contracts.servable import Loader, Servable, Served
from aspira.llm.cache_budget import CacheBudget
from aspira.llm.choice import LanguageModels
from aspira.llm.loader import LanguageModelContext, LanguageModelLoader
from aspira.llm.model_files import OPTIONS_FILE
from aspira.llm.model_source import SourceOptions, find_language_model
from aspira.llm.options import EngineOptions
from aspira.llm.runner import Runner, StepBatch
from aspira.llm.servable import LanguageModel
from language_toys import ToySource

NAME = ModelName("m")
SERVABLE_ID = ServableId(NAME, Version(1))


def make_loader(
    source: ToySource, *, budget: CacheBudget | None = None, events: EventBus | None = None
) -> LanguageModelLoader:
    context = LanguageModelContext(SystemClock(), events or EventBus(), budget or CacheBudget(0))
    return LanguageModelLoader(
        source, servable_id=SERVABLE_ID, context=context, queued=refuse_predictions
    )


def refuse_predictions(_: Loader[Servable]) -> Loader[Served]:
    raise AssertionError("toys answer no plain predictions")


def test_a_version_is_warm_before_it_is_ready_and_that_is_no_traffic() -> None:
    steps: list[StepBatch] = []
    told: list[GenerationEvent] = []
    events = EventBus()
    events.subscribe_generations(told.append)
    model = make_loader(ToySource(before_step=steps.append), events=events).load()
    try:
        assert max(len(step.tokens) for step in steps) > 1
        assert min(len(step.tokens) for step in steps) == 1
        assert [type(event) for event in told] == [EngineStarted]
        assert model.statistics.requests_accepted == model.statistics.generation_tokens == 0
    finally:
        model.unload()
    started, ended = told
    assert isinstance(ended, EngineEnded)
    assert ended == EngineEnded(*started)
    assert ended.read().requests_accepted == 0


def test_a_step_that_hangs_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aspira.llm.engine._LAST_STEP_S", 0.0)
    is_loaded, is_reached, may_end = threading.Event(), threading.Event(), threading.Event()

    def hang(_: StepBatch) -> None:
        if is_loaded.is_set():
            is_reached.set()
            assert may_end.wait(60)

    async def leave_amid_a_step(model: LanguageModel) -> None:
        stream = model.submit(GenerateRequest((1,), 0.0, 5))
        reader = asyncio.ensure_future(anext(stream))
        assert await asyncio.to_thread(is_reached.wait, 60)
        await asyncio.to_thread(model.unload)
        with pytest.raises(Unavailable, match="being unloaded"):
            await reader

    budget = CacheBudget(1024)
    model = make_loader(ToySource(before_step=hang), budget=budget).load()
    is_loaded.set()
    asyncio.run(leave_amid_a_step(model))
    with pytest.raises(ResourceExhausted):
        budget.take(16, model_name=NAME)
    may_end.set()


def test_a_version_that_hangs_as_it_warms_up_keeps_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aspira.llm.engine._LAST_STEP_S", 0.0)
    may_end = threading.Event()

    def hang(_: StepBatch) -> None:
        assert may_end.wait(60)

    options = SourceOptions(engine=EngineOptions(stall_timeout_s=0.05))
    budget = CacheBudget(1024)
    with pytest.raises(Unavailable, match="hang"):
        make_loader(ToySource(options, before_step=hang), budget=budget).load()
    with pytest.raises(ResourceExhausted):
        budget.take(16, model_name=SERVABLE_ID.name)
    may_end.set()


def test_a_model_that_cannot_answer_does_not_load() -> None:
    def fail(_: StepBatch) -> None:
        raise InvalidArgument("no good")

    budget = CacheBudget(1024)
    with pytest.raises(ServingError, match="no good"):
        make_loader(ToySource(before_step=fail), budget=budget).load()
    assert budget.take(1024, model_name=NAME) == 1024


def test_caches_share_a_budget() -> None:
    sizes: list[int] = []

    class Source(ToySource):
        def make_runner(self, *, cache_mib: int) -> Runner:
            sizes.append(cache_mib)
            return super().make_runner(cache_mib=cache_mib)

    budget = CacheBudget(1500)
    first, second = (make_loader(Source(), budget=budget).load() for _ in range(2))
    with pytest.raises(ResourceExhausted, match="--kv_cache_budget_mib"):
        make_loader(Source(), budget=budget).load()
    first.unload()
    make_loader(Source(), budget=budget).load().unload()
    second.unload()
    assert sizes == [1024, 476, 1024]
    assert budget.take(1500, model_name=NAME) == 1500


def test_only_language_models_load_where_only_they_may(tmp_path: Path) -> None:
    context = LanguageModelContext(SystemClock(), EventBus(), CacheBudget(0))
    models = LanguageModels(
        lambda _: None, context=context, must_generate=lambda name: name == "must"
    )

    class Otherwise:
        def load(self) -> Any:
            return "another model"

    def load(name: str) -> Any:
        servable_id = ServableId(ModelName(name), Version(1))
        return models.make_loader(
            servable_id, path=tmp_path, otherwise=Otherwise(), queued=refuse_predictions
        ).load()

    assert load("may") == "another model"
    with pytest.raises(InvalidArgument, match=f"language_model, and {tmp_path} holds none"):
        load("must")


def test_without_a_budget_everybody_gets_what_they_want() -> None:
    budget = CacheBudget(0)
    assert [budget.take(5000, model_name=NAME) for _ in range(3)] == [5000] * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[motor]\n", r"no table \[motor\]"),
        ("[engine]\nmax_sequences = 0\n", "max_step_tokens"),
        ("[engine]\nstall_timeout_s = 0.0\n", "stall_timeout_s must be above 0"),
        ("[engine]\nstall_timeout_s = nan\n", "stall_timeout_s must be above 0"),
        ("[engine]\nmax_queued_requests = 0\n", "max_queued_requests must be above 0"),
        ("[engine]\nreserved_output_tokens = -1\n", "reserved_output_tokens must be 0 or more"),
        ("[limits]\nqueue_s = -1.0\n", "cannot be less than 0"),
        ("[limits]\nqueue_s = 'x'\n", "not of type float"),
    ],
)
def test_options_that_are_wrong_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "model.gguf").touch()
    (tmp_path / OPTIONS_FILE).write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        find_language_model(tmp_path)


def test_options_reach_their_owners(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    text = "[decoder]\ncache_mib = 7\n[engine]\nmax_sequences = 3\n[limits]\ngap_s = 0\n"
    (tmp_path / OPTIONS_FILE).write_text(text)
    source: Any = find_language_model(tmp_path)
    assert source.options.decoder.cache_mib == 7
    assert source.options.engine.max_sequences == 3
    assert source.options.limits.as_time_limits().gap_s is None
    assert source.options.limits.as_time_limits().queue_s == 300.0


def test_a_directory_of_another_kind_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").touch()
    assert find_language_model(tmp_path) is None


def swap_problems(caplog: pytest.LogCaptureFixture, *, budget_mib: int, names: list[str]) -> Any:
    """What is told while versions load, each beside those before it, by the model's name."""
    budget, models = CacheBudget(budget_mib), []
    for name in names:
        context = LanguageModelContext(SystemClock(), EventBus(), budget)
        servable_id = ServableId(ModelName(name), Version(len(models) + 1))
        loader = LanguageModelLoader(
            ToySource(), servable_id=servable_id, context=context, queued=refuse_predictions
        )
        models.append(loader.load())
    for model in models:
        model.unload()
    return [record.getMessage() for record in caplog.records]


def test_a_model_that_could_not_be_replaced_is_told_of_at_its_load(
    caplog: pytest.LogCaptureFixture,
) -> None:
    [told] = swap_problems(caplog, budget_mib=2048, names=["a", "b"])
    assert told == (
        "Servable {name: b version: 2} is loaded, but its next version could not load: KV caches "
        "use 2048 of the 2048 MiB that --kv_cache_budget_mib gives, and versions load beside those "
        "they replace. Make it 3072, or lower cache_mib in models' aspira_llm.toml"
    )


def test_one_whose_next_version_would_have_a_smaller_cache_is_told_of_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    [told] = swap_problems(caplog, budget_mib=1500, names=["a"])
    assert "its next version would get 476 MiB, not 1024: KV caches use 1024 of the 1500" in told


@pytest.mark.parametrize("budget_mib", [0, 2048])
def test_a_version_that_replaces_another_is_no_problem(
    budget_mib: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert swap_problems(caplog, budget_mib=budget_mib, names=["a", "a"]) == []
