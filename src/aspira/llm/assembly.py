"""Builds an engine from what differs between models."""

from aspira.contracts.clock import Clock
from aspira.contracts.identity import ServableId
from aspira.llm.engine import Engine
from aspira.llm.intake import Intake
from aspira.llm.options import EngineOptions
from aspira.llm.queue_gate import QueueGate
from aspira.llm.recorder import Publish, Recorder
from aspira.llm.runner import MakeRunner
from aspira.llm.scheduler import Scheduler
from aspira.llm.step_executor import StepExecutor
from aspira.llm.step_loop import StepLoop
from aspira.llm.vocabulary import Vocabulary


def start_engine(
    make_runner: MakeRunner,
    *,
    servable_id: ServableId,
    vocabulary: Vocabulary | None,
    options: EngineOptions,
    clock: Clock,
    publish: Publish,
) -> Engine:
    """Make the runner, which may take long, and start the engine on it.

    `make_runner` is called here, and again on the engine's thread if the runner is lost. Without
    a vocabulary streams have token ids and no text. `publish` is called on the engine's thread; it
    must be quick and must not raise.

    Raises:
        ServingError: the runner could not be made.
    """
    executor = StepExecutor(make_runner)
    runner = executor.keeper.runner
    gate = QueueGate(options)
    steps = StepLoop(
        executor,
        scheduler=Scheduler(runner.num_blocks, block_size=runner.block_size, options=options),
        gate=gate,
        recorder=Recorder(servable_id, publish=publish),
        clock=clock,
    )
    engine = Engine(
        steps,
        intake=Intake(runner, vocabulary=vocabulary, options=options),
        gate=gate,
        stall_timeout_s=options.stall_timeout_s,
        clock=clock,
        name=f"engine-{servable_id.name}-{servable_id.version}",
    )
    engine.start()
    return engine
