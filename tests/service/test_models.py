import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aspira.contracts.clock import SystemClock
from aspira.contracts.errors import (
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ServingError,
    Unknown,
)
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ModelName, ModelSpec, Version, VersionLabel
from aspira.lifecycle.filesystem_source import FilesystemSource
from aspira.lifecycle.listing import MonitoredModel
from aspira.lifecycle.manager import Manager
from aspira.lifecycle.options import LifecycleOptions
from aspira.lifecycle.version_choice import All, VersionPolicy
from aspira.lifecycle.version_state import VersionState
from aspira.routing.table import RoutingTable
from aspira.service.inference import InferenceService, Router
from aspira.service.model_config import ModelConfig, ModelConfigs
from aspira.service.models import WIRE_STATES, ModelsService
from aspira.service.options import ServiceOptions
from aspira.testing.toy_servable import ToyServable
from fake_loaders import FakeLoaders, make_id

LOADING, READY, GONE, FAILED = (
    VersionState.LOADING,
    VersionState.READY,
    VersionState.GONE,
    VersionState.FAILED,
)
M = ModelName("m")
AN_HOUR_S = 3600.0


class Shop:
    """A models service over real directories and fake loaders."""

    def __init__(
        self,
        base: Path,
        *,
        options: LifecycleOptions,
        allow_labels: bool,
        service: ServiceOptions,
    ) -> None:
        self.base = base
        self.loaders = FakeLoaders()
        events = EventBus()
        self.manager = Manager[Any](self.loaders, options=options, events=events)
        self.source = FilesystemSource(self.manager.aspire, events=events, options=options)
        router = Router(RoutingTable())
        self.inference = InferenceService(
            self.manager, router=router, clock=SystemClock(), options=service
        )
        self.models = ModelsService(
            self.manager,
            source=self.source,
            inference=self.inference,
            allow_labels_for_unavailable=allow_labels,
            options=service,
            events=events,
        )

    def write(self, name: str, *versions: int) -> None:
        for version in versions:
            (self.base / name / str(version)).mkdir(parents=True)

    def config(
        self,
        name: str,
        *,
        policy: VersionPolicy | None = None,
        labels: dict[str, int] | None = None,
        platform: str = "tensorflow",
    ) -> ModelConfigs:
        model = MonitoredModel(ModelName(name), str(self.base / name), policy or All())
        bound = {VersionLabel(label): Version(v) for label, v in (labels or {}).items()}
        return {model.name: ModelConfig(model, platform, bound)}

    async def start(self, configs: ModelConfigs) -> None:
        await self.models.start(configs)
        await self.models.wait_settled(configs)

    def states(self, name: str) -> dict[int, VersionState]:
        return {s.version: s.state for s in self.manager.statuses(ModelName(name))}

    def leased(self, spec: ModelSpec) -> int:
        with self.inference.lease(spec) as lease:
            return lease.servable_id.version


def play(
    scenario: Callable[[Shop], Awaitable[None]],
    *,
    base: Path,
    allow_labels: bool = False,
    max_num_load_retries: int = 0,
    service: ServiceOptions | None = None,
) -> None:
    options = LifecycleOptions(
        poll_interval_s=0,
        max_num_load_retries=max_num_load_retries,
        load_retry_interval_s=AN_HOUR_S,
    )

    async def act() -> None:
        shop = Shop(
            base, options=options, allow_labels=allow_labels, service=service or ServiceOptions()
        )
        await scenario(shop)
        await shop.source.stop()
        await shop.manager.stop()

    asyncio.run(act())


async def refusal(work: Awaitable[None], *, error: type[ServingError]) -> str:
    with pytest.raises(error) as caught:
        await work
    return caught.value.message


def test_every_state_has_a_wire_name() -> None:
    assert {state.value: WIRE_STATES[state] for state in VersionState} == {
        "new": "START",
        "loading": "LOADING",
        "ready": "AVAILABLE",
        "draining": "UNLOADING",
        "unloading": "UNLOADING",
        "gone": "END",
        "failed": "END",
    }


def test_start_loads_what_is_configured(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1, 2)
        shop.write("n", 1)
        configs = {**shop.config("m"), **shop.config("n")}
        await shop.models.start(configs)
        assert shop.models.configs == configs
        await shop.models.wait_settled(configs)
        assert READY in shop.states("m").values()
        assert shop.states("n") == {1: READY}
        assert shop.models.unavailable() == {}

    play(scenario, base=tmp_path)


