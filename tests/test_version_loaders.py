import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from aspira.batching.completions import Completions
from aspira.batching.context import BatchingContext
from aspira.batching.options import BatchingOptions, BatchingParameters
from aspira.batching.parameters import ParametersFinder
from aspira.contracts.clock import SystemClock
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.contracts.tensors import Tensors
from aspira.llm.cache_budget import CacheBudget
from aspira.llm.choice import LanguageModels
from aspira.llm.loader import LanguageModelContext
from aspira.platforms import Platforms
from aspira.runtimes.accelerated import AcceleratedLoader
from aspira.runtimes.accelerator_options import AcceleratorOptions
from aspira.runtimes.options import WarmupOptions
from aspira.runtimes.tensorflow import TensorflowLoader
from aspira.settings import Settings
from aspira.testing.toy_servable import ToyServable
from aspira.version_loaders import BatchSizesLoader, choose_warmup_sizes, make_runtime_loader


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
            language_models=no_language_models(events),
        )
        servable_id = ServableId(ModelName("m"), Version(1))
        platforms.make_loader(servable_id, path=tmp_path).load().unload()

    asyncio.run(load())
    assert [options.batch_sizes for options in seen] == [sizes]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("tensorflow", TensorflowLoader), ("auto", AcceleratedLoader), ("xla", AcceleratedLoader)],
)
def test_the_accelerator_decides_on_the_loader(kind: str, expected: type) -> None:
    settings = replace(Settings(), accelerator=AcceleratorOptions(kind=kind))
    loader = make_runtime_loader(Path("/m/1"), settings=settings, events=EventBus())
    assert type(loader) is expected


@pytest.mark.parametrize(
    ("own", "sizes"),
    [
        ("max_batch_size { value: 6 } allowed_batch_sizes: [3, 6]", (3, 6)),
        ("", AcceleratorOptions().batch_sizes),
        (None, AcceleratorOptions().batch_sizes),
    ],
)
def test_accelerators_compile_for_the_sizes_that_batching_allows(
    tmp_path: Path, own: str | None, sizes: tuple[int, ...]
) -> None:
    if own is not None:
        (tmp_path / "batching_params.pbtxt").write_text(own)
    seen: list[Settings] = []

    def make_loader(path: Path, *, settings: Settings, events: EventBus) -> OneLoader:
        seen.append(settings)
        return OneLoader()

    BatchSizesLoader(
        tmp_path,
        settings=Settings(),
        events=EventBus(),
        finder=ParametersFinder(BatchingOptions(is_enabled=True, is_per_model=True)),
        make_runtime_loader=make_loader,
    ).load()
    assert [settings.accelerator.batch_sizes for settings in seen] == [sizes]
    assert [settings.warmup for settings in seen] == [WarmupOptions()]


def no_language_models(events: EventBus) -> LanguageModels:
    context = LanguageModelContext(SystemClock(), events, CacheBudget(0))
    return LanguageModels(lambda _: None, context=context)
