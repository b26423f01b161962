"""Records answered requests as the warm-up file of a model's next version.

While nothing is recorded a request costs one look at an attribute of `InferenceService`.
"""

import asyncio
from functools import partial
from typing import NamedTuple

from aspira.contracts.errors import AlreadyExists, InvalidArgument, NotFound
from aspira.contracts.events import EventBus, RecordingEnded, RecordingStarted
from aspira.contracts.identity import Version
from aspira.runtimes.warmup_file import encode_records
from aspira.runtimes.warmup_records import MAX_RECORDS
from aspira.service.inference import InferenceService
from aspira.service.models import ModelsService
from aspira.service.recorder import Recorder, RecordingOrder, TakenRequest
from aspira.wire.prediction_log import encode_prediction_log

_MAX_TIMEOUT_S = 3600.0


class Recording(NamedTuple):
    """A warm-up file's content, and what is in it.

    `num_too_large` requests were left out for their size. `version` is the newest that answered.
    """

    content: bytes
    num_records: int
    num_shapes: int
    num_too_large: int
    version: Version
    base_path: str


class RecordingService:
    """One recording at a time. Event loop only."""

    def __init__(
        self, inference: InferenceService, *, models: ModelsService, events: EventBus
    ) -> None:
        self._inference = inference
        self._models = models
        self._events = events

    async def record(self, order: RecordingOrder) -> Recording:
        """Record from now on; returns once enough has been taken, or when the time is up.

        If the caller is cancelled, nothing of the recording is left.

        Raises:
            InvalidArgument: a limit that makes no sense.
            NotFound: no such model or version is ready, or nothing was asked of it.
            AlreadyExists: another recording goes on.
        """
        _check_order(order)
        name = order.spec.name
        if self._inference.recorder is not None:
            raise AlreadyExists("Another recording goes on; wait for its end")
        with self._inference.lease(order.spec) as lease:
            is_any = order.spec.version is None and order.spec.label is None
            version = None if is_any else lease.servable_id.version
        recorder = self._inference.recorder = Recorder(order, version=version)
        self._events.publish(RecordingStarted(name, order.num_records, order.timeout_s))
        try:
            await _wait(recorder, timeout_s=order.timeout_s)
        finally:
            self._inference.recorder = None
            self._events.publish(RecordingEnded(name, len(recorder.taken)))
        return await self._encode(recorder, order=order)

    def finish(self) -> None:
        """End a recording that goes on, with what it has."""
        if self._inference.recorder is not None:
            self._inference.recorder.finish()

    async def _encode(self, recorder: Recorder, *, order: RecordingOrder) -> Recording:
        name = order.spec.name
        if not recorder.taken:
            large = f" ({recorder.num_too_large} were too large)" if recorder.num_too_large else ""
            raise NotFound(f"No request to record: {name} answered none in this time{large}")
        config = self._models.configs.get(name)
        return Recording(
            await asyncio.to_thread(partial(_encode_file, recorder.taken)),
            num_records=len(recorder.taken),
            num_shapes=recorder.num_shapes,
            num_too_large=recorder.num_too_large,
            version=max(taken.version for taken in recorder.taken),
            base_path=config.model.base_path if config is not None else "",
        )


async def _wait(recorder: Recorder, *, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await recorder.wait_finished()
    except TimeoutError:
        return


def _encode_file(requests: list[TakenRequest]) -> bytes:
    return encode_records(encode_prediction_log(t.request, kind=t.kind) for t in requests)


def _check_order(order: RecordingOrder) -> None:
    if not 1 <= order.num_records <= MAX_RECORDS:
        raise InvalidArgument(
            f"num_records is {order.num_records}; a warm-up file holds 1 to {MAX_RECORDS}"
        )
    if order.num_records_per_shape < 1:
        raise InvalidArgument(
            f"num_records_per_shape is {order.num_records_per_shape}; it cannot be less than 1"
        )
    if not 0 < order.timeout_s <= _MAX_TIMEOUT_S:
        raise InvalidArgument(
            f"timeout_seconds is {order.timeout_s:g}; it has to be above 0 and at most "
            f"{_MAX_TIMEOUT_S:g}"
        )
    if not 0 < order.sampling_rate <= 1:
        raise InvalidArgument(
            f"sampling_rate is {order.sampling_rate:g}; it has to be above 0 and at most 1"
        )
