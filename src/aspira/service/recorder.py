"""Picks answered requests for a warm-up file: a few of each kind, signature and shape.

Warm-up runs each record once before a version serves, so many of one kind teach nothing, and one
that fails keeps the version from loading: only what was answered without error is offered here.
What is taken is held on to as it is, arrays and all, and encoded later, by somebody else.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Hashable
from typing import NamedTuple

from aspira.contracts.examples import ExamplesRequest, MultiInferenceRequest
from aspira.contracts.identity import DEFAULT_SIGNATURE_NAME, ModelSpec, ServableId, Version
from aspira.contracts.inference import PredictRequest
from aspira.contracts.tensors import Tensor, Tensors
from aspira.wire.prediction_log import LoggedRequest, LogKind

MAX_RECORD_BYTES = 16 * 2**20
MAX_TOTAL_BYTES = 64 * 2**20


class RecordingOrder(NamedTuple):
    """What to record. Without a version or label in `spec`, of whichever version answers.

    `sampling_rate` is the share of requests that are looked at, above 0 and at most 1.
    """

    spec: ModelSpec
    num_records: int = 100
    num_records_per_shape: int = 5
    timeout_s: float = 60.0
    sampling_rate: float = 1.0


class TakenRequest(NamedTuple):
    """A request to be written, and the version that answered it."""

    kind: LogKind
    request: LoggedRequest
    version: Version


class Recorder:
    """Takes requests of one model until it has enough. Event loop only.

    `version` is the one that has to have answered, None for any. `draw` gives numbers from 0 to 1.
    """

    def __init__(
        self,
        order: RecordingOrder,
        *,
        version: Version | None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._order = order
        self._version = version
        self._draw = draw
        self._num_by_shape: Counter[Hashable] = Counter()
        self._num_bytes = 0
        self._finished = asyncio.Event()
        self.taken: list[TakenRequest] = []
        self.num_too_large = 0

    @property
    def num_shapes(self) -> int:
        """How many combinations of kind, signature and shapes were taken."""
        return len(self._num_by_shape)

    def offer(self, kind: LogKind, *, request: LoggedRequest, servable_id: ServableId) -> None:
        """A request was answered. Its arrays may be kept."""
        if servable_id.name != self._order.spec.name:
            return
        if self._version is not None and servable_id.version != self._version:
            return
        if self._finished.is_set() or self._draw() >= self._order.sampling_rate:
            return
        shape = (kind, _describe_shape(request))
        if self._num_by_shape[shape] < self._order.num_records_per_shape:
            self._take(TakenRequest(kind, request, servable_id.version), shape=shape)
        if len(self.taken) >= self._order.num_records:
            self.finish()

    def finish(self) -> None:
        """Take no more."""
        self._finished.set()

    async def wait_finished(self) -> None:
        """Until enough was taken, or `finish`."""
        await self._finished.wait()

    def _take(self, taken: TakenRequest, *, shape: Hashable) -> None:
        num_bytes = sum(_count_bytes(tensor) for tensor in _tensors_of(taken.request).values())
        if num_bytes > MAX_RECORD_BYTES or self._num_bytes + num_bytes > MAX_TOTAL_BYTES:
            self.num_too_large += 1
            return
        self._num_bytes += num_bytes
        self._num_by_shape[shape] += 1
        self.taken.append(taken)


def _describe_shape(request: LoggedRequest) -> Hashable:
    """What two requests have in common if a runtime would treat them alike."""
    shapes = tuple(sorted((a, t.dtype.num, t.shape) for a, t in _tensors_of(request).items()))
    match request:
        case PredictRequest():
            return _signature_name(request.spec), request.output_filter, shapes
        case ExamplesRequest():
            return _signature_name(request.spec), shapes
        case MultiInferenceRequest():
            tasks = tuple((_signature_name(task.spec), task.method_name) for task in request.tasks)
            return tasks, shapes


def _signature_name(spec: ModelSpec) -> str:
    return spec.signature_name or DEFAULT_SIGNATURE_NAME


def _tensors_of(request: LoggedRequest) -> Tensors:
    return request.inputs if isinstance(request, PredictRequest) else {"": request.examples}


def _count_bytes(tensor: Tensor) -> int:
    if tensor.dtype.kind != "O":
        return tensor.nbytes
    return sum(map(len, tensor.ravel().tolist()))
