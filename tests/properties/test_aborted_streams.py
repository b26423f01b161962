"""2,000 streams of a running engine, left at random moments: nothing is lost, mixed or kept."""

import asyncio
import random
from collections import Counter

from aspira.contracts.clock import SystemClock
from aspira.contracts.errors import DeadlineExceeded
from aspira.contracts.generation import TimeLimits
from aspira.llm.engine import Engine
from aspira.llm.options import EngineOptions
from aspira.testing.toy_decoder import ToyDecoder, continuation
from generation_toys import collect, make_request, running_engine

NUM_STREAMS = 2000
NUM_CLIENTS = 40
OPTIONS = EngineOptions(max_sequences=8, max_step_tokens=32, reserved_output_tokens=4)


async def read_some(engine: Engine, rng: random.Random) -> str:
    """Ask for something, leave after a few deltas or read to the end; says how it ended."""
    prompt = [rng.randrange(3) for _ in range(rng.randrange(1, 20))]
    request = make_request(
        prompt,
        max_tokens=rng.randrange(1, 30),
        arrival=SystemClock().now(),
        times=TimeLimits(total_s=rng.choice((None, 0.02))),
    )
    num_wanted = rng.choice((0, 1, 3, 100))
    tokens: list[int] = []
    outcome = "left"
    async with engine.submit(request) as stream:
        try:
            while num_wanted:
                delta = await anext(stream)
                tokens += delta.token_ids
                num_wanted -= 1
        except StopAsyncIteration:
            outcome = "read"
        except DeadlineExceeded:
            outcome = "late"
    assert tokens == continuation(prompt, num_tokens=len(tokens), vocab_size=257)
    return outcome


async def scenario(engine: Engine) -> Counter[str]:
    async def be_a_client(seed: int) -> list[str]:
        rng = random.Random(seed)
        return [await read_some(engine, rng) for _ in range(NUM_STREAMS // NUM_CLIENTS)]

    clients = await asyncio.gather(*map(be_a_client, range(NUM_CLIENTS)))
    while engine.statistics.requests_accepted > sum(engine.statistics.requests_ended.values()):
        await asyncio.sleep(0.001)
    assert await collect(engine, make_request([1])) == {
        0: continuation([1], num_tokens=8, vocab_size=257)
    }
    return Counter(outcome for client in clients for outcome in client)


def test_nothing_is_left_behind() -> None:
    with running_engine(lambda: ToyDecoder(num_blocks=20), options=OPTIONS) as engine:
        outcomes = asyncio.run(scenario(engine))
        statistics = engine.statistics
        engine.close(drain_s=0)
        blocks = engine._steps.scheduler.blocks
        blocks.check()
        assert blocks.num_available == blocks.num_blocks
    assert set(outcomes) == {"left", "read", "late"}
    assert statistics.requests_accepted == NUM_STREAMS + 1
    assert sum(statistics.requests_ended.values()) == NUM_STREAMS + 1
    assert statistics.kv_cache_usage == 0
