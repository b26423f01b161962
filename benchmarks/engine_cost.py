"""What the token engine itself costs: sampling, planning, text; everything but the decoder.

    .venv/bin/python benchmarks/engine_cost.py

The decoder is replaced by logits made beforehand, so what is left is the engine's own time. The
figures stand beside the time of a real step: 40 to 60 ms for a model of 135 million parameters
with 32 streams on two cores.
"""

import timeit
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from time import process_time

import numpy as np
import numpy.typing as npt

from aspira.contracts.clock import SystemClock
from aspira.contracts.generation import GenerateRequest, SamplingParameters, StopRules
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.llm.intake import Intake
from aspira.llm.options import EngineOptions
from aspira.llm.queue_gate import QueueGate
from aspira.llm.recorder import Recorder
from aspira.llm.runner import BlockPayload, Logits, StepBatch
from aspira.llm.sampler import Sampler, SamplingRow
from aspira.llm.scheduler import Scheduler
from aspira.llm.step_executor import StepExecutor
from aspira.llm.step_loop import StepLoop
from aspira.llm.step_plan import share_prefill
from aspira.llm.streams import Item
from aspira.llm.token_history import TokenHistory
from aspira.llm.vocabulary import Vocabulary
from aspira.testing.toy_tokenizer import ByteTokenizer

VOCAB_SIZE = 49_152
NUM_STREAMS = 32
NUM_TOKENS = 128
ROUNDS = 5


def make_logits(num_rows: int) -> npt.NDArray[np.float32]:
    """As peaked as a language model's: a few dozen likely tokens, a long tail."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((num_rows, VOCAB_SIZE)) * 2
    logits[:, :256] += rng.standard_normal((num_rows, 256)) * 2 + 8
    return logits.astype(np.float32)


class FreeDecoder:
    """A runner whose steps cost nothing: it hands out logits that it has."""

    block_size = 32
    num_blocks = 4096
    vocab_size = VOCAB_SIZE
    max_context = 8192
    kv_fingerprint = "free"

    def __init__(self) -> None:
        self._logits = make_logits(NUM_STREAMS)

    def run(self, batch: StepBatch) -> Logits:
        return self._logits[: len(batch.sampled_rows)]

    def export_blocks(self, block_ids: Sequence[int]) -> BlockPayload:
        raise NotImplementedError

    def import_blocks(self, block_ids: Sequence[int], *, payload: BlockPayload) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Nowhere:
    """An outlet that nobody reads."""

    is_gone = False

    def send(self, item: Item) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run: milliseconds a step."""

    ms: float
    num_steps: int


def run_engine(
    sampling: SamplingParameters,
    *,
    num_streams: int,
    vocabulary: Vocabulary | None,
    has_cache: bool,
) -> Cost:
    """All requests at once, random prompts, so that the prefix cache has no hit."""
    options = EngineOptions(max_step_tokens=512, prefix_cache=has_cache)
    executor = StepExecutor(FreeDecoder)
    clock, gate = SystemClock(), QueueGate(options)
    steps = StepLoop(
        executor,
        scheduler=Scheduler(4096, block_size=32, options=options),
        gate=gate,
        recorder=Recorder(ServableId(ModelName("m"), Version(1)), publish=lambda _: None),
        clock=clock,
    )
    intake = Intake(executor.keeper.runner, vocabulary=vocabulary, options=options)
    rng = np.random.default_rng(1)
    for _ in range(num_streams):
        prompt = tuple(rng.integers(0, VOCAB_SIZE, NUM_TOKENS).tolist())
        request = GenerateRequest(
            prompt, clock.now(), NUM_TOKENS, sampling=sampling, stops=StopRules(ignore_eos=True)
        )
        gate.enter(len(prompt))
        steps.accept(intake.make_generation(request, outlet=Nowhere(), make_constraint=None))
    num_steps, began = 0, process_time()
    while steps.has_work:
        steps.step()
        num_steps += 1
    return Cost((process_time() - began) / num_steps * 1e3, num_steps)


