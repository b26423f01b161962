"""The worker threads of one version: they take batches of its queued requests and run them.

Each version has threads of its own, so a slow model never holds up another. They start when work
comes in and end when the version unloads. An idle thread takes what there is at once, unless a
batch is to wait for company; while all are busy, requests gather.
"""

import asyncio
import logging
import threading
from collections.abc import Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from aspira.batching.admission import Admission, QueueLoad
from aspira.batching.context import BatchingContext
from aspira.batching.cost_model import RunCost
from aspira.batching.deadlines import deadline_exceeded
from aspira.batching.execution import BatchRunner, Run
from aspira.batching.options import BatchingOptions, BatchingParameters
from aspira.batching.queue import Batch, Piece, Work, WorkQueue
from aspira.batching.run_history import RunEnd, RunHistory
from aspira.contracts.errors import ResourceExhausted, ServingError
from aspira.contracts.events import BatchEnded
from aspira.contracts.identity import ServableId
from aspira.cpus import count_cpus

_logger = logging.getLogger(__name__)

# A thread that is woken for less takes the interpreter's lock from those that are at work.
_WORTH_WAKING_S = 200e-6
_RECHECK_S = 1e-3
_SHORT_WAIT_S = 2e-3
_FEW_REQUESTS = 64
_FEW_BYTES = 2**20


class BatchingStatistics(NamedTuple):
    """What a version's queue looks like now. `cost` is None before the first run."""

    num_waiting: int
    max_batch_rows: int
    cost: RunCost | None


