import asyncio
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from aspira.contracts.errors import DataLoss, NotFound, ServingError, Unavailable, Unknown
from aspira.contracts.events import (
    EventBus,
    LifecycleEvent,
    LoadAttemptFailed,
    VersionRetired,
    VersionStateChanged,
)
from aspira.contracts.identity import ModelName, Version
from aspira.lifecycle.lease import Lease
from aspira.lifecycle.manager import Manager
from aspira.lifecycle.options import LifecycleOptions
from aspira.lifecycle.source import Aspired
from aspira.lifecycle.transition_policy import (
    TransitionPolicy,
    next_availability_preserving,
    next_resource_preserving,
)
from aspira.lifecycle.version_state import VersionState
from fake_loaders import FakeLoaders, FakeServable, make_id

NEW, LOADING, READY, DRAINING, UNLOADING, GONE, FAILED = VersionState
AN_HOUR_S = 3600.0


class Bench:
    """A manager, its fake loaders, and short words for what tests do with them."""

    def __init__(self, options: LifecycleOptions, *, policy: TransitionPolicy) -> None:
        self.loaders = FakeLoaders()
        self.events: list[LifecycleEvent] = []
        bus = EventBus()
        bus.subscribe_lifecycle(self.events.append)
        self.manager = Manager[FakeServable](
            self.loaders, options=options, events=bus, policy=policy
        )

    def aspire(self, *versions: int, name: str = "m", base: str = "/models") -> None:
        paths = {Version(version): Path(base, name, str(version)) for version in versions}
        self.manager.aspire(Aspired(ModelName(name), paths))

    def acquire(self, version: int | None = None, *, name: str = "m") -> Lease[FakeServable]:
        wanted = None if version is None else Version(version)
        return self.manager.acquire(ModelName(name), version=wanted)

    def newest(self, name: str = "m") -> int:
        with self.acquire(name=name) as lease:
            return lease.servable_id.version

    def states(self, name: str = "m") -> dict[int, VersionState]:
        return {s.version: s.state for s in self.manager.statuses(ModelName(name))}

    def error(self, version: int, *, name: str = "m") -> ServingError | None:
        statuses = self.manager.statuses(ModelName(name))
        return next(s.error for s in statuses if s.version == version)

    async def wait(self, states: dict[int, VersionState], *, name: str = "m") -> None:
        await self.manager.wait_until(lambda: self.states(name) == states)

    def path(self, version: int | None = None) -> Path:
        """Where what answers was loaded from."""
        with self.acquire(version) as lease:
            return lease.servable.path

    def retired(self) -> list[str]:
        return [event.path for event in self.events if isinstance(event, VersionRetired)]

    def history(self, version: int, *, name: str = "m") -> list[str]:
        """The states a version went through."""
        return [
            event.state
            for event in self.events
            if isinstance(event, VersionStateChanged)
            and event.servable_id == make_id(name, version)
        ]


Scenario = Callable[[Bench], Awaitable[None]]


def play(
    scenario: Scenario,
    *,
    policy: TransitionPolicy = next_availability_preserving,
    max_num_load_retries: int = 0,
    load_retry_interval_s: float = AN_HOUR_S,
    num_load_threads: int = 0,
    options: LifecycleOptions | None = None,
) -> Bench:
    """Run a scenario and stop its manager, which unloads everything there still is."""
    options = options or LifecycleOptions(
        num_load_threads=num_load_threads,
        max_num_load_retries=max_num_load_retries,
        load_retry_interval_s=load_retry_interval_s,
    )

    async def run() -> Bench:
        bench = Bench(options, policy=policy)
        await scenario(bench)
        await bench.manager.stop()
        return bench

    bench = asyncio.run(run())
    assert [servable.num_unloads for servable in bench.loaders.servables] == [
        1 for _ in bench.loaders.servables
    ]
    return bench


