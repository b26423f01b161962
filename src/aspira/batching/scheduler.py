"""The worker threads of one version: they take its queued work in order and run it.

Each version has threads of its own, so a slow model never holds up another. They start when work
comes in and end when the version unloads.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from aspira.batching.completions import Completions
from aspira.contracts.clock import Clock
from aspira.contracts.errors import Internal, ServingError
from aspira.contracts.tensors import Tensors

_logger = logging.getLogger(__name__)


class Work(NamedTuple):
    """One request in the queue. `deadline` is in seconds of the scheduler's clock."""

    signature_name: str
    inputs: Tensors
    outputs: tuple[str, ...]
    deadline: float | None
    future: asyncio.Future[Tensors]


RunWork = Callable[[Work], Tensors]


class Scheduler:
    """Owns the queue and the threads of one version."""

    def __init__(
        self,
        run: RunWork,
        *,
        num_threads: int,
        name: str,
        clock: Clock,
        completions: Completions[Tensors],
    ) -> None:
        self._run = run
        self._num_threads = num_threads
        self._name = name
        self._clock = clock
        self._completions = completions
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        # Work that was submitted and has not ended: how many threads there is something to do for.
        self._num_open = 0
        self._lock = threading.Lock()

    def submit(self, work: Work) -> None:
        """Queue it. Its future is resolved on the loop, unless that gave up on it before.

        Raises:
            RuntimeError: the first thread could not be started.
        """
        with self._lock:
            self._num_open += 1
            is_short = min(self._num_open, self._num_threads) > len(self._threads)
        self._queue.put(work)
        if is_short:
            self._start_thread()

    def close(self) -> None:
        """Run what is queued, then end the threads. Blocks; nothing may be submitted any more."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _start_thread(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
            _logger.warning("No more threads can be started; %d have to do", len(self._threads))
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while True:
            work = self._queue.get()
            if work is None:
                return
            if not work.future.done() and not self._is_expired(work):
                self._completions.post(work.future, outcome=self._try_run(work))
            # The thread may now wait for long: it must not keep a request's tensors alive.
            del work
            with self._lock:
                self._num_open -= 1

    def _is_expired(self, work: Work) -> bool:
        """Whether nobody waits for it any longer; the waiting side answers for the deadline."""
        return work.deadline is not None and self._clock.now() >= work.deadline

    def _try_run(self, work: Work) -> Tensors | ServingError:
        try:
            return self._run(work)
        except ServingError as error:
            # Its traceback holds this frame, and with it the future that is to hold the error: a
            # cycle, which would keep the tensors of each failed request until it is collected.
            return error.with_traceback(None)
        except BaseException as error:  # whatever a runtime raises, its request must end
            _logger.exception("A runtime raised an error of its own")
            return Internal(f"{type(error).__name__}: {error}")
