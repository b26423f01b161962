"""Makes the shortest runs on the event loop itself, since handing them to a thread costs more.

Handing a request to a thread and its answer back costs some 40 us of CPU, half of it on the loop;
the smallest models run in 5 to 30 us. What a run costs is learned on the worker threads, for each
signature, choice of outputs and size of inputs. Those that the loop then finds longer leave it for
a while, and for a longer while each time.

What came in one round of the loop is run back to back. A runtime gives the interpreter's lock away
in each run: were each answer sent before the next run, every one would be a switch of threads.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Set as AbstractSet
from math import inf
from typing import NamedTuple

from aspira.batching.deadlines import deadline_exceeded
from aspira.batching.execution import Run, run_once
from aspira.batching.queue import Kind
from aspira.contracts.clock import Clock
from aspira.contracts.errors import ServingError
from aspira.contracts.tensors import Tensors

# To come to the loop: what runs take of a thread's CPU time on the mean, and how soon the quickest
# of them ended. (Most do not end sooner for the interpreter's lock, which a thread waits for.)
_MAX_CPU_S = 50e-6
_MAX_QUICKEST_S = 100e-6
# To stay there: for how long they hold it up on the mean, whatever for.
_MAX_ELAPSED_S = 200e-6
_WEIGHT = 1 / 8
# After this, all else on the loop has a turn.
_MAX_ROUND_S = 1e-3
_MAX_INPUT_BYTES = 16 * 2**10
_NUM_PROOFS = 16
_FIRST_PAUSE = 16
_MAX_PAUSE = 4096
_NUM_TO_FORGIVE = 1024
# Clients choose outputs and sizes.
_MAX_PACES = 256


class InlineRuns:
    """The short runs of one version. `names` are the signatures that never wait for anything.

    `cpu_clock` tells the CPU time of the thread that asks.
    """

    def __init__(
        self, run: Run, *, names: AbstractSet[str], clock: Clock, cpu_clock: Clock
    ) -> None:
        self._run = run
        self._names = names
        self._clock = clock
        self._cpu_clock = cpu_clock
        # By kind and power of two of the inputs' bytes.
        self._paces: dict[tuple[Kind, int], _Pace] = {}
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._is_scheduled = False

    def try_submit(
        self, kind: Kind, *, inputs: Tensors, num_bytes: int, deadline: float | None
    ) -> asyncio.Future[Tensors] | None:
        """Run it before long, unless it is late or given up by then. Event loop only.

        None: it is not known to be short, and is a thread's to run.
        """
        pace = self._paces.get((kind, num_bytes.bit_length()))
        if pace is None or not pace.is_quick:
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Tensors] = loop.create_future()
        self._waiting.append(_Waiting(future, kind, inputs, deadline, pace))
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._run_waiting)
        return future

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

    def _run_waiting(self) -> None:
        waiting = self._waiting
        paces: list[_Pace] = []
        now = started_s = self._clock.now()
        while waiting and now < started_s + _MAX_ROUND_S:
            one = waiting.popleft()
            if one.future.done():
                continue
            if one.deadline is not None and now >= one.deadline:
                one.future.set_exception(deadline_exceeded())
                continue
            self._run_one(one)
            paces.append(one.pace)
            now = self._clock.now()
        if paces:
            mean_s = (now - started_s) / len(paces)
            with self._lock:
                for pace in set(paces):
                    pace.observe_on_loop(mean_s, num_runs=len(paces))
        self._is_scheduled = bool(waiting)
        if waiting:
            asyncio.get_running_loop().call_soon(self._run_waiting)

    def _run_one(self, one: "_Waiting") -> None:
        try:
            outputs = run_once(self._run, kind=one.kind, inputs=one.inputs)
        except ServingError as error:
            # Its traceback holds this frame, and with it the future that is to hold the error.
            one.future.set_exception(error.with_traceback(None))
        else:
            one.future.set_result(outputs)

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

    def __init__(self) -> None:
        self.is_quick = False
        self._mean_s = 0.0
        self._quickest_s = inf
        self._num_proofs_left = _NUM_PROOFS
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
        self._quickest_s = min(self._quickest_s, elapsed_s)
        self._num_proofs_left -= 1
        if self._num_proofs_left > 0 or self.is_quick:
            return
        if self._mean_s > _MAX_CPU_S or self._quickest_s > _MAX_QUICKEST_S:
            self._back_off()
        else:
            self.is_quick = True
            self._mean_s = 0.0
            self._num_quick = 0

    def observe_on_loop(self, mean_s: float, *, num_runs: int) -> None:
        self._mean_s += (mean_s - self._mean_s) * _WEIGHT
        self._num_quick += num_runs
        if self._mean_s > _MAX_ELAPSED_S:
            self._back_off()
        elif self._num_quick > _NUM_TO_FORGIVE:
            self._pause = _FIRST_PAUSE

    def _back_off(self) -> None:
        self.is_quick = False
        self._mean_s = 0.0
        self._quickest_s = inf
        self._num_proofs_left = _NUM_PROOFS
        self._num_to_pass = self._pause
        self._pause = min(self._pause * 2, _MAX_PAUSE)


class _Waiting(NamedTuple):
    """A request that will be run soon. `deadline` is in seconds of the clock."""

    future: asyncio.Future[Tensors]
    kind: Kind
    inputs: Tensors
    deadline: float | None
    pace: _Pace
