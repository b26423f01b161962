"""Aspira's token engine with nothing around it: its steps in a loop, on this thread.

    python bare_aspira_tokens.py MODEL < waves.json

A wave is requests that come at once; each gives a line of JSON when its last one has ended.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from aspira.contracts.clock import SystemClock
from aspira.contracts.generation import Delta, GenerateRequest, SamplingParameters, StopRules
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.llm.intake import Intake
from aspira.llm.model_source import FileSource, find_language_model
from aspira.llm.options import EngineOptions
from aspira.llm.queue_gate import QueueGate
from aspira.llm.recorder import Recorder
from aspira.llm.scheduler import Scheduler
from aspira.llm.step_executor import StepExecutor
from aspira.llm.step_loop import StepLoop
from aspira.llm.streams import Item

_CACHE_MIB = 1024


class Keeper:
    """An outlet that keeps what comes."""

    is_gone = False

    def __init__(self) -> None:
        self.token_ids: list[int] = []

    def send(self, item: Item) -> None:
        if isinstance(item, Delta):
            self.token_ids += item.token_ids


def main() -> None:
    source = find_language_model(Path(sys.argv[1]))
    assert isinstance(source, FileSource)
    executor = StepExecutor(lambda: source.make_runner(cache_mib=_CACHE_MIB))
    for wave in json.loads(sys.stdin.readline()):
        print(json.dumps(_run(executor, source=source, wave=wave)), flush=True)


def _run(executor: StepExecutor, *, source: FileSource, wave: dict[str, Any]) -> dict[str, Any]:
    runner, clock = executor.keeper.runner, SystemClock()
    options = EngineOptions(prefix_cache=wave["has_prefix_cache"])
    gate = QueueGate(options)
    steps = StepLoop(
        executor,
        scheduler=Scheduler(runner.num_blocks, block_size=runner.block_size, options=options),
        gate=gate,
        recorder=Recorder(ServableId(ModelName("m"), Version(1)), publish=lambda _: None),
        clock=clock,
    )
    text = source.make_text(max_tokens=runner.max_context)
    intake = Intake(runner, vocabulary=text.vocabulary, options=options)
    keepers = [Keeper() for _ in wave["prompts"]]
    began, began_cpu = time.perf_counter(), time.process_time()
    for prompt, keeper in zip(wave["prompts"], keepers, strict=True):
        request = GenerateRequest(
            tuple(prompt),
            clock.now(),
            wave["num_output_tokens"],
            sampling=SamplingParameters(temperature=0.0),
            stops=StopRules(ignore_eos=True),
        )
        gate.enter(len(prompt))
        steps.accept(intake.make_generation(request, outlet=keeper, make_constraint=None))
    steps_ms = []
    while steps.has_work:
        step_began = time.perf_counter()
        steps.step()
        steps_ms.append((time.perf_counter() - step_began) * 1e3)
    return {
        "num_tokens": sum(len(keeper.token_ids) for keeper in keepers),
        "seconds": time.perf_counter() - began,
        "cpu_s": time.process_time() - began_cpu,
        "steps_ms": steps_ms,
        "answers": [keeper.token_ids for keeper in keepers] if wave["is_kept"] else [],
    }


if __name__ == "__main__":
    main()
