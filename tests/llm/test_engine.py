"""The engine with its thread, read from an event loop."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from aspira.contracts.clock import SystemClock
from aspira.contracts.errors import (
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
)
from aspira.contracts.generation import StopRules, TimeLimits
from aspira.llm.engine import Engine
from aspira.llm.runner import RunnerLost, StepBatch
from aspira.testing.toy_decoder import ToyDecoder, continuation
from aspira.testing.toy_tokenizer import ByteTokenizer
from generation_toys import OPTIONS, collect, make_request, running_engine

PROMPT = [3, 1, 4, 1, 5]
LONG = 200


class Gate:
    """Holds a runner's steps until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.reached = threading.Event()

    def __call__(self, _: StepBatch) -> None:
        self.reached.set()
        assert self.opened.wait(timeout=60)

    async def wait_until_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, 60)


def expected(prompt: list[int], num_tokens: int = 8) -> list[int]:
    return continuation(prompt, num_tokens=num_tokens, vocab_size=257)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def test_many_streams_at_once() -> None:
    async def scenario(engine: Engine) -> None:
        prompts = [[i, i + 1, i + 2] for i in range(100)]
        answers = await asyncio.gather(*(collect(engine, make_request(p)) for p in prompts))
        assert [answer[0] for answer in answers] == [expected(prompt) for prompt in prompts]

    with running_engine() as engine:
        asyncio.run(scenario(engine))
        assert engine.statistics.requests_ended == {"length": 100}
        assert engine.find_problem() is None


def test_text_stops_and_finish_reasons_arrive() -> None:
    async def scenario(engine: Engine) -> None:
        text = ByteTokenizer().decode(expected(PROMPT, 12))
        stop = text[4:6]
        async with engine.submit(
            make_request(PROMPT, max_tokens=12, stops=StopRules(strings=(stop,)))
        ) as stream:
            deltas = [delta async for delta in stream]
        assert "".join(delta.text for delta in deltas) == text[: text.index(stop)]
        assert deltas[-1].stopped_by == stop

    with running_engine(vocabulary=ByteTokenizer()) as engine:
        asyncio.run(scenario(engine))


def test_engines_serve_one_loop_after_the_other() -> None:
    with running_engine() as engine:
        for _ in range(3):
            assert asyncio.run(collect(engine, make_request(PROMPT)))[0] == expected(PROMPT)


def test_a_token_is_read_while_the_next_one_is_computed() -> None:
    was_read = threading.Event()
    num_steps = 0

    def wait_for_reader(_: StepBatch) -> None:
        nonlocal num_steps
        num_steps += 1
        assert num_steps == 1 or was_read.wait(timeout=60)

    async def scenario(engine: Engine) -> None:
        stream = engine.submit(make_request(PROMPT))
        assert (await anext(stream)).token_ids == (expected(PROMPT)[0],)
        was_read.set()
        assert [token async for delta in stream for token in delta.token_ids] == expected(PROMPT)[
            1:
        ]

    with running_engine(lambda: ToyDecoder(before_step=wait_for_reader)) as engine:
        asyncio.run(scenario(engine))


def test_closing_a_stream_ends_the_work() -> None:
    is_closed = threading.Event()
    num_steps = 0

    def wait_for_close(_: StepBatch) -> None:
        nonlocal num_steps
        num_steps += 1
        assert num_steps == 1 or is_closed.wait(timeout=60)

    async def scenario(engine: Engine) -> None:
        stream = engine.submit(make_request(PROMPT, max_tokens=LONG))
        await anext(stream)
        await stream.aclose()
        is_closed.set()
        await until(lambda: engine.statistics.requests_ended == {"cancelled": 1})
        assert engine.statistics.kv_cache_usage == 0
        assert await collect(engine, make_request(PROMPT)) == {0: expected(PROMPT)}

    with running_engine(lambda: ToyDecoder(before_step=wait_for_close)) as engine:
        asyncio.run(scenario(engine))