def test_a_version_lives_and_ends() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        assert bench.states() == {1: LOADING}
        await bench.wait({1: READY})
        with bench.acquire() as lease:
            assert lease.servable_id == make_id("m", 1)
            assert lease.servable.path == Path("/models/m/1")
        bench.aspire()
        await bench.wait({1: GONE})
        assert bench.error(1) is None

    bench = play(scenario)
    assert bench.history(1) == ["new", "loading", "ready", "draining", "unloading", "gone"]


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        ("x", None, "Servable not found for request: Latest(x)"),
        ("x", 1, "Servable not found for request: Specific(x, 1)"),
        ("m", 2, "Servable not found for request: Specific(m, 2)"),
        ("loading", None, "Servable not found for request: Latest(loading)"),
        ("loading", 9, "Servable not found for request: Specific(loading, 9)"),
    ],
)
def test_what_is_not_ready_is_not_found(name: str, version: int | None, text: str) -> None:
    async def scenario(bench: Bench) -> None:
        gate = bench.loaders.hold(9)
        bench.aspire(1)
        bench.aspire(9, name="loading")
        await bench.wait({1: READY})
        with pytest.raises(NotFound) as caught:
            bench.acquire(version, name=name)
        assert caught.value.message == text
        gate.set()

    play(scenario)


def test_the_newest_ready_version_answers_unless_one_is_named() -> None:
    async def scenario(bench: Bench) -> None:
        gate = bench.loaders.hold(3)
        bench.aspire(1, 2, 3)
        await bench.wait({1: READY, 2: READY, 3: LOADING})
        assert bench.newest() == 2
        with bench.acquire(1) as lease:
            assert lease.servable_id.version == 1
        gate.set()
        await bench.wait({1: READY, 2: READY, 3: READY})
        assert bench.newest() == 3

    play(scenario)


def test_versions_load_newest_first() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(2, 3, 1)
        await bench.wait({1: READY, 2: READY, 3: READY})

    bench = play(scenario, num_load_threads=1)
    assert [servable_id.version for servable_id in bench.loaders.order] == [3, 2, 1]
    assert bench.loaders.max_num_at_once == 1


def test_a_new_version_replaces_the_old_one_without_a_gap() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        gate = bench.loaders.hold(2)
        bench.aspire(2)
        assert bench.states() == {1: READY, 2: LOADING}
        assert bench.newest() == 1
        gate.set()
        await bench.wait({1: GONE, 2: READY})
        assert bench.newest() == 2

    bench = play(scenario)
    states = [e for e in bench.events if isinstance(e, VersionStateChanged)]
    order = [(event.servable_id.version, event.state) for event in states]
    assert order.index((2, "ready")) < order.index((1, "draining"))


def test_statuses_keep_what_has_ended_newest_first() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(10)
        await bench.wait({10: READY})
        bench.aspire(9)
        await bench.wait({10: GONE, 9: READY})
        assert list(bench.states()) == [10, 9]
        bench.aspire(1, name="other")
        assert bench.manager.model_names() == ["m", "other"]
        assert bench.states("never") == {}

    play(scenario)


def test_a_lease_keeps_its_version_loaded() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        first, second = bench.acquire(), bench.acquire()
        bench.aspire(2)
        await bench.wait({1: DRAINING, 2: READY})
        with pytest.raises(NotFound):
            bench.acquire(1)
        first.release()
        first.release()
        assert bench.states() == {1: DRAINING, 2: READY}
        assert first.servable.num_unloads == 0
        second.release()
        await bench.wait({1: GONE, 2: READY})
        assert first.servable.num_unloads == 1

    play(scenario)


def test_a_lease_that_is_released_while_the_version_serves_unloads_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        with bench.acquire() as lease:
            pass
        assert bench.states() == {1: READY}
        assert lease.servable.num_unloads == 0

    play(scenario)


def test_a_model_that_loads_holds_up_no_other() -> None:
    async def scenario(bench: Bench) -> None:
        gate = bench.loaders.hold(7)
        bench.aspire(7, name="slow")
        bench.aspire(1, name="fast")
        await bench.wait({1: READY}, name="fast")
        assert bench.newest("fast") == 1
        bench.aspire(name="fast")
        await bench.wait({1: GONE}, name="fast")
        assert bench.states("slow") == {7: LOADING}
        gate.set()
        await bench.wait({7: READY}, name="slow")

    play(scenario, num_load_threads=2)


