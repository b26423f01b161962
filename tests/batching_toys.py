"""Batched servables for tests, on the running loop."""

import asyncio
from pathlib import Path

from aspira.batching.completions import Completions
from aspira.batching.context import BatchingContext
from aspira.batching.loader import BatchingLoader
from aspira.batching.options import BatchingOptions, BatchingParameters
from aspira.batching.parameters import ParametersFinder
from aspira.batching.servable import BatchedServable
from aspira.contracts.clock import Clock, SystemClock
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.contracts.servable import Loader, Servable
from aspira.contracts.tensors import Tensors

M_1 = ServableId(ModelName("batched"), Version(1))
NO_BATCHING = BatchingOptions()


def make_context(*, clock: Clock | None = None, events: EventBus | None = None) -> BatchingContext:
    completions = Completions[Tensors](asyncio.get_running_loop())
    return BatchingContext(clock or SystemClock(), completions, events or EventBus())


def make_batching_loader(
    loader: Loader[Servable],
    *,
    context: BatchingContext,
    servable_id: ServableId = M_1,
    directory: Path = Path("/m/1"),
    options: BatchingOptions = NO_BATCHING,
) -> BatchingLoader:
    return BatchingLoader(
        loader,
        servable_id=servable_id,
        directory=directory,
        options=options,
        finder=ParametersFinder(options),
        context=context,
    )


def make_batched(
    servable: Servable,
    *,
    parameters: BatchingParameters | None = None,
    options: BatchingOptions = NO_BATCHING,
    context: BatchingContext | None = None,
) -> BatchedServable:
    return BatchedServable(
        servable,
        servable_id=M_1,
        options=options,
        parameters=parameters,
        context=context or make_context(),
    )


async def unload(batched: BatchedServable) -> None:
    await asyncio.get_running_loop().run_in_executor(None, batched.unload)