class Scheduler:
    """Owns the queue and the threads of one version. `run` is called on them."""

    def __init__(
        self,
        run: Run,
        *,
        servable_id: ServableId,
        options: BatchingOptions,
        parameters: BatchingParameters | None,
        context: BatchingContext,
    ) -> None:
        self._servable_id = servable_id
        self._clock, self._completions, self._events, _ = context
        self._runner = BatchRunner(run, parameters=parameters, clock=self._clock)
        self._num_threads = _count_threads(options, parameters=parameters)
        self._is_merging = parameters is not None
        self._history = RunHistory(options, parameters=parameters)
        self._queue = WorkQueue(parameters, cost_model=self._history.cost_model)
        self._queue.rows_limit = self._history.limit.rows
        self._admission = Admission(options, parameters=parameters)
        self._num_free_rows = (
            min(_FEW_REQUESTS, options.max_queued_requests)
            if parameters is None
            else parameters.execution_size
        )
        # Guards the queue, what is learned, and all that follows.
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        # One token wakes one idle thread.
        self._tokens: SimpleQueue[None] = SimpleQueue()
        self._num_idle = 0
        self._is_closing = False
        self._is_rousing = False
        self._recheck: asyncio.TimerHandle | None = None

    def submit(self, work: Work) -> None:
        """Queue it. Its future is resolved on the loop, unless that gave up on it before.

        Event loop only.

        Raises:
            ServingError: too much waits already.
        """
        now = work.arrival = self._clock.now()
        queue = self._queue
        with self._lock:
            if queue.num_requests and not self._has_room(work):
                self._admit(work, now=now)
            queue.add(work)
            is_seen_to = self._is_rousing or self._is_seen_to
        # Once for all that the loop submits in this round: they may share a run.
        if not is_seen_to:
            self._is_rousing = True
            asyncio.get_running_loop().call_soon(self._rouse_soon)

    def close(self) -> None:
        """Run what is queued, then end the threads. Blocks; nothing may be submitted any more."""
        with self._lock:
            self._is_closing = True
            while self._num_idle:
                self._num_idle -= 1
                self._tokens.put(None)
            threads = list(self._threads)
        for thread in threads:
            thread.join()
        self._threads.clear()
        self._work()

    def statistics(self) -> BatchingStatistics:
        """Safe on any thread."""
        history = self._history
        return BatchingStatistics(self._queue.num_requests, history.limit.rows, history.cost)

    @property
    def is_any_waiting(self) -> bool:
        """Whether a request that comes now has others before it."""
        return self._queue.num_requests > 0

    def _has_room(self, work: Work) -> bool:
        """Whether the queue is so short that no bound can matter. Lock held."""
        queue = self._queue
        num_rows = queue.num_rows + work.num_rows
        is_short = num_rows <= self._num_free_rows and self._waiting_s() < _SHORT_WAIT_S
        return is_short and queue.num_bytes + work.num_bytes < _FEW_BYTES

    def _admit(self, work: Work, *, now: float) -> None:
        """Lock held."""
        queue = self._queue
        oldest = queue.oldest_arrival()
        load = QueueLoad(
            kind_rows=queue.rows_of(work.kind),
            num_requests=queue.num_requests,
            num_rows=queue.num_rows,
            num_bytes=queue.num_bytes,
            oldest_s=now - oldest if oldest is not None else 0.0,
            seconds_per_row=self._history.drain_rate.seconds_per_row,
        )
        self._admission.check(
            load,
            num_rows=work.num_rows,
            num_bytes=work.num_bytes,
            remaining_s=None if work.deadline is None else work.deadline - now,
            now=now,
        )

    def _rouse_soon(self) -> None:
        self._is_rousing = False
        with self._lock:
            is_deferred = not self._rouse()
        if is_deferred and self._recheck is None:
            loop = asyncio.get_running_loop()
            self._recheck = loop.call_later(_RECHECK_S, self._rouse_late)

    def _rouse_late(self) -> None:
        """The work that was too little to wake a thread for may wait behind a slow run."""
        self._recheck = None
        with self._lock:
            oldest = self._queue.oldest_arrival()
            if oldest is not None:
                self._rouse(is_urgent=self._clock.now() - oldest >= _RECHECK_S)
            is_over = oldest is None or self._are_all_awake
        if not is_over:
            loop = asyncio.get_running_loop()
            self._recheck = loop.call_later(_RECHECK_S, self._rouse_late)

    def _rouse(self, *, is_urgent: bool = False) -> bool:
        """Have one more thread look for work, if there is any. Lock held.

        False: there is too little to wake a thread for, as long as another is awake.
        """
        queue = self._queue
        if not queue.num_requests:
            return True
        if not is_urgent and self._is_left_to_awake:
            return False
        if self._num_idle:
            self._num_idle -= 1
            self._tokens.put(None)
        elif len(self._threads) < self._num_threads:
            self._start_thread()
        return True

    @property
    def _is_seen_to(self) -> bool:
        """Whether a thread will come to what waits if none is roused now. Lock held."""
        return self._are_all_awake or (self._recheck is not None and self._is_left_to_awake)

    @property
    def _is_left_to_awake(self) -> bool:
        """Whether one thread is awake, and what waits is not worth waking another. Lock held."""
        is_any_awake = len(self._threads) > self._num_idle
        return is_any_awake and 0.0 < self._waiting_s() < _WORTH_WAKING_S

    @property
    def _are_all_awake(self) -> bool:
        return not self._num_idle and len(self._threads) >= self._num_threads

    def _waiting_s(self) -> float:
        """How long one thread would take for all that waits; 0 if that is not known."""
        return self._queue.num_rows * self._history.cost_model.seconds_per_row

    def _start_thread(self) -> None:
        """Lock held."""
        name = f"{self._servable_id.name}-{self._servable_id.version}-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if self._threads:
                _logger.warning("No more threads can be started; %d have to do", len(self._threads))
                self._num_threads = len(self._threads)
            else:
                self._fail(
                    self._queue.clear(),
                    error=ResourceExhausted("The server cannot start a thread for this model"),
                )
        else:
            self._threads.append(thread)

    def _fail(self, works: Iterable[Work], *, error: ServingError) -> None:
        self._completions.post([(work.future, error) for work in works])

    def _work(self) -> None:
        end: RunEnd | None = None
        while (batch := self._next_batch(end)) is not None:
            end = self._run(batch)
            # The thread may now wait for long: it must not keep a request's tensors alive.
            del batch

    def _next_batch(self, end: RunEnd | None) -> Batch | None:
        """Waits for it; None if there will be no more. `end` is of this thread's last one.

        Both at once, since a thread that asks for the lock twice stands in others' way twice.
        """
        queue = self._queue
        while True:
            now = self._clock.now()
            with self._lock:
                if end is not None:
                    self._history.observe(end, is_any_waiting=queue.num_requests > 0)
                    queue.rows_limit = self._history.limit.rows
                    end = None
                batch, late = queue.take(now=now, is_closing=self._is_closing)
                is_over = batch is None and self._is_closing
                if batch is not None:
                    if queue.num_requests:
                        self._rouse()
                elif not is_over:
                    self._num_idle += 1
                    ready = queue.next_ready()
            if late:
                self._fail(late, error=deadline_exceeded())
            if batch is not None or is_over:
                return batch
            del late
            self._wait(None if ready is None else max(ready - now, 0.0))

    def _wait(self, timeout_s: float | None) -> None:
        try:
            self._tokens.get(timeout=timeout_s)
        except Empty:
            with self._lock:
                try:
                    # Meant for this thread, and a moment late.
                    self._tokens.get_nowait()
                except Empty:
                    self._num_idle -= 1

    def _run(self, batch: Batch) -> RunEnd | None:
        """None: there is nothing to learn from it."""
        started_s = self._clock.now()
        execution = self._runner.execute(batch)
        ended_s = self._clock.now()
        self._completions.post(execution.outcomes)
        if execution.rest:
            self._put_back(execution.rest)
            batch = _drop_rest(batch, rest=execution.rest)
        end = RunEnd(batch.num_rows, execution.padded_rows, ended_s - started_s, ended_s)
        if self._is_merging:
            event = _tell(batch, servable_id=self._servable_id, started_s=started_s, end=end)
            self._events.publish_batch(event)
        return None if execution.is_failed else end

    def _put_back(self, pieces: Sequence[Piece]) -> None:
        with self._lock:
            self._queue.put_back(pieces)
            self._rouse(is_urgent=True)


def _drop_rest(batch: Batch, *, rest: Sequence[Piece]) -> Batch:
    """What was run of a batch of single runs: the others are counted when their turn comes."""
    num_run = len(batch.pieces) - len(rest)
    return Batch(batch.kind, batch.pieces[:num_run], num_run)


def _tell(batch: Batch, *, servable_id: ServableId, started_s: float, end: RunEnd) -> BatchEnded:
    works = [piece.work for piece in batch.pieces]
    return BatchEnded(
        servable_id,
        tuple([work.num_rows for work in works]),
        tuple([started_s - work.arrival for work in works]),
        len(works[0].inputs),
        batch.num_rows,
        end.padded_rows,
        end.run_s,
    )


def _count_threads(options: BatchingOptions, *, parameters: BatchingParameters | None) -> int:
    from_file = parameters.num_threads if parameters is not None else 0
    return options.num_threads or from_file or count_cpus()