def report_engine() -> None:
    greedy = SamplingParameters(temperature=0.0)
    print(f"\nThe engine without its decoder, {NUM_TOKENS} tokens in and out, CPU ms a step")
    for title, sampling, num_streams, vocabulary, has_cache in (
        ("1 stream, greedy", greedy, 1, ByteTokenizer(), True),
        ("32 streams, greedy", greedy, NUM_STREAMS, ByteTokenizer(), True),
        ("32 streams, greedy, no prefix cache", greedy, NUM_STREAMS, ByteTokenizer(), False),
        ("32 streams, greedy, no text", greedy, NUM_STREAMS, None, True),
        ("32 streams, temperature", SamplingParameters(), NUM_STREAMS, ByteTokenizer(), True),
        ("32 streams, top-p", SamplingParameters(top_p=0.9), NUM_STREAMS, ByteTokenizer(), True),
    ):
        costs = [
            run_engine(
                sampling, num_streams=num_streams, vocabulary=vocabulary, has_cache=has_cache
            )
            for _ in range(ROUNDS)
        ]
        best = min(costs, key=lambda cost: cost.ms)
        print(f"  {title:40s} {best.ms:6.2f}   {best.num_steps} steps")


def report_sampler() -> None:
    logits, sampler = make_logits(NUM_STREAMS), Sampler()
    history = TokenHistory(range(500))
    for token in range(0, 5000, 40):
        history.add(token)
    half = np.packbits(np.random.default_rng(2).random(VOCAB_SIZE) > 0.5, bitorder="little")
    print(f"\nSampling {NUM_STREAMS} rows of {VOCAB_SIZE:,} logits, CPU us a row (best of 9)")
    for title, parameters, changes in (
        ("greedy", SamplingParameters(temperature=0.0), {}),
        ("temperature", SamplingParameters(), {}),
        ("min-p 0.05", SamplingParameters(min_p=0.05), {}),
        ("top-k 50", SamplingParameters(top_k=50), {}),
        ("top-p 0.9", SamplingParameters(top_p=0.9), {}),
        ("greedy, penalties", SamplingParameters(1.1, 0.1, temperature=0.0), {"history": history}),
        ("greedy, grammar", SamplingParameters(temperature=0.0), {"allowed": half}),
        ("greedy, 20 logprobs", SamplingParameters(temperature=0.0, num_logprobs=20), {}),
    ):
        row = SamplingRow(parameters, seed=(7, 0), position=3)._replace(**changes)
        timer = timeit.Timer(
            lambda rows=[row] * NUM_STREAMS: sampler.sample(logits, rows=rows), timer=process_time
        )
        seconds = min(timer.repeat(repeat=9, number=3)) / 3
        print(f"  {title:40s} {seconds / NUM_STREAMS * 1e6:6.1f}")


def share_in_order(missing: Sequence[int], *, budget: int) -> list[int]:
    """First come, first served."""
    shares = []
    for need in missing:
        shares.append(min(need, budget))
        budget -= shares[-1]
    return shares


def share_equally(missing: Sequence[int], *, budget: int) -> list[int]:
    """The same for everybody who still needs it."""
    shares = [0] * len(missing)
    open_ = [i for i, need in enumerate(missing) if need]
    while budget and open_:
        part = max(budget // len(open_), 1)
        for i in open_[:budget]:
            granted = min(part, missing[i] - shares[i])
            shares[i] += granted
            budget -= granted
        open_ = [i for i in open_ if shares[i] < missing[i]]
    return shares


def steps_to_first_token(prompts: Sequence[int], *, share: object, budget: int) -> list[int]:
    """When each of several prompts, oldest first, is computed, in steps."""
    assert callable(share)
    missing, done_at, step = list(prompts), [0] * len(prompts), 0
    while any(missing):
        step += 1
        behind = [i for i, need in enumerate(missing) if need]
        shares = share([missing[i] for i in behind], budget=budget)
        for i, granted in zip(behind, shares, strict=True):
            missing[i] -= granted
            if not missing[i]:
                done_at[i] = step
    return done_at


def report_sharing() -> None:
    print("\nSteps of 256 tokens to the first token, by how prompts share a step")
    print("                       16 of 128: mean    8,000 then 100    2 of 4,000 then 16 of 100")
    for title, share in (
        ("first come", share_in_order),
        ("equal shares", share_equally),
        ("half and shortest", share_prefill),
    ):
        equal = steps_to_first_token([128] * 16, share=share, budget=256)
        long = steps_to_first_token([8000, 100], share=share, budget=256)
        mixed = steps_to_first_token([4000] * 2 + [100] * 16, share=share, budget=256)
        print(
            f"  {title:20s} {mean(equal):16.1f} {long[0]:10d} / {long[1]:3d} "
            f"{mixed[0]:12d}, {mixed[1]} / {mean(mixed[2:]):.1f}"
        )


if __name__ == "__main__":
    report_sampler()
    report_engine()
    report_sharing()
