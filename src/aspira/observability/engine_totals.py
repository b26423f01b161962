"""The state of each token engine, and totals that do not go back when a version is unloaded."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from threading import Lock
from types import MappingProxyType

from aspira.contracts.generation import GenerationStatistics
from aspira.observability.metrics import Counter, Family, Gauge, Labels

ReadStatistics = Callable[[], GenerationStatistics]

_GAUGES: Mapping[str, str] = MappingProxyType(
    {
        "num_requests_running": "num_requests_running",
        "num_requests_waiting": "num_requests_waiting",
        "kv_cache_usage_perc": "kv_cache_usage",
    }
)
_COUNTERS = (
    "prompt_tokens",
    "generation_tokens",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "num_preemptions",
    "admission_rejections",
    "corrupted_requests",
    "num_runner_rebuilds",
    "num_late_compilations",
    "requests_accepted",
)


class EngineTotals:
    """Any thread. Engines that drain count as those that are ready do."""

    def __init__(self, label_names: tuple[str, ...]) -> None:
        self._label_names = label_names
        self._lock = Lock()
        self._engines: list[tuple[Labels, ReadStatistics]] = []
        self._past: defaultdict[Labels, dict[str, int]] = defaultdict(
            lambda: dict.fromkeys(_COUNTERS, 0)
        )

    def add(self, labels: Labels, *, read: ReadStatistics) -> None:
        """An engine has started."""
        with self._lock:
            self._engines.append((labels, read))

    def retire(self, labels: Labels, *, read: ReadStatistics) -> None:
        """It has ended: from now on its totals are history."""
        with self._lock:
            self._engines.remove((labels, read))
            past, last = self._past[labels], read()
            for name in _COUNTERS:
                past[name] += getattr(last, name)

    def drop(self, start: Labels) -> None:
        """Forget the history of those whose labels begin so."""
        with self._lock:
            for labels in [found for found in self._past if found[: len(start)] == start]:
                del self._past[labels]

    def families(self) -> tuple[Family, ...]:
        """Gauges of the engines that there are, and totals of all that there were."""
        gauges = {name: Gauge(f"aspira:{name}", label_names=self._label_names) for name in _GAUGES}
        counters = {
            name: Counter(f"aspira:{name}_total", label_names=self._label_names)
            for name in _COUNTERS
        }
        with self._lock:
            for labels, past in self._past.items():
                for name, value in past.items():
                    counters[name].increment(labels, by=value)
            for labels, read in self._engines:
                now = read()
                for name, field in _GAUGES.items():
                    gauges[name].find(labels).value += getattr(now, field)
                for name in _COUNTERS:
                    counters[name].increment(labels, by=getattr(now, name))
        return (*gauges.values(), *counters.values())
