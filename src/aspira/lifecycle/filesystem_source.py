"""Watches the base path of each model for numeric version directories.

Each model is listed on its own: a path that is missing, cannot be read or does not answer is
reported, once per change, and touches neither the model's loaded versions nor any other model.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from aspira.contracts.events import EventBus, ModelRemoved, SourceProblem, VersionPending
from aspira.contracts.identity import ModelName, ServableId
from aspira.lifecycle.file_threads import FileThreads
from aspira.lifecycle.listing import Listing, ListModel, MonitoredModel, list_model, unlisted
from aspira.lifecycle.options import LifecycleOptions
from aspira.lifecycle.source import AspireCallback, Aspired
from aspira.lifecycle.version_files import CompletenessRule

_PATIENCE_S = 5.0
# Looks at whether listings come, while patience lasts.
_NUM_LOOKS = 50

_logger = logging.getLogger(__name__)


class FilesystemSource:
    """Lists all base paths at an interval, on threads. Methods: event loop only.

    A listing that takes longer than `patience_s` is reported and no longer waited for; it counts
    whenever it comes, and until then its model is not listed again.
    """

    def __init__(
        self,
        aspire: AspireCallback,
        *,
        events: EventBus,
        options: LifecycleOptions,
        list_model: ListModel = list_model,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._aspire = aspire
        self._events = events
        self._options = options
        self._list_model = list_model
        self._patience_s = patience_s
        self._rule = CompletenessRule(rest_s=options.rest_s, marker=options.ready_marker)
        self._models: dict[ModelName, MonitoredModel] = {}
        self._listings: dict[ModelName, Listing] = {}
        self._in_flight: dict[MonitoredModel, asyncio.Future[Listing]] = {}
        self._scanning = asyncio.Lock()
        self._poll_task: asyncio.Task[None] | None = None
        # Of its own: the loop's pool may be busy with requests for long.
        self._threads = FileThreads("aspira-list")

    async def start(self) -> None:
        """Look once, closely, then keep looking if the interval is positive."""
        await self.scan_closely()
        if self._options.poll_interval_s > 0:
            self._poll_task = asyncio.get_running_loop().create_task(self._poll())

    async def stop(self) -> None:
        """End the looking. What is loaded stays loaded; a listing that hangs is not waited for."""
        task, self._poll_task = self._poll_task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._models = {}

    def set_models(self, models: Iterable[MonitoredModel]) -> None:
        """Replace the watched models. Those left out are unloaded; call `scan` to see new ones."""
        wanted = {model.name: model for model in models}
        for name, before in self._models.items():
            if name not in wanted or wanted[name].base_path != before.base_path:
                self._forget_listing(name)
            if name not in wanted:
                self._events.publish(ModelRemoved(name))
                self._aspire(Aspired(name, {}))
        self._models = wanted

    def listing(self, name: ModelName) -> Listing | None:
        """The last look at a model's base path; None before the first, or if it is not watched."""
        return self._listings.get(name)

    async def scan_closely(self) -> None:
        """As `scan`, and a second time if versions were still being written at the first."""
        await self.scan()
        if self._is_waiting_for_rest():
            await asyncio.sleep(self._rule.rest_s)
            await self.scan()

    async def scan(self) -> None:
        """List every base path once and aspire what was found."""
        async with self._scanning:
            begun = {m: self._begin(m) for m in self._models.values() if m not in self._in_flight}
            await self._wait_answered(begun.values())
            for model, future in begun.items():
                if not future.done() and self._models.get(model.name) == model:
                    self._take(self._unanswered(model), model=model)
            if not self._options.is_model_listed_alone:
                self._take_all_or_nothing(begun)

    def _begin(self, model: MonitoredModel) -> asyncio.Future[Listing]:
        loop = asyncio.get_running_loop()
        before = self._listings.get(model.name)
        self._in_flight[model] = loop.create_future()

        def list_and_tell() -> None:
            try:
                listing = self._list_model(model, rule=self._rule, before=before)
            except Exception:  # a bug met once must not end the discovery of versions
                _logger.exception("Listing %s met a bug", model.base_path)
                listing = unlisted("the server met a bug; its log has the details")
            # A loop that has ended needs no answer.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(partial(self._finish, listing, model=model))

        self._threads.submit(list_and_tell)
        return self._in_flight[model]

    def _finish(self, listing: Listing, *, model: MonitoredModel) -> None:
        self._in_flight.pop(model).set_result(listing)
        if self._options.is_model_listed_alone and self._models.get(model.name) == model:
            self._take(listing, model=model)

    async def _wait_answered(self, futures: Collection[asyncio.Future[Listing]]) -> None:
        """Until all have come, or patience ends. While none comes, ever more threads are tried."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._patience_s
        waiting, num_threads = set(futures), 1
        self._threads.start(min(num_threads, len(waiting)))
        while waiting and loop.time() < ends_s:
            done, waiting = await asyncio.wait(waiting, timeout=self._patience_s / _NUM_LOOKS)
            if not done:
                self._threads.start(min(num_threads, len(waiting)))
                num_threads *= 2

    def _take_all_or_nothing(self, begun: Mapping[MonitoredModel, asyncio.Future[Listing]]) -> None:
        """Nothing is known of any model while the base path of one cannot be listed."""
        if self._in_flight:
            return
        listings = {model: future.result() for model, future in begun.items()}
        failed = {m: listing for m, listing in listings.items() if listing.versions is None}
        for model, listing in (failed or listings).items():
            if self._models.get(model.name) == model:
                self._take(listing, model=model)

    def _take(self, listing: Listing, *, model: MonitoredModel) -> None:
        before = self._listings.get(model.name)
        if before is None and listing.pending and not self._rule.marker:
            # They may be at rest at the next look, and then nothing older is to be loaded first.
            listing = replace(listing, versions=None)
        if before is not None and listing.versions is None:
            looks = {**before.looks, **listing.looks}
            listing = replace(listing, stamps=before.stamps, looks=looks)
        self._listings[model.name] = listing
        if listing.problem != (before.problem if before else ""):
            self._events.publish(SourceProblem(model.name, listing.problem))
        for version, reason in listing.pending.items():
            if before is None or before.pending.get(version) != reason:
                self._events.publish(VersionPending(ServableId(model.name, version), reason))
        if listing.versions is None:
            return
        if before is None or (before.versions, before.stamps) != (listing.versions, listing.stamps):
            self._aspire(Aspired(model.name, listing.versions, listing.stamps))

    def _forget_listing(self, name: ModelName) -> None:
        before = self._listings.pop(name, None)
        if before is not None and before.problem:
            self._events.publish(SourceProblem(name, ""))

    def _unanswered(self, model: MonitoredModel) -> Listing:
        return unlisted(f"{model.base_path} has not answered for {self._patience_s:g} s")

    def _is_waiting_for_rest(self) -> bool:
        is_pending = any(listing.pending for listing in self._listings.values())
        return is_pending and not self._rule.marker

    async def _poll(self) -> None:
        while True:
            is_close = self._is_waiting_for_rest()
            await asyncio.sleep(self._rule.rest_s if is_close else self._options.poll_interval_s)
            try:
                await self.scan()
            except Exception:  # a bug met once must not end the discovery of versions
                _logger.exception("Looking for versions met a bug")