def test_a_model_that_unloads_holds_up_no_load() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1, name="slow")
        await bench.wait({1: READY}, name="slow")
        with bench.acquire(name="slow") as lease:
            lease.servable.unload_gate.clear()
        bench.aspire(name="slow")
        assert bench.states("slow") == {1: UNLOADING}
        bench.aspire(1, name="fast")
        await bench.wait({1: READY}, name="fast")
        assert bench.newest("fast") == 1
        assert bench.states("slow") == {1: UNLOADING}
        lease.servable.unload_gate.set()
        await bench.wait({1: GONE}, name="slow")

    play(scenario)


def test_a_load_is_tried_again() -> None:
    async def scenario(bench: Bench) -> None:
        bench.loaders.fail(1, Unavailable("first"), DataLoss("second"))
        bench.aspire(1)
        await bench.wait({1: READY})
        assert bench.error(1) is None

    bench = play(scenario, max_num_load_retries=2, load_retry_interval_s=0.0)
    assert bench.loaders.num_loads[1] == 3
    failures = [event for event in bench.events if isinstance(event, LoadAttemptFailed)]
    assert [(str(e.error), e.retries_left) for e in failures] == [
        ("UNAVAILABLE: first", 2),
        ("DATA_LOSS: second", 1),
    ]
    assert bench.history(1)[:3] == ["new", "loading", "ready"]


def test_a_negative_interval_means_no_wait() -> None:
    async def scenario(bench: Bench) -> None:
        bench.loaders.fail(1, Unavailable("first"))
        bench.aspire(1)
        await bench.wait({1: READY})

    play(scenario, max_num_load_retries=1, load_retry_interval_s=-1.0)


def test_while_it_is_tried_again_its_last_error_is_known() -> None:
    async def scenario(bench: Bench) -> None:
        bench.loaders.fail(1, DataLoss("broken"))
        bench.aspire(1)
        await bench.manager.wait_until(lambda: bench.error(1) is not None)
        assert bench.states() == {1: LOADING}
        assert str(bench.error(1)) == "DATA_LOSS: broken"

    play(scenario, max_num_load_retries=1, load_retry_interval_s=AN_HOUR_S)


def test_when_no_try_is_left_it_has_failed_and_is_left_alone() -> None:
    async def scenario(bench: Bench) -> None:
        bench.loaders.fail(1, DataLoss("first"), DataLoss("last"))
        bench.aspire(1)
        await bench.wait({1: FAILED})
        assert str(bench.error(1)) == "DATA_LOSS: last"
        bench.aspire(1)
        assert bench.states() == {1: FAILED}

    bench = play(scenario, max_num_load_retries=1, load_retry_interval_s=0.0)
    assert bench.loaders.num_loads[1] == 2
    failures = [event for event in bench.events if isinstance(event, LoadAttemptFailed)]
    assert [event.retries_left for event in failures] == [1, 0]


def test_a_failed_version_that_goes_and_comes_back_is_loaded_afresh() -> None:
    async def scenario(bench: Bench) -> None:
        bench.loaders.fail(1, DataLoss("half written"))
        bench.aspire(1)
        await bench.wait({1: FAILED})
        bench.aspire()
        assert bench.states() == {1: FAILED}
        bench.aspire(1)
        await bench.wait({1: READY})
        assert bench.error(1) is None

    play(scenario)


def test_a_failed_new_version_leaves_the_old_one_serving() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        bench.loaders.fail(2, DataLoss("broken"))
        bench.aspire(2)
        await bench.wait({1: READY, 2: FAILED})
        assert str(bench.error(2)) == "DATA_LOSS: broken"
        assert bench.newest() == 1
        bench.aspire(3)
        await bench.wait({1: GONE, 2: FAILED, 3: READY})

    play(scenario)


def test_a_version_that_has_not_been_replaced_can_stay_after_all() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        bench.loaders.fail(2, DataLoss("broken"))
        bench.aspire(2)
        await bench.wait({1: READY, 2: FAILED})
        bench.aspire(1, 3)
        await bench.wait({1: READY, 2: FAILED, 3: READY})

    bench = play(scenario)
    assert bench.loaders.num_loads[1] == 1


