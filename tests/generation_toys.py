"""Engines over the toy decoder: with a thread and streams, or stepped by hand, time jumping."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count

from aspira.contracts.clock import SystemClock
from aspira.contracts.errors import ServingError
from aspira.contracts.events import GenerationEvent
from aspira.contracts.generation import Delta, FinishReason, GenerateRequest, SamplingParameters
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.llm.assembly import start_engine
from aspira.llm.constraints import MakeConstraint
from aspira.llm.engine import Engine
from aspira.llm.generation import Generation
from aspira.llm.intake import Intake
from aspira.llm.options import EngineOptions
from aspira.llm.queue_gate import QueueGate
from aspira.llm.recorder import Publish, Recorder
from aspira.llm.runner import Runner
from aspira.llm.scheduler import Scheduler
from aspira.llm.step_executor import StepExecutor
from aspira.llm.step_loop import StepLoop
from aspira.llm.streams import Item, StreamEnd
from aspira.llm.vocabulary import Vocabulary
from aspira.testing.clock import JumpClock
from aspira.testing.toy_decoder import ToyDecoder

SERVABLE_ID = ServableId(ModelName("toy"), Version(1))
GREEDY = SamplingParameters(temperature=0.0)
OPTIONS = EngineOptions(watermark=0.0)


def ignore(_: object) -> None:
    pass


def make_request(
    prompt: list[int], *, max_tokens: int | None = 8, arrival: float = 0.0, **changes: object
) -> GenerateRequest:
    request = GenerateRequest(tuple(prompt), arrival, max_tokens, sampling=GREEDY)
    return replace(request, **changes)


@dataclass
class Received:
    """An outlet that keeps what a stream would have got."""

    deltas: list[Delta] = field(default_factory=list)
    ends: list[StreamEnd] = field(default_factory=list)
    is_gone: bool = False

    def send(self, item: Item) -> None:
        assert not self.ends, "something came after the end"
        if isinstance(item, StreamEnd):
            self.ends.append(item)
        else:
            self.deltas.append(item)

    def tokens(self, choice: int = 0) -> list[int]:
        return [token for d in self.deltas if d.choice == choice for token in d.token_ids]

    def text(self, choice: int = 0) -> str:
        return "".join(d.text for d in self.deltas if d.choice == choice)

    @property
    def error(self) -> ServingError | None:
        (end,) = self.ends
        return end.error

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.deltas[-1].finish_reason


class SteppedEngine:
    """All of an engine but its thread. Time passes only in `on_step` and by `clock.jump`."""

    def __init__(
        self,
        make_runner: Callable[[], Runner] = ToyDecoder,
        *,
        options: EngineOptions = OPTIONS,
        vocabulary: Vocabulary | None = None,
        clock: JumpClock | None = None,
    ) -> None:
        self.clock = clock or JumpClock()
        self.events: list[GenerationEvent] = []
        executor = StepExecutor(make_runner)
        runner = executor.keeper.runner
        self.gate = QueueGate(options)
        self.scheduler = Scheduler(runner.num_blocks, block_size=runner.block_size, options=options)
        self.steps = StepLoop(
            executor,
            scheduler=self.scheduler,
            gate=self.gate,
            recorder=Recorder(SERVABLE_ID, publish=self.events.append),
            clock=self.clock,
        )
        self.intake = Intake(runner, vocabulary=vocabulary, options=options)
        self.generations: dict[int, Generation] = {}

    def submit(
        self, request: GenerateRequest, *, make_constraint: MakeConstraint | None = None
    ) -> Received:
        received = Received()
        generation = self.intake.make_generation(
            request, outlet=received, make_constraint=make_constraint
        )
        self.gate.enter(generation.num_queued_tokens)
        self.steps.accept(generation)
        self.generations[id(received)] = generation
        return received

    def abort(self, received: Received) -> None:
        self.steps.abort(self.generations[id(received)])

    def step(self) -> None:
        self.steps.step()
        self.scheduler.blocks.check()

    def run(self, max_steps: int = 10_000) -> int:
        """Step until all is done; returns the number of steps."""
        for num_steps in count():
            if not self.steps.has_work:
                return num_steps
            assert num_steps < max_steps, "it goes on for ever"
            self.step()
        raise AssertionError

    def check_idle(self) -> None:
        """Nothing is held, nothing waits, and the books balance."""
        self.steps.update_statistics()
        statistics = self.steps.recorder.statistics
        assert self.scheduler.sequences == ()
        assert self.scheduler.blocks.num_held == 0
        assert (self.gate.num_requests, self.gate.num_tokens) == (0, 0)
        assert (statistics.num_requests_running, statistics.num_requests_waiting) == (0, 0)
        assert statistics.requests_accepted == sum(statistics.requests_ended.values())


@contextmanager
def running_engine(
    make_runner: Callable[[], Runner] = ToyDecoder,
    *,
    options: EngineOptions = OPTIONS,
    vocabulary: Vocabulary | None = None,
    publish: Publish = ignore,
) -> Iterator[Engine]:
    engine = start_engine(
        make_runner,
        servable_id=SERVABLE_ID,
        vocabulary=vocabulary,
        options=options,
        clock=SystemClock(),
        publish=publish,
    )
    try:
        yield engine
    finally:
        engine.close(drain_s=0.0)


async def collect(engine: Engine, request: GenerateRequest) -> dict[int, list[int]]:
    """The tokens of each choice."""
    tokens: dict[int, list[int]] = defaultdict(list)
    async with engine.submit(request) as stream:
        async for delta in stream:
            tokens[delta.choice] += delta.token_ids
    return dict(tokens)
