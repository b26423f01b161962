"""Whatever is asked of a batched model together, each request gets what it would get alone."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aspira.batching.options import BatchingOptions, BatchingParameters
from aspira.contracts.errors import DeadlineExceeded, InvalidArgument, ServingError
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensor, Tensors
from batching_toys import make_batched, make_context, unload

POISON = -1.0
PATIENCE_S = 20.0


class Ask(NamedTuple):
    """A request: its values, by row; whether they make a run fail; whether it is late."""

    x: Tensor
    is_poison: bool
    is_late: bool
    priority: int


class RowSums:
    """`y` is the sum of each row, `z` the row itself. Rows with a poison value fail the run."""

    signatures: ClassVar = {
        "s": Signature(
            {"x": TensorSpec(DataType.FLOAT, None)},
            {"y": TensorSpec(DataType.FLOAT, None), "z": TensorSpec(DataType.FLOAT, None)},
        )
    }

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        x = inputs["x"]
        if (x == POISON).any():
            raise InvalidArgument("poison")
        sums = x.reshape(len(x), -1).max(axis=1, initial=0) if x.size else np.zeros(len(x))
        return {"y": sums.astype(np.float32), "z": x}

    def unload(self) -> None:
        pass


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    num_rows = draw(st.integers(0, 6))
    values = draw(st.integers(1, 1000))
    x = (np.arange(num_rows * int(np.prod(shape))) + values).astype(np.float32)
    x = x.reshape(num_rows, *shape)
    is_poison = num_rows > 0 and draw(st.integers(0, 5)) == 0
    if is_poison:
        x.reshape(-1)[draw(st.integers(0, x.size - 1))] = POISON
    return Ask(x, is_poison, draw(st.integers(0, 9)) == 0, draw(st.integers(-4, 3)))


@st.composite
def parameters(draw: st.DrawFn) -> BatchingParameters:
    execution = draw(st.integers(1, 8))
    can_split = draw(st.booleans())
    sizes = draw(st.sets(st.integers(1, execution), max_size=3))
    return BatchingParameters(
        max_batch_size=8 if can_split else max(execution, 6),
        max_enqueued_batches=1000,
        allowed_batch_sizes=tuple(sorted({*sizes, execution})) if draw(st.booleans()) else (),
        can_split=can_split,
        max_execution_batch_size=execution if can_split else 0,
        num_threads=draw(st.integers(1, 3)),
        batch_timeout_s=draw(st.sampled_from([0.0, 0.002])),
    )


async def ask_all(
    given_asks: Sequence[Ask], *, given_parameters: BatchingParameters | None
) -> list[Tensors | BaseException]:
    context = make_context()
    batched = make_batched(
        RowSums(),
        parameters=given_parameters,
        options=BatchingOptions(num_threads=2),
        context=context,
    )
    answers = await asyncio.gather(
        *(
            batched.run(
                "s",
                inputs={"x": ask.x},
                outputs=("y", "z"),
                deadline=context.clock.now() - 1.0 if ask.is_late else None,
                priority=ask.priority,
            )
            for ask in given_asks
        ),
        return_exceptions=True,
    )
    await unload(batched)
    return answers


def check(ask: Ask, *, answer: Tensors | BaseException) -> None:
    if ask.is_late:
        assert isinstance(answer, DeadlineExceeded)
    elif ask.is_poison:
        assert isinstance(answer, ServingError)
        assert answer.message == "poison"
    else:
        assert not isinstance(answer, BaseException), answer
        expected = RowSums().run("s", inputs={"x": ask.x}, outputs=())
        for alias, tensor in expected.items():
            np.testing.assert_array_equal(answer[alias], tensor)
            assert answer[alias].dtype == tensor.dtype


@given(st.lists(asks(), min_size=1, max_size=24), parameters() | st.none())
@settings(max_examples=150, deadline=None)
def test_each_request_gets_what_it_would_get_alone(
    given_asks: list[Ask], given_parameters: BatchingParameters | None
) -> None:
    asking = ask_all(given_asks, given_parameters=given_parameters)
    answers = asyncio.run(asyncio.wait_for(asking, PATIENCE_S))
    for ask, answer in zip(given_asks, answers, strict=True):
        check(ask, answer=answer)