def test_a_version_that_has_not_been_replaced_goes_if_other_files_are_wanted() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        gate = bench.loaders.hold(2)
        bench.aspire(2)
        bench.aspire(1, base="/elsewhere")
        await bench.manager.wait_until(lambda: bench.path() == Path("/elsewhere/m/1"))
        gate.set()
        await bench.wait({1: READY, 2: FAILED})

    bench = play(scenario)
    assert bench.loaders.num_loads[1] == 2


STAYS_PUT = LifecycleOptions(is_moved_version_reloaded=False, max_num_load_retries=0)


def test_a_version_is_loaded_from_another_base_path_while_the_old_one_serves() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        gate = bench.loaders.hold(1)
        with bench.acquire(1) as old:
            bench.aspire(1, base="/elsewhere")
            assert bench.states() == {1: READY}
            assert bench.path() == Path("/models/m/1")
            gate.set()
            await bench.manager.wait_until(lambda: bench.path(1) == Path("/elsewhere/m/1"))
            assert bench.path() == Path("/elsewhere/m/1")
            assert old.servable.num_unloads == 0
        await bench.manager.wait_until(lambda: "gone" in bench.history(1))
        assert old.servable.num_unloads == 1
        assert bench.states() == {1: READY}

    play(scenario)


def test_all_versions_of_a_moved_model_go_on_answering() -> None:
    """One of many that serve may be spared, but not while its number has no successor."""

    async def scenario(bench: Bench) -> None:
        bench.aspire(1, 2)
        await bench.wait({1: READY, 2: READY})
        gates = [bench.loaders.hold(1), bench.loaders.hold(2)]
        bench.aspire(1, 2, base="/elsewhere")
        assert [bench.path(version) for version in (1, 2)] == [
            Path("/models/m/1"),
            Path("/models/m/2"),
        ]
        gates[1].set()
        await bench.manager.wait_until(lambda: bench.path(2) == Path("/elsewhere/m/2"))
        assert bench.path(1) == Path("/models/m/1")
        gates[0].set()
        await bench.manager.wait_until(lambda: bench.path(1) == Path("/elsewhere/m/1"))

    play(scenario)


def test_where_memory_holds_one_copy_a_moved_version_unloads_first() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        bench.aspire(1, base="/elsewhere")
        with pytest.raises(NotFound):
            bench.acquire()
        await bench.wait({1: READY})
        assert bench.path() == Path("/elsewhere/m/1")

    bench = play(scenario, policy=next_resource_preserving)
    assert bench.loaders.max_num_at_once == 1


def test_a_moved_version_that_fails_leaves_the_old_one_serving() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        bench.loaders.fail(1, DataLoss("broken"))
        bench.aspire(1, base="/elsewhere")
        await bench.manager.wait_until(lambda: bench.error(1) is not None)
        assert bench.states() == {1: READY}
        assert bench.path() == Path("/models/m/1")
        bench.aspire(1, base="/third")
        await bench.manager.wait_until(lambda: bench.path() == Path("/third/m/1"))
        assert bench.error(1) is None

    play(scenario)


def test_a_version_that_moves_while_it_loads_is_loaded_from_the_new_place_only() -> None:
    async def scenario(bench: Bench) -> None:
        gate = bench.loaders.hold(1)
        bench.aspire(1)
        bench.aspire(1, base="/elsewhere")
        gate.set()
        await bench.wait({1: READY})
        assert bench.path() == Path("/elsewhere/m/1")

    play(scenario)


@pytest.mark.parametrize("options", [STAYS_PUT, None])
def test_a_renamed_directory_of_a_version_is_no_other_version(
    options: LifecycleOptions | None,
) -> None:
    async def scenario(bench: Bench) -> None:
        for path in ("/models/m/001", "/models/m/1"):
            bench.manager.aspire(Aspired(ModelName("m"), {Version(1): Path(path)}))
            await bench.wait({1: READY})
        assert bench.path() == Path("/models/m/001")

    bench = play(scenario, options=options)
    assert bench.loaders.num_loads[1] == 1


def test_where_the_original_is_wanted_a_version_stays_what_it_was_loaded_from() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        bench.aspire(1, base="/elsewhere")
        bench.aspire(1, 2, base="/elsewhere")
        await bench.wait({1: READY, 2: READY})
        assert bench.path(1) == Path("/models/m/1")

    bench = play(scenario, options=STAYS_PUT)
    assert bench.loaders.num_loads[1] == 1


