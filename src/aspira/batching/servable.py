"""Makes a blocking servable async: checks a request's inputs, queues it, waits for its deadline."""

import asyncio
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from aspira.batching.assemble import can_be_merged, count_rows, shapes_of
from aspira.batching.context import BatchingContext
from aspira.batching.deadlines import DeadlineWatch, deadline_exceeded
from aspira.batching.inline import InlineRuns
from aspira.batching.options import BatchingOptions, BatchingParameters
from aspira.batching.queue import Kind, Work
from aspira.batching.scheduler import BatchingStatistics, Scheduler
from aspira.contracts.errors import InvalidArgument, ServingError
from aspira.contracts.identity import ServableId
from aspira.contracts.servable import Accelerated, Servable, SignatureRuntime, Unblocking
from aspira.contracts.signatures import Signature
from aspira.contracts.tensors import Tensors

_NO_RUNTIMES: Mapping[str, SignatureRuntime] = MappingProxyType({})


class BatchedServable:
    """What the service calls. Never off: without batching every request is a run of its own."""

    def __init__(
        self,
        servable: Servable,
        *,
        servable_id: ServableId,
        options: BatchingOptions,
        parameters: BatchingParameters | None,
        context: BatchingContext,
    ) -> None:
        self._servable = servable
        self._clock = context.clock
        self._parameters = parameters
        self._mergeable = frozenset(
            name
            for name, signature in servable.signatures.items()
            if parameters is not None and can_be_merged(signature)
        )
        self._deadlines = DeadlineWatch(context.clock)
        unblocking = _find_unblocking(servable) if parameters is None else frozenset()
        self._is_unblocking = bool(unblocking)
        self._inline = InlineRuns(
            self._run_now,
            names=unblocking,
            clock=context.clock,
            cpu_clock=context.cpu_clock,
        )
        self._scheduler = Scheduler(
            self._inline.run_on_thread if unblocking else self._run_now,
            servable_id=servable_id,
            options=options,
            parameters=parameters,
            context=context,
        )

    @property
    def signatures(self) -> Mapping[str, Signature]:
        return self._servable.signatures

    @property
    def signature_advice(self) -> str:
        return ""

    def find_problem(self) -> ServingError | None:
        """See `Served`. A queue that is not served shows in its requests' deadlines."""
        return None

    @property
    def is_lost(self) -> bool:
        return False

    @property
    def runtimes(self) -> Mapping[str, SignatureRuntime]:
        """See `Accelerated`. Empty where there was nothing to choose from."""
        servable = self._servable
        return servable.runtimes if isinstance(servable, Accelerated) else _NO_RUNTIMES

    def statistics(self) -> BatchingStatistics:
        """What waits, and what was learned of the model's runs."""
        return self._scheduler.statistics()

    async def run(
        self,
        signature_name: str,
        *,
        inputs: Tensors,
        outputs: tuple[str, ...],
        deadline: float | None,
        priority: int = 0,
    ) -> Tensors:
        """Run one signature, or give up at the deadline. Expired or cancelled work never starts.

        Raises:
            DeadlineExceeded: the deadline passed, in the queue or during the run.
            Unavailable: the queue is full.
            ResourceExhausted: it would have to wait too long.
            ServingError: the runtime's own error.
        """
        if signature_name in self._mergeable:
            num_rows, kind = self._measure(signature_name, inputs=inputs, outputs=outputs)
        else:
            num_rows, kind = 1, Kind(signature_name, outputs, None)
        num_bytes = sum([tensor.nbytes for tensor in inputs.values()])
        if deadline is not None and self._clock.now() >= deadline:
            raise deadline_exceeded()
        future = None
        if self._is_unblocking and not self._scheduler.is_any_waiting:
            future = self._inline.try_submit(
                kind, inputs=inputs, num_bytes=num_bytes, deadline=deadline
            )
        if future is None:
            future = asyncio.get_running_loop().create_future()
            self._scheduler.submit(
                Work(kind, inputs, num_rows, num_bytes, deadline, future, priority=priority)
            )
            if deadline is not None:
                self._deadlines.add(future, deadline=deadline)
        try:
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

    def _measure(
        self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]
    ) -> tuple[int, Kind]:
        """The rows of a request, and what it can share a run with."""
        assert self._parameters is not None
        num_rows = count_rows(inputs)
        if num_rows > self._parameters.max_batch_size:
            raise InvalidArgument(
                f"Task size {num_rows} is larger than maximum input batch size "
                f"{self._parameters.max_batch_size}"
            )
        shapes = shapes_of(inputs, is_padded=self._parameters.pad_variable_length_inputs)
        return num_rows, Kind(signature_name, outputs, shapes)

    def _run_now(self, kind: Kind, *, inputs: Tensors) -> Tensors:
        return self._servable.run(kind.signature_name, inputs=inputs, outputs=kind.outputs)


def _find_unblocking(servable: Servable) -> AbstractSet[str]:
    return servable.straight_signatures if isinstance(servable, Unblocking) else frozenset()
