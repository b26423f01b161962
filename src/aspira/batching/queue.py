"""The requests of one version that wait, and the next batch to run of them.

Not thread-safe: the scheduler holds a lock around it. Requests that can share a run are of one
kind and wait in one line, by priority and age; of the kinds that are ready, the one whose first
request has waited longest is next.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from aspira.batching.assemble import Shapes
from aspira.batching.cost_model import CostModel
from aspira.batching.options import BatchingParameters
from aspira.contracts.tensors import Tensors

# Requests that cannot share a run are still taken together, as far as it makes nobody wait longer
# than it takes to wake another thread.
_BUNDLE_S = 100e-6
_MAX_BUNDLE = 32
_MAX_EMPTY_LINES = 64
# One step of priority is worth this much waiting: the less urgent is late, but never forgotten.
_PRIORITY_STEP_S = 0.1


class Kind(NamedTuple):
    """What requests have in common that can share a run."""

    signature_name: str
    outputs: tuple[str, ...]
    shapes: Shapes | None
    """None: nothing is shared, every request of this kind is a run of its own."""


@dataclass(slots=True)
class Work:
    """One request. `deadline` and `arrival` are in seconds of the scheduler's clock.

    `priority` is 0 for most, more for the more urgent. A request that is spread over several runs
    collects their outputs in `parts`, by their first row. One that is not is a piece itself.
    """

    begin: ClassVar[int] = 0

    kind: Kind
    inputs: Tensors
    num_rows: int
    num_bytes: int
    deadline: float | None
    future: asyncio.Future[Tensors]
    arrival: float = 0.0
    priority: int = 0
    next_row: int = 0
    num_done: int = 0
    is_failed: bool = False
    parts: dict[int, Tensors] | None = None

    @property
    def work(self) -> "Work":
        return self

    @property
    def end(self) -> int:
        return self.num_rows

    @property
    def rank(self) -> float:
        """Where it stands in line: the lower, the sooner."""
        return self.arrival - self.priority * _PRIORITY_STEP_S


class Part(NamedTuple):
    """The rows of a spread request that are in a batch."""

    work: Work
    begin: int
    end: int

    @property
    def inputs(self) -> Tensors:
        return self.work.inputs


# Nearly every request is in one batch as a whole.
Piece = Work | Part


class Batch(NamedTuple):
    """What one run is made of: at least one piece. If its kind shares nothing, as many runs."""

    kind: Kind
    pieces: Sequence[Piece]
    num_rows: int


class _Line:
    """Requests of one kind; those of each priority in order of arrival."""

    __slots__ = ("_lanes", "num_rows", "num_works", "only_lane")

    def __init__(self) -> None:
        self.num_rows = 0
        self.num_works = 0
        self._lanes: dict[int, deque[Work]] = {}
        # As long as all are of one priority.
        self.only_lane: deque[Work] | None = None

    def lane_of(self, priority: int) -> deque[Work]:
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._lanes[priority] = deque()
            self.only_lane = lane if len(self._lanes) == 1 else None
        return lane

    def first_lane(self) -> deque[Work]:
        """The one whose first request is next."""
        if self.only_lane is not None:
            return self.only_lane
        lanes = self._lanes.values()
        return min((lane for lane in lanes if lane), key=lambda lane: lane[0].rank)

    def works(self) -> list[Work]:
        return [work for lane in self._lanes.values() for work in lane]

    @property
    def rank(self) -> float:
        return self.first_lane()[0].rank

    @property
    def oldest_arrival(self) -> float:
        return min(lane[0].arrival for lane in self._lanes.values() if lane)


class WorkQueue:
    """`parameters` None: nothing is merged. `rows_limit` may be set lower than they allow."""

    def __init__(self, parameters: BatchingParameters | None, *, cost_model: CostModel) -> None:
        self._cost_model = cost_model
        self._max_rows = parameters.execution_size if parameters else 1
        self._can_split = bool(parameters and parameters.can_split)
        self._timeout_s = parameters.batch_timeout_s if parameters else 0.0
        self._lines: dict[Kind, _Line] = {}
        self.rows_limit = self._max_rows
        self.num_requests = 0
        self.num_rows = 0
        self.num_bytes = 0

    def rows_of(self, kind: Kind) -> int:
        """Rows that wait in one line."""
        line = self._lines.get(kind)
        return line.num_rows if line is not None else 0

    def oldest_arrival(self) -> float | None:
        """When the request that has waited longest came; None if none waits."""
        lines = (line for line in self._lines.values() if line.num_works)
        return min((line.oldest_arrival for line in lines), default=None)

    def add(self, work: Work) -> None:
        """Let it wait."""
        self._count_in(work).lane_of(work.priority).append(work)

    def put_back(self, pieces: Sequence[Piece]) -> None:
        """Let requests wait again that were taken whole, before all others of their kind."""
        for piece in reversed(pieces):
            work = piece.work
            self._count_in(work).lane_of(work.priority).appendleft(work)

    def take(self, *, now: float, is_closing: bool = False) -> tuple[Batch | None, list[Work]]:
        """The next batch, and the requests on the way to it that cannot be answered in time."""
        late: list[Work] = []
        while self.num_requests:
            kind = self._choose(now, is_closing=is_closing)
            if kind is None:
                break
            fill = self._fill_singles if kind.shapes is None else self._fill
            batch = fill(kind, now=now, late=late)
            # Clients choose what they ask for: lines that nobody stands in must not pile up.
            if len(self._lines) > _MAX_EMPTY_LINES and not self._lines[kind].num_works:
                del self._lines[kind]
            if batch is not None:
                return batch, late
        return None, late

    def clear(self) -> list[Work]:
        """Every request that waits; none does afterwards."""
        works = [work for line in self._lines.values() for work in line.works()]
        self._lines.clear()
        self.num_requests = self.num_rows = self.num_bytes = 0
        return works

    def next_ready(self) -> float | None:
        """When a batch that is not full will be old enough to go; None if nothing waits."""
        oldest = self.oldest_arrival()
        return None if oldest is None else oldest + self._timeout_s

    def _choose(self, now: float, *, is_closing: bool) -> Kind | None:
        """The kind to run next, of those that are ready."""
        best, best_rank = None, 0.0
        lines = self._lines
        for kind, line in lines.items():
            is_waiting = kind.shapes is not None and not is_closing
            if not line.num_works or (is_waiting and not self._is_ready(line, now=now)):
                continue
            if len(lines) == 1:
                return kind
            rank = line.rank
            if best is None or rank < best_rank:
                best, best_rank = kind, rank
        return best

    def _is_ready(self, line: _Line, *, now: float) -> bool:
        """Whether it has waited for company long enough."""
        if not self._timeout_s or line.num_rows >= self.rows_limit:
            return True
        return now >= line.oldest_arrival + self._timeout_s

    def _fill(self, kind: Kind, *, now: float, late: list[Work]) -> Batch | None:
        """As many rows as fit in a batch; None if nobody waits for any of them."""
        line = self._lines[kind]
        room, num_rows = self.rows_limit, 0
        pieces: list[Piece] = []
        while line.num_works and room > 0:
            lane = line.first_lane()
            work = lane[0]
            if self._is_over(work, now=now, late=late):
                self._remove(work, lane=lane, line=line)
                continue
            size = work.num_rows - work.next_row
            if size <= room or (not pieces and not self._can_split):
                pieces.append(Part(work, work.next_row, work.num_rows) if work.next_row else work)
                self._remove(work, lane=lane, line=line)
            elif self._can_split:
                size = room
                pieces.append(self._take_part(work, num_rows=size, line=line))
            else:
                break
            room -= size
            num_rows += size
        return Batch(kind, pieces, num_rows) if pieces else None

    def _fill_singles(self, kind: Kind, *, now: float, late: list[Work]) -> Batch | None:
        """Requests to be run one by one: the shortest way, since each of them comes along it."""
        line = self._lines[kind]
        room = self._bundle_size()
        pieces: list[Piece] = []
        while line.num_works and len(pieces) < room:
            lane = line.only_lane or line.first_lane()
            work = lane[0]
            if (work.deadline is None and not work.future.done()) or not self._is_over(
                work, now=now, late=late
            ):
                pieces.append(work)
            lane.popleft()
            line.num_works -= 1
            line.num_rows -= 1
            self.num_requests -= 1
            self.num_rows -= 1
            self.num_bytes -= work.num_bytes
        return Batch(kind, pieces, len(pieces)) if pieces else None

    def _bundle_size(self) -> int:
        run_s = self._cost_model.seconds_per_row
        return min(max(int(_BUNDLE_S / run_s), 1), _MAX_BUNDLE) if run_s else 1

    def _take_part(self, work: Work, *, num_rows: int, line: _Line) -> Part:
        begin = work.next_row
        work.next_row += num_rows
        line.num_rows -= num_rows
        self.num_rows -= num_rows
        return Part(work, begin, work.next_row)

    def _count_in(self, work: Work) -> _Line:
        """The line to put it into."""
        line = self._lines.get(work.kind)
        if line is None:
            line = self._lines[work.kind] = _Line()
        line.num_rows += work.num_rows
        line.num_works += 1
        self.num_rows += work.num_rows
        self.num_requests += 1
        self.num_bytes += work.num_bytes
        return line

    def _remove(self, work: Work, *, lane: deque[Work], line: _Line) -> None:
        lane.popleft()
        num_rows = work.num_rows - work.next_row
        line.num_rows -= num_rows
        line.num_works -= 1
        self.num_rows -= num_rows
        self.num_requests -= 1
        self.num_bytes -= work.num_bytes

    def _is_over(self, work: Work, *, now: float, late: list[Work]) -> bool:
        """Whether nobody waits for it, or it cannot be answered by its deadline (then it is late).

        An estimate counts only while others wait for the same threads: with nobody to make room
        for, it may be put to the test.
        """
        if work.is_failed or work.future.done():
            return True
        if work.deadline is None:
            return False
        cost = self._cost_model.cost
        is_contested = self.num_requests > 1
        run_s = cost.run_s(work.num_rows) if cost is not None and is_contested else 0.0
        if now + run_s < work.deadline:
            return False
        late.append(work)
        return True
