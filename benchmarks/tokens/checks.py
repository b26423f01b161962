"""What is measured of Aspira alone: its prefix cache, and long prompts beside other streams."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from servers import RunningServer
from tokens.load import Load
from tokens.plan import ONE, THIRTY_TWO, BareLoop, Server, Workload, make_body
from tokens.prompts import PromptMaker
from tokens.records import Checks
from tokens.session import PATH, Session, apply_load, run_waves
from tokens.timelines import Timeline, gaps_within, latencies

_NUM_TOKENS, _NUM_SHARED, _NUM_ASKED = 1000, 900, 6
_NUM_STREAMS, _ARRIVES_AT_S = 8, 1.0
_SHARED_SEED, _ARRIVAL_SEED = 10_001, 10_002


@dataclass(frozen=True, slots=True)
class CheckSizes:
    """How much is asked."""

    num_long_tokens: int = 8100
    """Of the prompt that arrives beside others; the model's context has 8,192."""

    num_cache_pairs: int = 3
    """Loads with the prefix cache on and off."""


def check_server(
    checks: Checks,
    *,
    session: Session,
    server: Server,
    running: RunningServer,
    sizes: CheckSizes,
) -> Checks:
    """Those of a server that runs.

    Raises:
        NothingAnsweredError: it does not answer.
    """
    prompts = session.prompts
    shared = prompts.places(_NUM_SHARED, seed=_SHARED_SEED)
    workload = Workload(
        "prefix", "", _NUM_ASKED, num_clients=1, num_prompt_tokens=_NUM_TOKENS, num_output_tokens=2
    )
    cold = session.ask(server, running=running, workload=workload)
    warm = session.ask(
        server,
        running=running,
        workload=workload,
        # The first of them fills the cache.
        prompts=prompts.make(
            _NUM_ASKED + 1, num_tokens=_NUM_TOKENS, seed=_SHARED_SEED, shared=shared
        ),
    )
    arrival = apply_load(
        _make_arrival(prompts, server=server, port=running.ports.rest, sizes=sizes)
    )
    *others, long = arrival.timelines
    during = [gap for other in others for gap in gaps_within(other, during=long)]
    return replace(
        checks,
        uncached_first_token_ms=_first_tokens_ms(cold.timelines),
        cached_first_token_ms=_first_tokens_ms(warm.timelines[1:]),
        arrival_gap=latencies(during) if during and not long.error else None,
    )


def _make_arrival(prompts: PromptMaker, *, server: Server, port: int, sizes: CheckSizes) -> Load:
    """Streams under way, and then one prompt as long as the context."""
    stream = replace(ONE, num_output_tokens=256)
    long = replace(ONE, num_output_tokens=2)
    bodies = [
        make_body(prompt, server=server, workload=stream)
        for prompt in prompts.make(_NUM_STREAMS, num_tokens=128, seed=_ARRIVAL_SEED)
    ]
    [prompt] = prompts.make(1, num_tokens=sizes.num_long_tokens, seed=_ARRIVAL_SEED + 1)
    bodies.append(make_body(prompt, server=server, workload=long))
    arrivals = (*[0.0] * _NUM_STREAMS, _ARRIVES_AT_S)
    return Load(port, PATH, tuple(bodies), arrivals=arrivals)


def check_loop(
    checks: Checks, *, session: Session, loop: BareLoop, sizes: CheckSizes, log: Path
) -> Checks:
    """Those of the bare loop.

    Raises:
        LoopError: it died.
    """
    long = Workload("long", "", 1, 1, num_prompt_tokens=sizes.num_long_tokens, num_output_tokens=2)
    others = Workload("others", "", _NUM_STREAMS, _NUM_STREAMS, num_output_tokens=32)
    filling = replace(THIRTY_TWO, num_output_tokens=32)
    waves = [
        session.make_wave(replace(filling, num_output_tokens=8)),
        session.make_wave(long),
        session.make_wave(others),
        *(
            session.make_wave(filling, has_prefix_cache=has_cache)
            for _ in range(sizes.num_cache_pairs)
            for has_cache in (True, False)
        ),
    ]
    _, (alone, _), (beside, _), *turns = run_waves(loop, waves=waves, log=log)
    cpu_s = [result.cpu_s for result, _ in turns]
    return replace(
        checks,
        arrival_chunk_ms=float(np.percentile(alone.steps_ms, 99)),
        arrival_step_ms=beside.late_step_ms,
        cache_on_s=tuple(cpu_s[::2]),
        cache_off_s=tuple(cpu_s[1::2]),
    )


def _first_tokens_ms(timelines: Sequence[Timeline]) -> tuple[float, ...]:
    return tuple(
        (timeline.texts_at[0] - timeline.asked_at) * 1e3
        for timeline in timelines
        if timeline.texts_at
    )
