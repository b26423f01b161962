"""Compares the versions that are aspired with those that are loaded, and closes the gap.

All decisions run on the event loop, so there are no locks: a request takes its lease with two
dictionary look-ups, whatever loads or unloads meanwhile. Only `load` and `unload` of a version
run on threads, in two pools, so that a long load never delays an unload.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Generic, Protocol

from aspira.contracts.errors import Cancelled, NotFound, ServingError, Unknown, shorten
from aspira.contracts.events import (
    EventBus,
    LoadAttemptFailed,
    VersionRetired,
    VersionStateChanged,
)
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.contracts.servable import LoadedT, LoadedT_co, Loader
from aspira.lifecycle.lease import Lease
from aspira.lifecycle.options import LifecycleOptions
from aspira.lifecycle.source import Aspired
from aspira.lifecycle.transition_policy import (
    Action,
    ActionKind,
    TransitionPolicy,
    next_availability_preserving,
)
from aspira.lifecycle.version_record import ModelRecord, VersionRecord, VersionStatus
from aspira.lifecycle.version_state import VersionState, next_state


class LoaderFactory(Protocol[LoadedT_co]):
    """Makes the loader of one version; cheap, called on the event loop."""

    def __call__(self, servable_id: ServableId, *, path: Path) -> Loader[LoadedT_co]: ...


_logger = logging.getLogger(__name__)


class Manager(Generic[LoadedT]):
    """Owns every loaded version. All methods are for the event loop."""

    def __init__(
        self,
        make_loader: LoaderFactory[LoadedT],
        *,
        options: LifecycleOptions,
        events: EventBus,
        policy: TransitionPolicy = next_availability_preserving,
    ) -> None:
        self._make_loader = make_loader
        self._options = options
        self._events = events
        self._policy = policy
        self._models: dict[ModelName, ModelRecord[LoadedT]] = {}
        self._load_pool = ThreadPoolExecutor(options.load_pool_size, "aspira-load")
        self._unload_pool = ThreadPoolExecutor(options.unload_pool_size, "aspira-unload")
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: list[asyncio.Future[None]] = []

    def aspire(self, aspired: Aspired) -> None:
        """State the whole set of versions of a model that ought to be loaded."""
        model = self._models.setdefault(aspired.model_name, ModelRecord())
        if not self._options.is_failed_version_retried:
            aspired = replace(aspired, stamps={})
        model.pending = aspired
        self._advance(aspired.model_name)

    def acquire(self, model_name: ModelName, *, version: Version | None) -> Lease[LoadedT]:
        """Lease a ready version; None means the newest.

        Raises:
            NotFound: no such version is ready.
        """
        model = self._models.get(model_name)
        record = None
        if model is not None:
            record = model.newest_ready if version is None else model.ready.get(version)
        if record is None:
            raise _not_found(model_name, version=version)
        return Lease(record, on_last_release=self._end_last_lease)

    def ready(self) -> list[tuple[ServableId, LoadedT]]:
        """Every version that can serve. Safe on any thread."""
        # Copying a dictionary is one step under the interpreter's lock.
        records = [r for model in self._models.copy().values() for r in model.ready.copy().values()]
        return [(r.servable_id, r.servable) for r in records if r.servable is not None]

    def model_names(self) -> list[ModelName]:
        """Every model that was ever aspired, in the order of first mention."""
        return list(self._models)

    def statuses(self, model_name: ModelName) -> list[VersionStatus]:
        """Every version ever managed, newest first; those unloaded or failed stay listed."""
        model = self._models.get(model_name)
        if model is None:
            return []
        return [model.status(version) for version in sorted(model.versions, reverse=True)]

    def retry_failed(self, model_name: ModelName) -> None:
        """Try the wanted versions of a model that have failed once more, as if they were new."""
        model = self._models.get(model_name)
        if model is None or not self._options.is_failed_version_retried:
            return
        for version, record in model.versions.items():
            if record.is_aspired and record.state is VersionState.FAILED:
                again = VersionRecord[LoadedT](record.servable_id, record.path, stamp=record.stamp)
                model.versions[version] = again
                self._announce(again)
        self._advance(model_name)

    async def wait_until(self, is_met: Callable[[], bool]) -> None:
        """Return once the condition holds; it is looked at after every change of a state."""
        while not is_met():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def stop(self) -> None:
        """Unload everything, each version when its last lease ends, and end the threads.

        Waits for loads too, which cannot be cut short: a caller in a hurry sets a bound.
        """
        for model_name in self.model_names():
            self.aspire(Aspired(model_name, {}))
        try:
            await self.wait_until(lambda: all(m.is_idle() for m in self._models.values()))
        finally:
            for task in self._tasks:
                task.cancel()
            self._load_pool.shutdown(wait=False, cancel_futures=True)
            self._unload_pool.shutdown(wait=False, cancel_futures=True)

    def _advance(self, model_name: ModelName) -> None:
        model = self._models[model_name]
        _apply_pending(model, options=self._options, on_change=self._announce)
        while (action := self._policy(model.snapshots())) is not None:
            self._perform(action, model=model)
        self._retire(model)
        self._notify()

    def _perform(self, action: Action, *, model: ModelRecord[LoadedT]) -> None:
        if action.kind is ActionKind.LOAD:
            record = model.versions[action.version]
            self._move(record, state=VersionState.LOADING)
            self._spawn(self._load(record, model=model))
            return
        record = model.spare(action.version)
        model.withdraw(record)
        self._move(record, state=VersionState.DRAINING)
        if record.num_leases == 0:
            self._begin_unload(record)

    async def _load(self, record: VersionRecord[LoadedT], *, model: ModelRecord[LoadedT]) -> None:
        servable = await self._try_load(record)
        if servable is None:
            self._move(record, state=VersionState.FAILED)
        elif record.is_aspired:
            record.servable, record.error = servable, None
            model.publish(record)
            self._move(record, state=VersionState.READY)
        else:
            # Not final before it is freed: a stop waits for it, and so does the next life.
            await self._unload_quietly(servable)
            record.error = Cancelled("Loading of servable cancelled")
            self._move(record, state=VersionState.FAILED)
        self._advance(record.servable_id.name)

    async def _try_load(self, record: VersionRecord[LoadedT]) -> LoadedT | None:
        """The loaded servable, or None with `record.error` set once the tries are used up."""
        loop = asyncio.get_running_loop()
        for retries_left in range(max(self._options.max_num_load_retries, 0), -1, -1):
            try:
                loader = self._make_loader(record.servable_id, path=record.path)
                return await loop.run_in_executor(self._load_pool, loader.load)
            except Exception as error:  # noqa: BLE001 - a loader is foreign code
                record.error = _as_serving_error(error)
            self._events.publish(LoadAttemptFailed(record.servable_id, record.error, retries_left))
            self._notify()
            if retries_left == 0 or await self._is_unaspired_before_retry(record):
                break
        return None

    async def _is_unaspired_before_retry(self, record: VersionRecord[LoadedT]) -> bool:
        try:
            async with asyncio.timeout(max(self._options.load_retry_interval_s, 0.0)):
                await record.woken.wait()
        except TimeoutError:
            pass
        record.woken.clear()
        return not record.is_aspired

    def _end_last_lease(self, record: VersionRecord[LoadedT]) -> None:
        if record.state is VersionState.DRAINING:
            self._begin_unload(record)

    def _begin_unload(self, record: VersionRecord[LoadedT]) -> None:
        self._move(record, state=VersionState.UNLOADING)
        self._spawn(self._unload(record))

    async def _unload(self, record: VersionRecord[LoadedT]) -> None:
        servable, record.servable = record.servable, None
        if servable is not None:
            await self._unload_quietly(servable)
            del servable
        self._move(record, state=VersionState.GONE)
        self._advance(record.servable_id.name)

    async def _unload_quietly(self, servable: LoadedT) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._unload_pool, servable.unload)
        except Exception:  # an unload that fails must not keep the next version from loading
            _logger.exception("Unloading failed; its memory may not have been freed")

    def _move(self, record: VersionRecord[LoadedT], *, state: VersionState) -> None:
        record.state = next_state(record.state, wanted=state)
        self._announce(record)
        self._notify()

    def _announce(self, record: VersionRecord[LoadedT]) -> None:
        before, record.told_state = record.told_state, record.state
        self._events.publish(
            VersionStateChanged(
                record.servable_id,
                record.state.value,
                record.error,
                previous_state=before.value if before else None,
            )
        )

    def _retire(self, model: ModelRecord[LoadedT]) -> None:
        """Tell of each version that is over, once. Its status stays known."""
        for record in (*model.replaced, *model.versions.values()):
            if record.is_over and not record.is_retired:
                record.is_retired = True
                self._events.publish(VersionRetired(record.servable_id, str(record.path)))
        model.replaced = [record for record in model.replaced if not record.is_over]

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("A load or unload ended in a bug", exc_info=error)


def _apply_pending(
    model: ModelRecord[LoadedT],
    *,
    options: LifecycleOptions,
    on_change: Callable[[VersionRecord[LoadedT]], None],
) -> None:
    """Make the newest wanted set the aspired one, unless it names a version that is on its way out.

    Such a version cannot be revived; the whole set waits until it is gone. One that was to go but
    still serves, since nothing has replaced it yet, stays.
    """
    aspired = model.pending
    if aspired is None:
        return
    wanted = aspired.versions
    known = [record for version, record in model.versions.items() if version in wanted]
    if any(record.is_leaving and record.state is not VersionState.READY for record in known):
        return
    model.pending = None
    for version, record in model.versions.items():
        if record.is_aspired and version not in wanted:
            _unaspire(record, on_change=on_change)
    for version, path in wanted.items():
        moved = model.versions.get(version)
        if moved is not None and options.is_moved_version_reloaded and moved.is_elsewhere(path):
            _unaspire(moved, on_change=on_change)
            model.replaced.append(model.versions.pop(version))
        _aspire_version(model, version=version, aspired=aspired, on_new=on_change)


def _unaspire(
    record: VersionRecord[LoadedT], *, on_change: Callable[[VersionRecord[LoadedT]], None]
) -> None:
    record.unaspire()
    if record.state is VersionState.NEW:
        record.state = next_state(record.state, wanted=VersionState.GONE)
        on_change(record)


def _aspire_version(
    model: ModelRecord[LoadedT],
    *,
    version: Version,
    aspired: Aspired,
    on_new: Callable[[VersionRecord[LoadedT]], None],
) -> None:
    """Begin a life of a version that has none, or whose last one failed on other files."""
    known, stamp = model.versions.get(version), aspired.stamps.get(version)
    if known is not None and known.is_leaving:
        known.is_aspired = True
    elif known is not None and known.is_aspired and not known.is_worth_retrying(stamp):
        known.restamp(stamp)
    else:
        servable_id = ServableId(aspired.model_name, version)
        record = VersionRecord[LoadedT](servable_id, aspired.versions[version], stamp=stamp)
        model.versions[version] = record
        on_new(record)


def _not_found(model_name: ModelName, *, version: Version | None) -> NotFound:
    name = shorten(model_name)
    choice = f"Latest({name})" if version is None else f"Specific({name}, {version})"
    return NotFound(f"Servable not found for request: {choice}")


def _as_serving_error(error: Exception) -> ServingError:
    if isinstance(error, ServingError):
        return error
    _logger.error("A loader raised an error of its own", exc_info=error)
    return Unknown(f"{type(error).__name__}: {error}")