def test_a_cancelled_reader_ends_the_work() -> None:
    gate = Gate()

    async def scenario(engine: Engine) -> None:
        reader = asyncio.create_task(collect(engine, make_request(PROMPT, max_tokens=LONG)))
        await gate.wait_until_reached()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        gate.opened.set()
        await until(lambda: engine.statistics.requests_ended == {"cancelled": 1})

    with running_engine(lambda: ToyDecoder(before_step=gate)) as engine:
        asyncio.run(scenario(engine))


def test_a_loop_that_closed_under_its_streams_costs_nothing() -> None:
    gate = Gate()

    async def leave(engine: Engine) -> None:
        engine.submit(make_request(PROMPT, max_tokens=LONG))
        await gate.wait_until_reached()

    async def scenario(engine: Engine) -> None:
        assert await collect(engine, make_request(PROMPT)) == {0: expected(PROMPT)}
        await until(lambda: engine.statistics.requests_ended == {"cancelled": 1, "length": 1})

    with running_engine(lambda: ToyDecoder(before_step=gate)) as engine:
        asyncio.run(leave(engine))
        gate.opened.set()
        asyncio.run(scenario(engine))


def test_a_slow_reader_holds_nobody_up() -> None:
    async def scenario(engine: Engine) -> None:
        slow = engine.submit(make_request(PROMPT, max_tokens=LONG))
        for _ in range(20):
            assert await collect(engine, make_request([9])) == {0: expected([9])}
        await until(lambda: slow.is_ended)
        deltas = [delta async for delta in slow]
        assert len(deltas) == 1
        assert list(deltas[0].token_ids) == expected(PROMPT, LONG)

    with running_engine() as engine:
        asyncio.run(scenario(engine))


def test_what_can_never_be_served_reaches_no_queue() -> None:
    async def scenario(engine: Engine) -> None:
        with pytest.raises(InvalidArgument, match="maximum context length is 256"):
            engine.submit(make_request([1] * 257))
        assert engine.statistics.requests_accepted == 0

    with running_engine() as engine:
        asyncio.run(scenario(engine))


def test_a_small_cache_limits_the_context() -> None:
    async def scenario(engine: Engine) -> None:
        with pytest.raises(InvalidArgument, match="maximum context length is 32"):
            engine.submit(make_request([1] * 33))
        assert len((await collect(engine, make_request([1] * 8, max_tokens=24)))[0]) == 24

    with running_engine(lambda: ToyDecoder(num_blocks=8)) as engine:
        asyncio.run(scenario(engine))


def test_a_full_queue_refuses_and_counts() -> None:
    gate = Gate()

    async def scenario(engine: Engine) -> None:
        first = asyncio.create_task(collect(engine, make_request(PROMPT)))
        await gate.wait_until_reached()
        second = asyncio.create_task(collect(engine, make_request(PROMPT)))
        await asyncio.sleep(0)
        with pytest.raises(ResourceExhausted, match="1 requests with 5 tokens") as caught:
            engine.submit(make_request(PROMPT))
        assert caught.value.retry_after_s is not None
        gate.opened.set()
        assert await first == await second == {0: expected(PROMPT)}
        assert engine.statistics.admission_rejections == 1

    options = replace(OPTIONS, max_queued_requests=1)
    with running_engine(lambda: ToyDecoder(before_step=gate), options=options) as engine:
        asyncio.run(scenario(engine))


def test_deadlines_end_streams_in_band() -> None:
    async def scenario(engine: Engine) -> None:
        now = SystemClock().now()
        late = make_request(PROMPT, arrival=now - 5, times=TimeLimits(queue_s=4))
        with pytest.raises(DeadlineExceeded, match="in the queue for 4 s"):
            await collect(engine, late)

    with running_engine() as engine:
        asyncio.run(scenario(engine))


