"""Makes the shortest runs on the event loop itself, since handing them to a thread costs more.

A hand-over to a thread and back costs some 40 us of CPU, half of it on the loop, and two wake-ups;
the smallest models run in 5 to 30 us. What a run costs is learned on the worker threads, for each
signature, choice of outputs and size of inputs. A run on the loop that turns out long is the last
of its kind there for a while, and for a longer while each time.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Set as AbstractSet
from math import inf
from typing import Any

from aspira.batching.deadlines import deadline_exceeded
from aspira.batching.execution import Run, run_once
from aspira.batching.queue import Kind
from aspira.contracts.clock import Clock
from aspira.contracts.errors import ServingError
from aspira.contracts.tensors import Tensors

# What runs of a kind may take on the mean, to come to the loop and to stay there. Longer ones had
# better leave the loop to others meanwhile. One run of a millisecond outweighs all before it.
_MAX_TO_ENTER_S = 50e-6
_MAX_TO_STAY_S = 100e-6
_WEIGHT = 1 / 8
# The quickest of several runs on a thread, which waits for the interpreter's lock at its end: what
# is spread over several CPUs shows in this time only.
_MAX_ELAPSED_S = 500e-6
_MAX_ROUND_S = 1e-3
_MAX_INPUT_BYTES = 16 * 2**10
_NUM_PROOFS = 16
_FIRST_PAUSE = 16
_MAX_PAUSE = 4096
_NUM_TO_FORGIVE = 1024
# Clients choose outputs and sizes.
_MAX_PACES = 256


class InlineRuns:
    """The runs of one version. `names` are the signatures that never wait for anything.

    `cpu_clock` tells the CPU time of the thread that asks: others that share the CPUs tell nothing
    of the model.
    """

    def __init__(
        self, run: Run, *, names: AbstractSet[str], clock: Clock, cpu_clock: Clock
    ) -> None:
        self._run = run
        self._names = names
        self._clock = clock
        self._cpu_clock = cpu_clock
        # Kinds with the powers of two of their inputs' bytes.
        self._paces: dict[tuple[Kind, int], _Pace] = {}
        self._lock = threading.Lock()
        self._waiting: deque[Any] = deque()
        self._is_scheduled = False

    def is_quick(self, kind: Kind, *, num_bytes: int) -> bool:
        """Whether the loop may run it. Event loop only."""
        pace = self._paces.get((kind, num_bytes.bit_length()))
        return pace is not None and pace.is_quick

    def submit(
        self, kind: Kind, *, inputs: Tensors, num_bytes: int, deadline: float | None
    ) -> asyncio.Future[Tensors]:
        """Run what is quick, in this round of the loop or the next. Event loop only."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Tensors] = loop.create_future()
        self._waiting.append((future, kind, inputs, num_bytes, deadline))
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._run_waiting)
        return future

    def _run_waiting(self) -> None:
        waiting = self._waiting
        end_s = self._clock.now() + _MAX_ROUND_S
        while waiting:
            future, kind, inputs, num_bytes, deadline = waiting.popleft()
            if future.done():
                continue
            if deadline is not None and self._clock.now() >= deadline:
                future.set_exception(deadline_exceeded())
                continue
            try:
                future.set_result(self._run_here(kind, inputs=inputs, num_bytes=num_bytes))
            except ServingError as error:
                future.set_exception(error.with_traceback(None))
            if self._clock.now() > end_s:
                break
        self._is_scheduled = bool(waiting)
        if waiting:
            asyncio.get_running_loop().call_soon(self._run_waiting)

    def _run_here(self, kind: Kind, *, inputs: Tensors, num_bytes: int) -> Tensors:
        started_s = self._cpu_clock.now()
        try:
            return run_once(self._run, kind, inputs=inputs)
        finally:
            cpu_s = self._cpu_clock.now() - started_s
            with self._lock:
                self._paces[kind, num_bytes.bit_length()].observe_here(cpu_s)

    def run_on_thread(self, kind: Kind, *, inputs: Tensors) -> Tensors:
        """Run it, and learn from that, if there is anything to learn."""
        pace = self._find_unproven(kind, inputs=inputs)
        if pace is None:
            return self._run(kind, inputs=inputs)
        started_s, cpu_started_s = self._clock.now(), self._cpu_clock.now()
        outputs = self._run(kind, inputs=inputs)
        cpu_s = self._cpu_clock.now() - cpu_started_s
        elapsed_s = self._clock.now() - started_s
        with self._lock:
            pace.observe_on_thread(cpu_s, elapsed_s=elapsed_s)
        return outputs

    def _find_unproven(self, kind: Kind, *, inputs: Tensors) -> "_Pace | None":
        if kind.signature_name not in self._names:
            return None
        num_bytes = sum([tensor.nbytes for tensor in inputs.values()])
        if num_bytes > _MAX_INPUT_BYTES:
            return None
        key = kind, num_bytes.bit_length()
        with self._lock:
            pace = self._paces.get(key)
            if pace is None:
                if len(self._paces) >= _MAX_PACES:
                    return None
                pace = self._paces[key] = _Pace()
            return pace if pace.is_to_be_proven() else None


class _Pace:
    """What is known of runs that are alike."""

    __slots__ = (
        "_best_s",
        "_mean_s",
        "_num_left",
        "_num_quick",
        "_num_to_pass",
        "_pause",
        "is_quick",
    )

    def __init__(self) -> None:
        self.is_quick = False
        self._mean_s = 0.0
        self._best_s = inf
        self._num_left = _NUM_PROOFS
        self._num_to_pass = 0
        self._pause = _FIRST_PAUSE
        self._num_quick = 0

    def is_to_be_proven(self) -> bool:
        """Whether the next run on a thread is to be measured; asked once for each."""
        if self._num_to_pass:
            self._num_to_pass -= 1
            return False
        return not self.is_quick

    def observe_on_thread(self, cpu_s: float, *, elapsed_s: float) -> None:
        self._mean_s += (cpu_s - self._mean_s) * _WEIGHT
        self._best_s = min(self._best_s, elapsed_s)
        self._num_left -= 1
        if self._num_left > 0 or self.is_quick:
            return
        if self._mean_s > _MAX_TO_ENTER_S or self._best_s > _MAX_ELAPSED_S:
            self._back_off()
        else:
            self.is_quick = True
            self._num_quick = 0

    def observe_here(self, cpu_s: float) -> None:
        self._mean_s += (cpu_s - self._mean_s) * _WEIGHT
        if self._mean_s > _MAX_TO_STAY_S:
            self._back_off()
            return
        self._num_quick += 1
        if self._num_quick == _NUM_TO_FORGIVE:
            self._pause = _FIRST_PAUSE

    def _back_off(self) -> None:
        self.is_quick = False
        self._mean_s = 0.0
        self._best_s = inf
        self._num_left = _NUM_PROOFS
        self._num_to_pass = self._pause
        self._pause = min(self._pause * 2, _MAX_PAUSE)