@pytest.mark.parametrize(
    ("is_retried", "state"), [(True, VersionState.READY), (False, VersionState.FAILED)]
)
def test_a_failed_version_is_tried_again_on_request(is_retried: bool, state: VersionState) -> None:
    options = LifecycleOptions(max_num_load_retries=0, is_failed_version_retried=is_retried)

    async def scenario(bench: Bench) -> None:
        bench.loaders.fail(1, DataLoss("broken"))
        bench.aspire(1)
        await bench.wait({1: FAILED})
        bench.manager.retry_failed(ModelName("m"))
        await bench.wait({1: state})

    play(scenario, options=options)


def test_what_has_ended_is_told_once() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        bench.loaders.fail(2, DataLoss("broken"))
        bench.aspire(2)
        await bench.wait({1: READY, 2: FAILED})
        assert bench.retired() == []
        bench.aspire(3)
        await bench.wait({1: GONE, 2: FAILED, 3: READY})
        bench.aspire(3, base="/elsewhere")
        await bench.manager.wait_until(lambda: bench.history(3).count("gone") == 1)

    bench = play(scenario)
    assert sorted(bench.retired()) == [
        "/elsewhere/m/3",
        "/models/m/1",
        "/models/m/2",
        "/models/m/3",
    ]


def test_nobody_waits_for_a_retry_that_nobody_wants() -> None:
    async def scenario(bench: Bench) -> None:
        bench.loaders.fail(1, DataLoss("broken"))
        bench.aspire(1)
        await bench.manager.wait_until(lambda: bench.error(1) is not None)
        bench.aspire()
        await bench.wait({1: FAILED})
        assert str(bench.error(1)) == "DATA_LOSS: broken"

    bench = play(scenario, max_num_load_retries=5, load_retry_interval_s=AN_HOUR_S)
    assert bench.loaders.num_loads[1] == 1


def test_a_try_that_fails_after_nobody_wants_it_is_the_last() -> None:
    async def scenario(bench: Bench) -> None:
        bench.loaders.fail(1, DataLoss("broken"))
        gate = bench.loaders.hold(1)
        bench.aspire(1)
        bench.aspire()
        gate.set()
        await bench.wait({1: FAILED})

    bench = play(scenario, max_num_load_retries=5)
    assert bench.loaders.num_loads[1] == 1


def test_a_load_that_succeeds_after_nobody_wants_it_is_cancelled_and_freed() -> None:
    async def scenario(bench: Bench) -> None:
        gate = bench.loaders.hold(1)
        bench.aspire(1)
        bench.aspire()
        assert bench.states() == {1: LOADING}
        gate.set()
        await bench.wait({1: FAILED})
        assert str(bench.error(1)) == "CANCELLED: Loading of servable cancelled"
        (servable,) = bench.loaders.servables
        assert servable.num_unloads == 1
        with pytest.raises(NotFound):
            bench.acquire(1)

    bench = play(scenario)
    assert bench.history(1) == ["new", "loading", "failed"]


def test_a_version_wanted_again_while_it_loads_for_nobody_is_loaded_afresh_afterwards() -> None:
    async def scenario(bench: Bench) -> None:
        gate = bench.loaders.hold(1)
        bench.aspire(1)
        bench.aspire()
        bench.aspire(1)
        assert bench.states() == {1: LOADING}
        gate.set()
        await bench.wait({1: READY})
        first, second = bench.loaders.servables
        assert (first.num_unloads, second.num_unloads) == (1, 0)

    bench = play(scenario)
    assert bench.loaders.max_num_at_once == 1


def test_a_version_wanted_again_on_its_way_out_waits_until_it_is_gone() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        lease = bench.acquire()
        bench.aspire()
        bench.aspire(1, 2)
        assert bench.states() == {1: DRAINING}
        lease.servable.unload_gate.clear()
        lease.release()
        assert bench.states() == {1: UNLOADING}
        lease.servable.unload_gate.set()
        await bench.wait({1: READY, 2: READY})

    bench = play(scenario)
    assert bench.history(1)[:-3] == [
        "new", "loading", "ready", "draining", "unloading", "gone", "new", "loading", "ready",
    ]  # fmt: skip