def test_a_lost_runner_ends_its_streams_and_the_service_comes_back() -> None:
    submitted, died = threading.Event(), threading.Event()

    def die(batch: StepBatch) -> None:
        assert submitted.wait(timeout=60)
        if batch.past_lens.min() > 1 and not died.is_set():
            died.set()
            raise RunnerLost("the process was killed")

    async def scenario(engine: Engine) -> None:
        streams = [engine.submit(make_request([i], max_tokens=LONG)) for i in range(8)]
        submitted.set()

        async def read(index: int) -> None:
            async for _ in streams[index]:
                pass

        outcomes = await asyncio.gather(*map(read, range(8)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} <= {Unavailable, type(None)}
        assert Unavailable in {type(outcome) for outcome in outcomes}
        assert await collect(engine, make_request(PROMPT)) == {0: expected(PROMPT)}
        assert engine.find_problem() is None

    with running_engine(lambda: ToyDecoder(before_step=die)) as engine:
        asyncio.run(scenario(engine))


@pytest.mark.parametrize(
    ("failure", "error"),
    [(RunnerLost("never up"), Unavailable), (KeyboardInterrupt("defect"), Internal)],
)
def test_an_engine_that_cannot_go_on_ends_every_stream_and_takes_no_more(
    failure: BaseException, error: type[Exception]
) -> None:
    gate = Gate()

    def fail(batch: StepBatch) -> None:
        gate(batch)
        raise failure

    async def scenario(engine: Engine) -> None:
        options = {"return_exceptions": True}
        first = asyncio.create_task(collect(engine, make_request(PROMPT)))
        await gate.wait_until_reached()
        queued = [asyncio.create_task(collect(engine, make_request(PROMPT))) for _ in range(3)]
        await asyncio.sleep(0)
        gate.opened.set()
        outcomes = await asyncio.gather(first, *queued, **options)
        assert {type(outcome) for outcome in outcomes} <= {Unavailable, error}
        await until(lambda: engine.find_problem() is not None)
        assert engine.is_lost
        with pytest.raises(error, match="engine has failed"):
            engine.submit(make_request(PROMPT))

    with running_engine(lambda: ToyDecoder(before_step=fail)) as engine:
        asyncio.run(scenario(engine))
        statistics = engine.statistics
        assert statistics.requests_accepted == sum(statistics.requests_ended.values()) == 4


@pytest.mark.parametrize("does_step_fail", [False, True])
def test_a_command_with_a_defect_keeps_no_other_from_being_obeyed(does_step_fail: bool) -> None:
    gate = Gate()

    def fail(batch: StepBatch) -> None:
        gate(batch)
        if does_step_fail:
            raise KeyboardInterrupt("defect")

    async def scenario(engine: Engine) -> None:
        first = asyncio.create_task(collect(engine, make_request(PROMPT, max_tokens=LONG)))
        await gate.wait_until_reached()
        engine._inbox.post(lambda: 1 // 0)
        others = [asyncio.create_task(collect(engine, make_request(PROMPT))) for _ in range(3)]
        await asyncio.sleep(0)
        gate.opened.set()
        outcomes = await asyncio.gather(first, *others, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Internal}

    with running_engine(lambda: ToyDecoder(before_step=fail)) as engine:
        asyncio.run(scenario(engine))
        engine.close(drain_s=0)
        assert engine.statistics.requests_ended == {"internal": 4}
        assert engine.statistics.requests_accepted == 4


def test_a_defect_in_ending_streams_does_not_keep_them_from_their_end() -> None:
    def publish(_: object) -> None:
        raise ValueError("a subscriber has a defect")

    async def scenario(engine: Engine) -> None:
        requests = [collect(engine, make_request([i], max_tokens=LONG)) for i in range(3)]
        outcomes = await asyncio.gather(*requests, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} <= {Internal, Unavailable}

    with running_engine(publish=publish) as engine:
        asyncio.run(scenario(engine))


def test_a_step_that_hangs_ends_streams_and_readiness_and_is_forgiven() -> None:
    gate = Gate()

    async def scenario(engine: Engine) -> None:
        with pytest.raises(Unavailable, match=r"made no step for 0\.05 s"):
            await collect(engine, make_request(PROMPT))
        assert engine.find_problem() is not None
        assert engine.is_lost
        with pytest.raises(Unavailable, match="hangs"):
            engine.submit(make_request(PROMPT))
        gate.opened.set()
        await until(lambda: engine.find_problem() is None)
        assert not engine.is_lost
        assert await collect(engine, make_request(PROMPT)) == {0: expected(PROMPT)}

    options = replace(OPTIONS, stall_timeout_s=0.05)
    with running_engine(lambda: ToyDecoder(before_step=gate), options=options) as engine:
        asyncio.run(scenario(engine))


def test_streams_end_at_once_when_the_runner_is_lost_however_long_another_one_takes() -> None:
    may_make = threading.Event()
    is_gone = threading.Event()
    made: list[ToyDecoder] = []

    def lose(batch: StepBatch) -> None:
        if batch.past_lens.min() > 10 and not is_gone.is_set():
            is_gone.set()
        if is_gone.is_set() and len(made) == 1:
            raise ValueError("the device is gone")

    def make_runner() -> ToyDecoder:
        if made:
            assert may_make.wait(60)
        made.append(ToyDecoder(before_step=lose))
        return made[-1]

    async def scenario(engine: Engine) -> None:
        with pytest.raises(Unavailable, match="runner was lost; retry the request"):
            await collect(engine, make_request(PROMPT, max_tokens=LONG))
        problem = engine.find_problem()
        assert problem is not None
        assert "another one is being made" in problem.message
        assert not engine.is_lost
        with pytest.raises(Unavailable, match="another one is being made"):
            engine.submit(make_request(PROMPT))
        may_make.set()
        await until(lambda: engine.find_problem() is None)
        assert await collect(engine, make_request(PROMPT)) == {0: expected(PROMPT)}

    with running_engine(make_runner) as engine:
        asyncio.run(scenario(engine))


def test_closing_tells_whether_the_memory_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aspira.llm.engine._LAST_STEP_S", 0.0)
    gate = Gate()

    async def scenario(engine: Engine) -> None:
        reader = asyncio.create_task(collect(engine, make_request(PROMPT)))
        await gate.wait_until_reached()
        assert not await asyncio.to_thread(engine.close, drain_s=0)
        with pytest.raises(Unavailable, match="being unloaded"):
            await reader
        gate.opened.set()

    with running_engine(lambda: ToyDecoder(before_step=gate)) as engine:
        asyncio.run(scenario(engine))
        monkeypatch.undo()
        assert engine.close(drain_s=0)


def test_closing_lets_streams_end_within_the_drain() -> None:
    async def scenario(engine: Engine) -> None:
        reader = asyncio.create_task(collect(engine, make_request(PROMPT, max_tokens=100)))
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(engine.close, drain_s=60))
        assert await reader == {0: expected(PROMPT, 100)}
        await closing
        with pytest.raises(Unavailable, match="being unloaded"):
            engine.submit(make_request(PROMPT))

    with running_engine() as engine:
        asyncio.run(scenario(engine))


def test_closing_ends_with_an_error_what_outlasts_the_drain() -> None:
    gate = Gate()

    async def scenario(engine: Engine) -> None:
        reader = asyncio.create_task(collect(engine, make_request(PROMPT, max_tokens=LONG)))
        await gate.wait_until_reached()
        closing = asyncio.create_task(asyncio.to_thread(engine.close, drain_s=0))
        await until(lambda: engine.find_problem() is not None)
        gate.opened.set()
        with pytest.raises(Unavailable, match="unloaded; retry"):
            await reader
        await closing

    runner = ToyDecoder(before_step=gate)
    with running_engine(lambda: runner) as engine:
        asyncio.run(scenario(engine))
    assert runner.is_closed


def test_closing_twice_is_harmless() -> None:
    with running_engine() as engine:
        engine.close(drain_s=0)
        engine.close(drain_s=0)
