"""Steps of one token for each sequence, compiled by XLA where that is measured to be faster.

XLA compiles for fixed shapes, for seconds each, so there are few of them: for numbers of sequences,
and of spans of cache, that others are padded to. What fits none of them TensorFlow's graph does,
which takes any shape as it comes.
"""

import logging
import time
from collections.abc import Iterator
from itertools import takewhile

import numpy as np

from aspira.llm.runner import Int32s, Logits
from aspira.llm.saved_decoders.session import Call
from aspira.llm.saved_decoders.step_inputs import (
    BLOCK_SIZE,
    SPAN_BLOCKS,
    SPAN_TOKENS,
    StepInputs,
)

_logger = logging.getLogger(__name__)

_NUM_MEASURED = 4
_WORTHWHILE = 0.95
"""Of the graph's time, at most: what is about as fast is not worth more seconds of compiling."""
_SPAN_GROWTH = 4
_BEYOND = 1 << 30
"""Where a span begins that no query sees."""

Shape = tuple[int, int]
"""Sequences, spans."""


class CompiledSteps:
    """Which steps are compiled, and how they are run."""

    def __init__(self, compiled: Call, *, graph: Call, unused_block: int) -> None:
        self._compiled = compiled
        self._graph = graph
        self._unused_block = unused_block
        self._shapes: list[Shape] = []
        self._seen: set[tuple[tuple[int, ...], ...]] = set()

    @property
    def num_compilations(self) -> int:
        """As many as there were shapes of what was run."""
        return len(self._seen)

    def compile(self, max_sequences: int, *, max_context: int) -> None:
        """Compile for up to so many sequences; ends at the first number that it does not pay for.

        Raises:
            ServingError: TensorFlow cannot compile it.
        """
        for num_sequences in _powers(2, up_to=max_sequences):
            most = -(-max_context // SPAN_TOKENS)
            for num_spans in _powers(_SPAN_GROWTH, up_to=most):
                if not self._try_shape((num_sequences, num_sequences * num_spans)):
                    return

    def try_run(self, inputs: StepInputs) -> Logits | None:
        """The logits, or None where the step is none of those that are compiled."""
        num_sequences = len(inputs.token_ids)
        if inputs.tile_tokens.shape[1] > 1:
            return None
        for shape in self._shapes:
            num_padded = shape[0] - num_sequences
            if num_padded >= 0 and len(inputs.span_tiles) + num_padded <= shape[1]:
                padded = pad(inputs, shape=shape, unused_block=self._unused_block)
                return self._call(padded)[: len(inputs.sampled_rows)]
        return None

    def _try_shape(self, shape: Shape) -> bool:
        inputs = pad(_no_sequences(), shape=shape, unused_block=self._unused_block)
        graph_s = min(_seconds(self._graph, inputs=inputs) for _ in range(_NUM_MEASURED))
        self._call(inputs)
        compiled_s = min(_seconds(self._compiled, inputs=inputs) for _ in range(_NUM_MEASURED))
        is_faster = compiled_s <= _WORTHWHILE * graph_s
        _logger.debug(
            "%d sequences, %d spans of cache: %.1f ms compiled, %.1f ms not; %s",
            *shape,
            compiled_s * 1e3,
            graph_s * 1e3,
            "compiled" if is_faster else "not compiled",
        )
        if is_faster:
            self._shapes.append(shape)
        return is_faster

    def _call(self, inputs: StepInputs) -> Logits:
        self._seen.add(tuple(np.shape(array) for array in inputs))
        logits: Logits = self._compiled(**inputs._asdict())
        return logits


def pad(inputs: StepInputs, *, shape: Shape, unused_block: int) -> StepInputs:
    """A step of one token for each sequence, with further tokens in the unused block.

    Each of these sees one span, its own: a token that saw nothing would become no number, and what
    is stored of it would spoil what others read from there.
    """
    num_sequences, num_spans = shape
    have = len(inputs.token_ids)
    more = num_sequences - have
    beyond = num_spans - len(inputs.span_tiles) - more
    nobody = np.full(more, unused_block, np.int32)
    everybody = np.arange(num_sequences, dtype=np.int32)
    return StepInputs(
        token_ids=_extended(inputs.token_ids, to=num_sequences),
        positions=_extended(inputs.positions, to=num_sequences),
        slots=np.concatenate([inputs.slots, nobody * BLOCK_SIZE]),
        fresh_blocks=_extended(inputs.fresh_blocks, to=num_sequences, by=unused_block),
        tile_tokens=everybody[:, np.newaxis],
        token_tiles=everybody,
        span_tiles=_extended(np.concatenate([inputs.span_tiles, everybody[have:]]), to=num_spans),
        span_blocks=np.concatenate(
            [
                inputs.span_blocks,
                np.full((num_spans - len(inputs.span_blocks), SPAN_BLOCKS), unused_block, np.int32),
            ]
        ),
        span_begins=np.concatenate(
            [inputs.span_begins, np.zeros(more, np.int32), np.full(beyond, _BEYOND, np.int32)]
        ),
        sampled_rows=_extended(inputs.sampled_rows, to=num_sequences),
    )


def _no_sequences() -> StepInputs:
    nothing = np.zeros(0, np.int32)
    return StepInputs(*[nothing] * len(StepInputs._fields))._replace(
        tile_tokens=np.zeros((0, 1), np.int32), span_blocks=np.zeros((0, SPAN_BLOCKS), np.int32)
    )


def _extended(array: Int32s, *, to: int, by: int = 0) -> Int32s:
    return np.concatenate([array, np.full(to - len(array), by, np.int32)])


def _powers(of: int, *, up_to: int) -> Iterator[int]:
    """1, `of`, `of` squared, ... and at last `up_to`."""
    smaller = takewhile(lambda power: power < up_to, (of**exponent for exponent in range(32)))
    yield from (*smaller, up_to)


def _seconds(call: Call, *, inputs: StepInputs) -> float:
    began = time.perf_counter()
    call(**inputs._asdict())
    return time.perf_counter() - began