def test_only_the_latest_of_several_sets_that_wait_counts() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        lease = bench.acquire()
        bench.aspire()
        bench.aspire(1, 2)
        bench.aspire(3)
        await bench.wait({1: DRAINING, 3: READY})
        lease.release()
        await bench.wait({1: GONE, 3: READY})

    play(scenario)


def test_a_version_that_waits_for_memory_is_dropped_without_a_load() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        lease = bench.acquire()
        bench.aspire(2)
        assert bench.states() == {1: DRAINING, 2: NEW}
        bench.aspire(3)
        assert bench.states() == {1: DRAINING, 2: GONE, 3: NEW}
        lease.release()
        await bench.wait({1: GONE, 2: GONE, 3: READY})

    bench = play(scenario, policy=next_resource_preserving)
    assert bench.loaders.num_loads[2] == 0


def test_a_foreign_exception_is_an_unknown_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        bench.loaders.fail(1, ValueError("no such layer"))
        bench.aspire(1)
        await bench.wait({1: FAILED})
        assert isinstance(bench.error(1), Unknown)
        assert str(bench.error(1)) == "UNKNOWN: ValueError: no such layer"

    play(scenario)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


def test_an_unload_that_fails_is_logged_and_over(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(servable: FakeServable) -> None:
        servable.num_unloads += 1
        raise ValueError("device lost")

    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        monkeypatch.setattr(FakeServable, "unload", fail)
        bench.aspire()
        await bench.wait({1: GONE})

    play(scenario)
    (record,) = caplog.records
    assert "device lost" in caplog.text
    assert record.levelno == logging.ERROR


def test_stop_waits_for_leases_and_unloads_everything() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        bench.aspire(1, name="other")
        await bench.wait({1: READY})
        await bench.wait({1: READY}, name="other")
        lease = bench.acquire()
        stopping = asyncio.ensure_future(bench.manager.stop())
        await bench.wait({1: GONE}, name="other")
        assert bench.states() == {1: DRAINING}
        assert not stopping.done()
        lease.release()
        await stopping
        assert bench.states() == {1: GONE}
        assert lease.servable.num_unloads == 1

    play(scenario)


def test_stop_frees_what_is_being_loaded() -> None:
    async def scenario(bench: Bench) -> None:
        gate = bench.loaders.hold(1)
        bench.aspire(1)
        stopping = asyncio.ensure_future(bench.manager.stop())
        gate.set()
        await stopping
        (servable,) = bench.loaders.servables
        assert servable.num_unloads == 1
        assert bench.states() == {1: FAILED}

    play(scenario)


def test_stop_does_not_wait_for_a_retry() -> None:
    async def scenario(bench: Bench) -> None:
        bench.loaders.fail(1, DataLoss("broken"))
        bench.aspire(1)
        await bench.manager.wait_until(lambda: bench.error(1) is not None)
        await bench.manager.stop()
        assert bench.states() == {1: FAILED}

    play(scenario, max_num_load_retries=5, load_retry_interval_s=AN_HOUR_S)


def test_an_unloaded_servable_is_let_go() -> None:
    async def scenario(bench: Bench) -> None:
        bench.aspire(1)
        await bench.wait({1: READY})
        freed = threading.Event()
        weakref.finalize(bench.loaders.servables.pop(), freed.set)
        bench.aspire()
        await bench.wait({1: GONE})
        assert await asyncio.to_thread(freed.wait, 30.0)

    play(scenario)


def test_waiting_ends_at_once_where_the_condition_holds() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.manager.wait_until(lambda: True)

    play(scenario)


def test_several_may_wait_and_one_may_give_up() -> None:
    async def scenario(bench: Bench) -> None:
        gate = bench.loaders.hold(1)
        bench.aspire(1)
        patient = asyncio.ensure_future(bench.wait({1: READY}))
        impatient = asyncio.ensure_future(bench.wait({1: READY}))
        await asyncio.sleep(0)
        impatient.cancel()
        gate.set()
        await patient
        assert bench.states() == {1: READY}
        with pytest.raises(asyncio.CancelledError):
            await impatient

    play(scenario)
