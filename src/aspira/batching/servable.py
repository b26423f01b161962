"""Makes a blocking servable async: checks a request's inputs, queues it, waits for its deadline."""

import asyncio
from collections.abc import Mapping

from aspira.batching.completions import Completions
from aspira.batching.deadlines import DeadlineWatch
from aspira.batching.options import BatchingOptions
from aspira.batching.scheduler import Scheduler, Work
from aspira.contracts.clock import Clock
from aspira.contracts.errors import DeadlineExceeded
from aspira.contracts.servable import Loader, Servable
from aspira.contracts.signatures import Signature
from aspira.contracts.tensors import Tensors


class BatchedServable:
    """What the service calls. Never off: without batching it is a queue with a limit of one."""

    def __init__(
        self,
        servable: Servable,
        *,
        name: str,
        options: BatchingOptions,
        clock: Clock,
        completions: Completions[Tensors],
    ) -> None:
        self._servable = servable
        self._clock = clock
        self._deadlines = DeadlineWatch(clock, make_error=_deadline_exceeded)
        self._scheduler = Scheduler(
            self._run_one,
            num_threads=options.pool_size,
            name=name,
            clock=clock,
            completions=completions,
        )

    @property
    def signatures(self) -> Mapping[str, Signature]:
        return self._servable.signatures

    async def run(
        self,
        signature_name: str,
        *,
        inputs: Tensors,
        outputs: tuple[str, ...],
        deadline: float | None,
    ) -> Tensors:
        """Run one signature, or give up at the deadline. Expired or cancelled work never starts.

        Raises:
            DeadlineExceeded: the deadline passed, in the queue or during the run.
            ServingError: the runtime's own error.
        """
        future: asyncio.Future[Tensors] = asyncio.get_running_loop().create_future()
        if deadline is not None:
            if self._clock.now() >= deadline:
                raise _deadline_exceeded()
            self._deadlines.add(future, deadline=deadline)
        try:
            self._scheduler.submit(Work(signature_name, inputs, outputs, deadline, future))
            return await future
        finally:
            if deadline is not None:
                self._deadlines.remove(future)
            # The future holds the error, whose traceback holds this frame: not both ways round.
            del future

    def unload(self) -> None:
        """Finish what runs, end the threads, free the model. Blocks."""
        try:
            self._scheduler.close()
        finally:
            self._servable.unload()

    def _run_one(self, work: Work) -> Tensors:
        return self._servable.run(work.signature_name, inputs=work.inputs, outputs=work.outputs)


class BatchingLoader:
    """Wraps a runtime's loader, so that what the lifecycle manages is always batched."""

    def __init__(
        self,
        loader: Loader[Servable],
        *,
        name: str,
        options: BatchingOptions,
        clock: Clock,
        completions: Completions[Tensors],
    ) -> None:
        self._loader = loader
        self._name = name
        self._options = options
        self._clock = clock
        self._completions = completions

    def load(self) -> BatchedServable:
        return BatchedServable(
            self._loader.load(),
            name=self._name,
            options=self._options,
            clock=self._clock,
            completions=self._completions,
        )


def _deadline_exceeded() -> DeadlineExceeded:
    return DeadlineExceeded("Timed out waiting for notification")
