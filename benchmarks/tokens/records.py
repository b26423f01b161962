"""What one measurement of a token service gave, and how such figures are put together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from tokens.timelines import Latencies

NOTHING = Latencies(0.0, 0.0, 0.0, 0.0)
QUIET_CPUS = 0.2


@dataclass(frozen=True, slots=True)
class Record:
    """Figures, or an error and zeros."""

    name: str
    """Of the subject."""

    workload: str
    round: int
    error: str = ""
    tokens_per_s: float = 0.0
    first_token: Latencies = NOTHING
    gap: Latencies = NOTHING
    total: Latencies = NOTHING
    num_failed: int = 0
    step_ms: float = 0.0
    """Of bare loops: a step in which no prompt is computed, the median."""

    tokens_per_event: float = 0.0
    cpu_ms: float = 0.0
    """CPU time of server or loop for each token."""

    client_cpu_ms: float = 0.0
    """CPU time of the load generator for each token."""

    memory_mib: float = 0.0
    others_cpus: float = 0.0
    """CPUs that processes outside the benchmark kept busy meanwhile."""

    @property
    def is_quiet(self) -> bool:
        return self.others_cpus <= QUIET_CPUS


@dataclass(frozen=True, slots=True)
class Checks:
    """What is measured of Aspira alone; None where a measurement failed."""

    cached_first_token_ms: tuple[float, ...] | None = None
    """Of 1,000-token prompts whose first 900 tokens are known."""

    uncached_first_token_ms: tuple[float, ...] | None = None
    arrival_gap: Latencies | None = None
    """Gaps of other streams while a prompt as long as the context arrives."""

    arrival_chunk_ms: float | None = None
    """The longest step of such a prompt alone, in the bare loop, but for one in a hundred."""

    arrival_step_ms: float | None = None
    """A step of the other streams alone, in the bare loop."""

    cache_on_s: tuple[float, ...] | None = None
    """CPU seconds of the bare loop for equal loads without a hit, in turns."""

    cache_off_s: tuple[float, ...] | None = None


class Records:
    """The records of a run."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = tuple(records)

    def __iter__(self) -> "Iterable[Record]":
        return iter(self._records)

    def good(self, name: str, *, workload: str) -> Sequence[Record]:
        """Those with figures. Disturbed ones count only where there is no quiet one."""
        found = [
            record
            for record in self._records
            if (record.name, record.workload) == (name, workload) and not record.error
        ]
        return [record for record in found if record.is_quiet] or found

    def try_rate(self, name: str, *, workload: str) -> float | None:
        """Tokens a second: the median of the rounds."""
        found = self.good(name, workload=workload)
        return median(record.tokens_per_s for record in found) if found else None

    def try_ratio(self, over: str, *, under: str, workload: str) -> float | None:
        """Rate over rate; where both were measured in the same rounds, the median of those."""
        above = {r.round: r.tokens_per_s for r in self.good(over, workload=workload)}
        below = {r.round: r.tokens_per_s for r in self.good(under, workload=workload)}
        if not above or not below:
            return None
        pairs = [above[number] / below[number] for number in above if number in below]
        return median(pairs) if pairs else median(above.values()) / median(below.values())

    @property
    def num_disturbed(self) -> int:
        return sum(not record.is_quiet for record in self._records)

    @property
    def errors(self) -> list[str]:
        return [
            f"{record.name}, {record.workload}, round {record.round}: {record.error}"
            for record in self._records
            if record.error
        ]
