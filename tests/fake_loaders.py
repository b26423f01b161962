"""Loaders and servables that do as a test tells them: block, fail, and count."""

import threading
from collections import Counter, defaultdict
from pathlib import Path

from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.testing.toy_servable import ToyServable

# Longer than any test; a load that a test forgot to let go then fails it instead of hanging.
_PATIENCE_S = 60.0


class FakeServable:
    """Counts its unloads, which wait for `unload_gate`."""

    signatures = ToyServable().signatures
    is_lost = False

    def __init__(self, servable_id: ServableId, *, path: Path) -> None:
        self.servable_id = servable_id
        self.path = path
        self.num_unloads = 0
        self.unload_gate = threading.Event()
        self.unload_gate.set()

    def find_problem(self) -> None:
        return None

    def unload(self) -> None:
        assert self.unload_gate.wait(_PATIENCE_S)
        self.num_unloads += 1


class FakeLoaders:
    """A loader factory, by version number whatever the model."""

    def __init__(self) -> None:
        self.num_loads: Counter[int] = Counter()
        self.order: list[ServableId] = []
        self.servables: list[FakeServable] = []
        self.max_num_at_once = 0
        self._num_at_once = 0
        self._errors: defaultdict[int, list[Exception]] = defaultdict(list)
        self._gates: defaultdict[int, threading.Event] = defaultdict(_open_gate)
        self._lock = threading.Lock()

    def fail(self, version: int, *errors: Exception) -> None:
        """Let the next loads of a version raise these, one each."""
        self._errors[version].extend(errors)

    def hold(self, version: int) -> threading.Event:
        """Let loads of a version wait until the event is set."""
        self._gates[version] = threading.Event()
        return self._gates[version]

    def __call__(self, servable_id: ServableId, *, path: Path) -> "FakeLoader":
        return FakeLoader(self, servable_id=servable_id, path=path)

    def load(self, servable_id: ServableId, *, path: Path) -> FakeServable:
        with self._lock:
            self._num_at_once += 1
            self.max_num_at_once = max(self.max_num_at_once, self._num_at_once)
            self.num_loads[servable_id.version] += 1
            self.order.append(servable_id)
        try:
            return self._load(servable_id, path=path)
        finally:
            with self._lock:
                self._num_at_once -= 1

    def _load(self, servable_id: ServableId, *, path: Path) -> FakeServable:
        assert self._gates[servable_id.version].wait(_PATIENCE_S)
        if errors := self._errors[servable_id.version]:
            raise errors.pop(0)
        servable = FakeServable(servable_id, path=path)
        self.servables.append(servable)
        return servable


class FakeLoader:
    """One version of `FakeLoaders`."""

    def __init__(self, loaders: FakeLoaders, *, servable_id: ServableId, path: Path) -> None:
        self._loaders = loaders
        self._servable_id = servable_id
        self._path = path

    def load(self) -> FakeServable:
        return self._loaders.load(self._servable_id, path=self._path)


def make_id(name: str, version: int) -> ServableId:
    return ServableId(ModelName(name), Version(version))


def _open_gate() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate
