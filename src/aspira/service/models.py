"""Which models there are: their configuration, its reload, their status and metadata."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from aspira.contracts.errors import FailedPrecondition, NotFound, ServingError, Unknown, shorten
from aspira.contracts.events import ConfigApplied, ConfigApplying, EventBus
from aspira.contracts.identity import ModelName, ModelSpec, ServableId, Version
from aspira.contracts.signatures import Signature, SignatureTable
from aspira.lifecycle.filesystem_source import FilesystemSource
from aspira.lifecycle.version_record import VersionStatus
from aspira.lifecycle.version_state import VersionState
from aspira.llm.servable import LanguageModel
from aspira.routing.table import RoutingTable, choose_version
from aspira.service.inference import InferenceService, ServableLease, ServableManager
from aspira.service.model_config import LANGUAGE_MODEL_PLATFORM, ModelConfigs, check_transition
from aspira.service.options import ServiceOptions

WIRE_STATES: Mapping[VersionState, str] = MappingProxyType(
    {
        VersionState.NEW: "START",
        VersionState.LOADING: "LOADING",
        VersionState.READY: "AVAILABLE",
        VersionState.DRAINING: "UNLOADING",
        VersionState.UNLOADING: "UNLOADING",
        VersionState.GONE: "END",
        VersionState.FAILED: "END",
    }
)
"""The names that `ModelVersionStatus` gives to states."""


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """A loaded version and what it can be asked."""

    servable_id: ServableId
    signatures: Mapping[str, Signature]
    is_language_model: bool = False


class ModelsService:
    """Applies configurations, and answers questions about models. Event loop only."""

    def __init__(
        self,
        manager: ServableManager,
        *,
        source: FilesystemSource,
        inference: InferenceService,
        allow_labels_for_unavailable: bool,
        options: ServiceOptions,
        events: EventBus,
    ) -> None:
        self._manager = manager
        self._source = source
        self._router = inference.router
        self._inference = inference
        self._allow_labels_for_unavailable = allow_labels_for_unavailable
        self._options = options
        self._events = events
        self._configs: ModelConfigs = {}
        self._reloading = asyncio.Lock()

    @property
    def configs(self) -> ModelConfigs:
        """The configuration in force."""
        return self._configs

    def must_generate(self, name: ModelName) -> bool:
        """Whether a model is configured as a language model. Any thread."""
        config = self._configs.get(name)
        return config is not None and config.platform == LANGUAGE_MODEL_PLATFORM

    async def start(self, configs: ModelConfigs) -> None:
        """Apply the first configuration and begin to watch.

        Raises:
            FailedPrecondition: labels name versions to come, and may not.
        """
        self._check_labels(configs)
        self._apply(configs)
        await self._source.start()

    async def wait_started(self) -> None:
        """After `start`: until each model is settled, or available if every model is awaited.

        Raises:
            Unknown: every model is awaited, and some failed.
        """
        configs = self._configs
        if self._options.is_every_model_awaited:
            await self._wait_decided(configs)
            self._raise_for_unavailable(configs, noun="servable(s)")
        await self.wait_settled(configs)
        self._events.publish(ConfigApplied())

    async def reload(self, configs: ModelConfigs) -> None:
        """Replace the configuration; returns once each added model is settled.

        Versions that have failed are tried again, whether or not anything changed.

        Raises:
            InvalidArgument, FailedPrecondition: refused, and nothing was changed.
            Unknown: applied, but an added model did not become available.
        """
        async with self._reloading:
            check_transition(self._configs, after=configs)
            self._check_labels(configs)
            added = configs.keys() - self._configs.keys()
            self._apply(configs)
            # Before the look, which may find versions that fail at once: not those again.
            for name in configs:
                self._manager.retry_failed(name)
            await self._source.scan_closely()
            if self._options.is_every_model_awaited:
                await self._wait_decided(added)
        await self.wait_settled(added)
        self._raise_for_unavailable(added, noun="model(s)")
        self._events.publish(ConfigApplied())

    async def wait_settled(self, names: Iterable[ModelName]) -> None:
        """Until each model is available, has failed, or turns out to have no version."""
        wanted = list(names)
        await self._manager.wait_until(lambda: all(self.is_settled(name) for name in wanted))

    def is_settled(self, name: ModelName) -> bool:
        """Whether waiting longer would not tell more: a failure counts, retries or not."""
        listing = self._source.listing(name)
        if listing is None:
            return name not in self._configs
        if not listing.versions:
            return True
        found = self._found_statuses(name)
        if any(status.state is VersionState.READY for status in found):
            return True
        return len(found) >= len(listing.versions) and all(s.error is not None for s in found)

    async def _wait_decided(self, names: Iterable[ModelName]) -> None:
        """Until the newest version of each model that is ready or has ended is found."""
        wanted = list(names)
        await self._manager.wait_until(lambda: all(self._is_decided(name) for name in wanted))

    def _is_decided(self, name: ModelName) -> bool:
        states = [status.state for status in self._found_statuses(name)]
        return any(state is VersionState.READY or state.is_final for state in states)

    def _found_statuses(self, name: ModelName) -> list[VersionStatus]:
        """Of the versions that are there now."""
        listing = self._source.listing(name)
        found = (listing.versions if listing is not None else None) or {}
        return [status for status in self._manager.statuses(name) if status.version in found]

    def can_serve(self) -> bool:
        """Whether some configured model can answer, or none is configured.

        One broken model must not take the others out of a load balancer's rotation.
        """
        return not self._configs or len(self.unavailable()) < len(self._configs)

    def unavailable(self) -> dict[ModelName, str]:
        """The configured models of which no version can answer, each with the reason, as known."""
        able = {
            servable_id.name
            for servable_id, servable in self._manager.ready()
            if servable.find_problem() is None
        }
        return {name: self._reason(name) for name in self._configs if name not in able}

    def lost(self) -> dict[str, str]:
        """The loaded versions that only a new process can make answer again, with the reasons."""
        return {
            str(servable_id): str(servable.find_problem())
            for servable_id, servable in self._manager.ready()
            if servable.is_lost
        }

    def ready_of(self, kind: type) -> list[ModelName]:
        """The models of one kind, those of them that are loaded, in order of their names."""
        ready = self._manager.ready()
        return sorted({found.name for found, one in ready if isinstance(one, kind)})

    def statuses(self, spec: ModelSpec) -> list[VersionStatus]:
        """Every known version of a model, newest first, or the one that was asked for.

        Raises:
            NotFound: there is none.
            InvalidArgument: an unknown label.
        """
        if not self._options.is_label_told_apart:
            spec = spec._replace(label=None)
        wanted = choose_version(self._router.table, spec=spec)
        known = [self._told(status) for status in self._manager.statuses(spec.name)]
        if wanted is None:
            if not known:
                raise NotFound(f"Could not find any versions of model {shorten(spec.name)}")
            return known
        found = [status for status in known if status.version == wanted]
        if not found:
            raise NotFound(f"Could not find version {wanted} of model {shorten(spec.name)}")
        return found

    def _told(self, status: VersionStatus) -> VersionStatus:
        is_told = self._options.is_retry_told or status.state is VersionState.FAILED
        return status if is_told else replace(status, error=None)

    def metadata(self, spec: ModelSpec) -> ModelMetadata:
        """The signatures of a loaded version, with those that nobody can ask.

        Raises:
            NotFound: no such model or version is ready.
        """
        with self._inference.lease(spec) as lease:
            signatures = lease.servable.signatures
            if isinstance(signatures, SignatureTable):
                signatures = signatures.listed()
            is_language_model = isinstance(lease.servable, LanguageModel)
            return ModelMetadata(lease.servable_id, signatures, is_language_model)

    def check_ready(self, spec: ModelSpec) -> None:
        """Whether a version can answer now.

        Raises:
            ServingError: why not.
        """
        with self._inference.lease(spec) as lease:
            problem = lease.servable.find_problem()
        if problem is not None:
            raise problem

    def ready_versions(self, name: ModelName) -> list[Version]:
        """The versions of a model that are loaded, in order."""
        ready = self._manager.ready()
        return sorted(found.version for found, _ in ready if found.name == name)

    def lease(self, spec: ModelSpec) -> ServableLease:
        """See `InferenceService.lease`."""
        return self._inference.lease(spec)

    def _apply(self, configs: ModelConfigs) -> None:
        self._events.publish(ConfigApplying(tuple(configs)))
        self._configs = configs
        self._source.set_models(config.model for config in configs.values())
        labels = {name: config.labels for name, config in configs.items() if config.labels}
        self._router.table = RoutingTable(labels, configs.keys())

    def _check_labels(self, configs: ModelConfigs) -> None:
        """A label of a model that is served already may only move to an available version."""
        is_early_checked = not self._options.is_early_label_accepted
        for name in configs if is_early_checked else configs.keys() & self._configs.keys():
            bound = self._configs[name].labels if name in self._configs else {}
            for label, version in configs[name].labels.items():
                is_new = bound.get(label, version) == version
                if is_new and self._allow_labels_for_unavailable:
                    continue
                if bound.get(label) != version and not self._is_ready(name, version=version):
                    raise FailedPrecondition(
                        f"Request to assign label to version {version} of model {name}, "
                        "which is not currently available for inference"
                    )

    def _is_ready(self, name: ModelName, *, version: Version) -> bool:
        return any(
            status.version == version and status.state is VersionState.READY
            for status in self._manager.statuses(name)
        )

    def _raise_for_unavailable(self, names: Iterable[ModelName], *, noun: str) -> None:
        failed = sorted(name for name in self.unavailable() if name in set(names))
        if failed:
            reasons = "".join(f"{{{self._reason(name)}}}, " for name in failed)
            raise Unknown(f"{len(failed)} {noun} did not become available: {reasons}}}")

    def _reason(self, name: ModelName) -> str:
        listing = self._source.listing(name)
        for servable_id, servable in self._manager.ready():
            problem = servable.find_problem() if servable_id.name == name else None
            if problem is not None:
                return _due_to(servable_id, error=problem)
        for status in self._manager.statuses(name):
            if status.error is not None:
                return _due_to(ServableId(name, status.version), error=status.error)
        if listing is not None and listing.problem:
            return f"{{name: {name}}} due to error: NOT_FOUND: {listing.problem}"
        return f"{{name: {name}}} is still loading"


def _due_to(servable_id: ServableId, *, error: ServingError) -> str:
    return f"{servable_id} due to error: {error}"
