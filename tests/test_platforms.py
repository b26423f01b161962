import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from aspira.batching.completions import Completions
from aspira.batching.context import BatchingContext
from aspira.batching.options import BatchingOptions, BatchingParameters
from aspira.contracts.clock import SystemClock
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.contracts.tensors import Tensors
from aspira.platforms import Platforms, choose_warmup_sizes
from aspira.runtimes.options import WarmupOptions
from aspira.settings import Settings
from aspira.testing.toy_servable import ToyServable


@pytest.mark.parametrize(
    ("parameters", "sizes"),
    [
        (BatchingParameters(max_batch_size=1), (1,)),
        (BatchingParameters(max_batch_size=8), (1, 2, 4, 8)),
        (BatchingParameters(max_batch_size=10), (1, 2, 4, 8, 10)),
        (BatchingParameters(max_batch_size=8, allowed_batch_sizes=(3, 8)), (3, 8)),
        (BatchingParameters(can_split=True, max_execution_batch_size=4), (1, 2, 4)),
    ],
)
def test_warm_up_covers_what_a_batch_may_be_padded_to(
    parameters: BatchingParameters, sizes: tuple[int, ...]
) -> None:
    assert choose_warmup_sizes(parameters) == sizes


class OneLoader:
    """Loads a toy."""

    def load(self) -> ToyServable:
        return ToyServable()


@pytest.mark.parametrize(
    ("own", "sizes"), [("max_batch_size { value: 4 }", (1, 2, 4, 7)), (None, (2, 7))]
)
def test_each_version_is_warmed_up_with_its_own_sizes(
    tmp_path: Path, own: str | None, sizes: tuple[int, ...]
) -> None:
    if own is not None:
        (tmp_path / "batching_params.pbtxt").write_text(own)
    seen: list[WarmupOptions] = []

    def make_loader(path: Path, *, settings: Settings, events: EventBus) -> OneLoader:
        seen.append(settings.warmup)
        return OneLoader()

    async def load() -> None:
        events = EventBus()
        completions = Completions[Tensors](asyncio.get_running_loop())
        platforms = Platforms(
            replace(
                Settings(),
                batching=BatchingOptions(is_enabled=True, is_per_model=True),
                warmup=WarmupOptions(is_for_all_batch_sizes=True, batch_sizes=(2, 7)),
            ),
            events=events,
            batching=BatchingContext(SystemClock(), completions, events),
            make_runtime_loader=make_loader,
        )
        servable_id = ServableId(ModelName("m"), Version(1))
        platforms.make_loader(servable_id, path=tmp_path).load().unload()

    asyncio.run(load())
    assert [options.batch_sizes for options in seen] == [sizes]