def test_without_models_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        await shop.start({})
        assert shop.models.configs == {}
        assert shop.models.unavailable() == {}

    play(scenario, base=tmp_path)


def test_a_missing_base_path_does_not_hold_up_the_start(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("n", 1)
        await shop.start({**shop.config("m"), **shop.config("n")})
        assert shop.states("n") == {1: READY}
        path = tmp_path / "m"
        assert shop.models.unavailable() == {
            "m": (
                "{name: m} due to error: NOT_FOUND: FileSystemStoragePathSource encountered a"
                f" filesystem access error: Could not find base path {path} for servable m with"
                f" error NOT_FOUND: {path} not found"
            )
        }
        shop.write("m", 1)
        await shop.source.scan()
        await shop.models.wait_settled(["m"])
        assert shop.models.unavailable() == {}

    play(scenario, base=tmp_path)


def test_a_base_path_without_versions_does_not_hold_up_the_start(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        (tmp_path / "m").mkdir()
        await shop.start(shop.config("m"))
        (reason,) = shop.models.unavailable().values()
        assert reason.startswith("{name: m} due to error: NOT_FOUND: No versions of servable m")

    play(scenario, base=tmp_path)


def test_a_model_that_fails_is_settled(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        shop.loaders.fail(1, DataLoss("broken"))
        await shop.start(shop.config("m"))
        assert shop.states("m") == {1: FAILED}
        assert shop.models.unavailable() == {
            "m": "{name: m version: 1} due to error: DATA_LOSS: broken"
        }

    play(scenario, base=tmp_path)


def test_a_model_whose_load_will_be_tried_again_is_settled(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        shop.loaders.fail(1, DataLoss("broken"))
        await shop.start(shop.config("m"))
        assert shop.states("m") == {1: LOADING}
        assert shop.models.unavailable() == {
            "m": "{name: m version: 1} due to error: DATA_LOSS: broken"
        }

    play(scenario, base=tmp_path, max_num_load_retries=5)


def test_a_model_is_settled_by_one_ready_version_or_the_failure_of_all(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1, 2)
        shop.loaders.fail(2, DataLoss("broken"))
        gate = shop.loaders.hold(1)
        await shop.models.start(shop.config("m"))
        await shop.manager.wait_until(lambda: shop.states("m") == {1: LOADING, 2: FAILED})
        assert not shop.models.is_settled(M)
        gate.set()
        await shop.models.wait_settled([M])
        assert shop.states("m") == {1: READY, 2: FAILED}
        assert shop.models.unavailable() == {}

    play(scenario, base=tmp_path)


def test_a_model_that_is_still_loading_is_not_settled(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        gate = shop.loaders.hold(1)
        await shop.models.start(shop.config("m"))
        assert not shop.models.is_settled(M)
        assert shop.models.unavailable() == {"m": "{name: m} is still loading"}
        gate.set()
        await shop.models.wait_settled([M])

    play(scenario, base=tmp_path)


def test_a_reload_adds_keeps_and_removes(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        for name in ("kept", "removed", "added"):
            shop.write(name, 1)
        await shop.start({**shop.config("kept"), **shop.config("removed")})
        configs = {**shop.config("kept"), **shop.config("added")}
        await shop.models.reload(configs)
        assert shop.models.configs == configs
        assert shop.states("kept") == shop.states("added") == {1: READY}
        await shop.manager.wait_until(lambda: shop.states("removed") == {1: GONE})
        assert shop.models.statuses(ModelSpec(ModelName("removed")))[0].state is GONE
        assert shop.loaders.num_loads[1] == 3

    play(scenario, base=tmp_path)


def test_a_reload_of_no_models_unloads_all(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        await shop.start(shop.config("m"))
        await shop.models.reload({})
        await shop.manager.wait_until(lambda: shop.states("m") == {1: GONE})

    play(scenario, base=tmp_path)


def test_an_identical_reload_changes_nothing(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        await shop.start(shop.config("m"))
        await shop.models.reload(shop.config("m"))
        assert shop.states("m") == {1: READY}
        assert shop.loaders.num_loads[1] == 1

    play(scenario, base=tmp_path)


def test_a_reload_sees_new_versions_at_once(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        await shop.start(shop.config("m"))
        shop.write("m", 2)
        await shop.models.reload(shop.config("m"))
        await shop.manager.wait_until(lambda: shop.states("m") == {1: READY, 2: READY})

    play(scenario, base=tmp_path)


def test_a_reload_tells_which_added_models_failed_and_keeps_the_rest(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("bad", 7)
        shop.write("good", 1)
        shop.loaders.fail(7, DataLoss("broken"))
        await shop.start({})
        configs = {**shop.config("good"), **shop.config("bad"), **shop.config("absent")}
        text = await refusal(shop.models.reload(configs), error=Unknown)
        path = tmp_path / "absent"
        assert text == (
            "2 model(s) did not become available: "
            "{{name: absent} due to error: NOT_FOUND: FileSystemStoragePathSource encountered a"
            f" filesystem access error: Could not find base path {path} for servable absent with"
            f" error NOT_FOUND: {path} not found}}, "
            "{{name: bad version: 7} due to error: DATA_LOSS: broken}, }"
        )
        assert shop.models.configs == configs
        assert shop.states("good") == {1: READY}
        await shop.models.reload(configs)

    play(scenario, base=tmp_path)


def test_a_reload_does_not_wait_for_models_there_were(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        gate = shop.loaders.hold(1)
        await shop.models.start(shop.config("m"))
        await shop.models.reload(shop.config("m"))
        assert shop.states("m") == {1: LOADING}
        gate.set()

    play(scenario, base=tmp_path)


def test_a_reload_that_waits_does_not_hold_up_the_next(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("stuck", 7)
        shop.write("m", 1)
        gate = shop.loaders.hold(7)
        await shop.start({})
        stuck = asyncio.ensure_future(shop.models.reload(shop.config("stuck")))
        await shop.manager.wait_until(lambda: shop.states("stuck") == {7: LOADING})
        await shop.models.reload(shop.config("m"))
        assert shop.states("m") == {1: READY}
        # Nobody wants the model of the first reload any longer.
        await stuck
        gate.set()

    play(scenario, base=tmp_path)


def test_a_reload_may_not_change_a_platform(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        before = shop.config("m")
        await shop.start(before)
        reload = shop.models.reload({**shop.config("m", platform="onnx"), **shop.config("n")})
        assert await refusal(reload, error=InvalidArgument) == (
            "Illegal to change a model's platform. For model m platform was tensorflow and new "
            "platform requested is onnx"
        )
        assert shop.models.configs == before
        assert shop.states("n") == {}

    play(scenario, base=tmp_path)


def not_available(version: int) -> str:
    return (
        f"Request to assign label to version {version} of model m, "
        "which is not currently available for inference"
    )


def test_labels_may_name_versions_to_come_when_a_model_is_added(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        shop.write("n", 1)
        await shop.start(shop.config("m", labels={"stable": 1, "next": 9}))
        assert shop.leased(ModelSpec(M, label=VersionLabel("stable"))) == 1
        with pytest.raises(NotFound) as caught:
            shop.leased(ModelSpec(M, label=VersionLabel("next")))
        assert caught.value.message == "Servable not found for request: Specific(m, 9)"
        added = {**shop.models.configs, **shop.config("n", labels={"stable": 1})}
        await shop.models.reload(added)
        assert shop.leased(ModelSpec(ModelName("n"), label=VersionLabel("stable"))) == 1

    play(scenario, base=tmp_path)


def test_a_label_moves_to_an_available_version(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1, 2)
        await shop.start(shop.config("m", labels={"stable": 1}))
        await shop.manager.wait_until(lambda: shop.states("m") == {1: READY, 2: READY})
        await shop.models.reload(shop.config("m", labels={"stable": 2, "canary": 1}))
        assert shop.leased(ModelSpec(M, label=VersionLabel("stable"))) == 2
        assert shop.leased(ModelSpec(M, label=VersionLabel("canary"))) == 1

    play(scenario, base=tmp_path)


@pytest.mark.parametrize("allow_labels", [False, True])
def test_a_label_in_use_does_not_move_to_an_unavailable_version(
    tmp_path: Path, allow_labels: bool
) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        before = shop.config("m", labels={"stable": 1})
        await shop.start(before)
        after = {**shop.config("m", labels={"stable": 2}), **shop.config("n")}
        text = await refusal(shop.models.reload(after), error=FailedPrecondition)
        assert text == not_available(2)
        assert shop.models.configs == before
        assert shop.leased(ModelSpec(M, label=VersionLabel("stable"))) == 1

    play(scenario, base=tmp_path, allow_labels=allow_labels)


@pytest.mark.parametrize("allow_labels", [False, True])
def test_a_new_label_for_an_unavailable_version_needs_the_flag(
    tmp_path: Path, allow_labels: bool
) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        await shop.start(shop.config("m"))
        reload = shop.models.reload(shop.config("m", labels={"next": 2}))
        if not allow_labels:
            assert await refusal(reload, error=FailedPrecondition) == not_available(2)
            return
        await reload
        shop.write("m", 2)
        await shop.source.scan()
        await shop.manager.wait_until(lambda: shop.states("m") == {1: READY, 2: READY})
        assert shop.leased(ModelSpec(M, label=VersionLabel("next"))) == 2

    play(scenario, base=tmp_path, allow_labels=allow_labels)


def test_a_label_that_stays_is_not_checked_again(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1, 2)
        shop.write("n", 1)
        config = shop.config("m", labels={"stable": 1})
        await shop.start(config)
        await shop.manager.wait_until(lambda: shop.states("m") == {1: READY, 2: READY})
        (tmp_path / "m" / "1").rename(tmp_path / "m" / "old")
        await shop.source.scan()
        await shop.manager.wait_until(lambda: shop.states("m") == {1: GONE, 2: READY})
        await shop.models.reload({**config, **shop.config("n")})
        assert shop.states("n") == {1: READY}
        with pytest.raises(NotFound) as caught:
            shop.leased(ModelSpec(M, label=VersionLabel("stable")))
        assert caught.value.message == "Servable not found for request: Specific(m, 1)"

    play(scenario, base=tmp_path)


def test_a_label_that_is_left_out_is_unknown_at_once(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        await shop.start(shop.config("m", labels={"stable": 1}))
        await shop.models.reload(shop.config("m"))
        with pytest.raises(InvalidArgument) as caught:
            shop.leased(ModelSpec(M, label=VersionLabel("stable")))
        assert caught.value.message == "Unrecognized servable version label: stable"

    play(scenario, base=tmp_path)


def test_statuses_are_of_all_versions_or_the_one_asked_for(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 2, 10)
        shop.loaders.fail(10, DataLoss("broken"))
        await shop.start(shop.config("m", labels={"stable": 2}))
        await shop.manager.wait_until(lambda: shop.states("m") == {10: FAILED, 2: READY})
        statuses = shop.models.statuses(ModelSpec(M))
        assert [(s.version, s.state, str(s.error)) for s in statuses] == [
            (10, FAILED, "DATA_LOSS: broken"),
            (2, READY, "None"),
        ]
        for spec in (
            ModelSpec(M, version=Version(2)),
            ModelSpec(M, label=VersionLabel("stable")),
        ):
            assert [s.version for s in shop.models.statuses(spec)] == [2]

    play(scenario, base=tmp_path)


@pytest.mark.parametrize(
    ("spec", "error", "text"),
    [
        (ModelSpec(ModelName("x")), NotFound, "Could not find any versions of model x"),
        (
            ModelSpec(M, version=Version(7)),
            NotFound,
            "Could not find version 7 of model m",
        ),
        (
            ModelSpec(ModelName("x"), version=Version(7)),
            NotFound,
            "Could not find version 7 of model x",
        ),
        (
            ModelSpec(M, label=VersionLabel("x")),
            InvalidArgument,
            "Unrecognized servable version label: x",
        ),
    ],
)
def test_statuses_of_what_is_not_there(
    tmp_path: Path, spec: ModelSpec, error: type[ServingError], text: str
) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1)
        await shop.start(shop.config("m"))
        with pytest.raises(error) as caught:
            shop.models.statuses(spec)
        assert caught.value.message == text

    play(scenario, base=tmp_path)


def test_metadata_is_of_a_loaded_version(tmp_path: Path) -> None:
    async def scenario(shop: Shop) -> None:
        shop.write("m", 1, 2)
        await shop.start(shop.config("m"))
        await shop.manager.wait_until(lambda: shop.states("m") == {1: READY, 2: READY})
        metadata = shop.models.metadata(ModelSpec(M))
        assert metadata.servable_id == make_id("m", 2)
        assert metadata.signatures == ToyServable().signatures
        asked = shop.models.metadata(ModelSpec(M, version=Version(1)))
        assert asked.servable_id == make_id("m", 1)
        with pytest.raises(NotFound):
            shop.models.metadata(ModelSpec(ModelName("x")))
        # Its lease has been released: the model can unload.
        await shop.models.reload({})
        await shop.manager.wait_until(lambda: shop.states("m") == {1: GONE, 2: GONE})

    play(scenario, base=tmp_path)
