"""Runs a batch: merge, run, give each request its rows. A failed batch is halved until the
request at fault is alone, so that its neighbours get their answers.
"""

import asyncio
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from aspira.batching import assemble
from aspira.batching.options import BatchingParameters
from aspira.batching.queue import Batch, Kind, Part, Piece, Work
from aspira.contracts.clock import Clock
from aspira.contracts.errors import Internal, ServingError
from aspira.contracts.tensors import Tensors

_logger = logging.getLogger(__name__)

_MAX_BUNDLE_S = 1e-3


class Run(Protocol):
    """Runs the servable once."""

    def __call__(self, kind: Kind, *, inputs: Tensors) -> Tensors: ...


# How a request ended.
Outcome = tuple[asyncio.Future[Tensors], Tensors | ServingError]


class Execution(NamedTuple):
    """What came of a batch.

    `padded_rows` is the size of its run, padding included. `rest` are pieces that were not run,
    because those before them took longer than expected.
    """

    outcomes: list[Outcome]
    padded_rows: int
    is_failed: bool
    rest: Sequence[Piece] = ()


class BatchRunner:
    """Used by all threads of a version at once. `run` is the servable's."""

    def __init__(self, run: Run, *, parameters: BatchingParameters | None, clock: Clock) -> None:
        self._run = run
        self._clock = clock
        self._parameters = parameters or BatchingParameters()
        self._lock = threading.Lock()

    def execute(self, batch: Batch) -> Execution:
        """Run it. Never raises; requests that are spread over runs end with their last one."""
        if batch.kind.shapes is None:
            return self._execute_singly(batch)
        padded_rows = self._parameters.padded_size(batch.num_rows)
        try:
            parts = self._run_pieces(batch, num_rows=padded_rows)
        except Exception as raised:  # noqa: BLE001 - whatever it was, its requests must end
            error = _as_serving_error(raised)
            failed = list(self._retry(batch, error=error))
            return Execution(failed, padded_rows, is_failed=True)
        outcomes: list[Outcome] = []
        for piece, part in zip(batch.pieces, parts, strict=True):
            if isinstance(piece, Work):
                outcomes.append((piece.future, part))
            else:
                outcomes += self._finish(piece, outputs=part)
        return Execution(outcomes, padded_rows, is_failed=False)

    def _execute_singly(self, batch: Batch) -> Execution:
        run, kind = self._run, batch.kind
        outcomes: list[Outcome] = []
        is_failed = False
        started_s = self._clock.now()
        for index, piece in enumerate(batch.pieces):
            # Taken together because they were expected to be quick.
            if index and self._clock.now() - started_s > _MAX_BUNDLE_S:
                return Execution(outcomes, index, is_failed, batch.pieces[index:])
            result: Tensors | ServingError
            try:
                result = run(kind, inputs=piece.inputs)
            except BaseException as raised:  # noqa: BLE001 - even what would end the thread
                result = _as_serving_error(raised).with_traceback(None)
                is_failed = True
            outcomes.append((piece.work.future, result))
        return Execution(outcomes, batch.num_rows, is_failed)

    def _run_pieces(self, batch: Batch, *, num_rows: int) -> Iterable[Tensors]:
        kind, pieces, _ = batch
        inputs = assemble.merge(pieces, num_rows=num_rows)
        outputs = run_once(self._run, kind=kind, inputs=inputs)
        if len(pieces) == 1 and batch.num_rows == num_rows:
            return (outputs,)
        assemble.check_outputs(outputs, num_rows=num_rows)
        return assemble.split(outputs, sizes=[piece.end - piece.begin for piece in pieces])

    def _retry(self, batch: Batch, *, error: ServingError) -> Iterator[Outcome]:
        """The pieces of a failed batch in halves; at most as many more runs as twice its pieces."""
        pieces = batch.pieces
        if len(pieces) == 1:
            yield from self._fail(pieces[0], error=error)
            return
        middle = len(pieces) // 2
        for half in (pieces[:middle], pieces[middle:]):
            num_rows = sum(piece.end - piece.begin for piece in half)
            yield from self.execute(Batch(batch.kind, half, num_rows)).outcomes

    def _fail(self, piece: Piece, *, error: ServingError) -> Iterator[Outcome]:
        with self._lock:
            is_first = not piece.work.is_failed
            piece.work.is_failed = True
        if is_first:
            # A traceback holds its frames, and with them the future that is to hold the error: a
            # cycle, which would keep the tensors of each failed request until it is collected.
            yield piece.work.future, error.with_traceback(None)

    def _finish(self, part: Part, *, outputs: Tensors) -> list[Outcome]:
        work = part.work
        with self._lock:
            if work.parts is None:
                work.parts = {}
            parts = work.parts
            parts[part.begin] = outputs
            work.num_done += part.end - part.begin
            is_last = work.num_done == work.num_rows and not work.is_failed
        if not is_last:
            return []
        return [(work.future, assemble.join([parts[row] for row in sorted(parts)]))]


def run_once(run: Run, *, kind: Kind, inputs: Tensors) -> Tensors:
    """The outputs of one run.

    Raises:
        ServingError: whatever the runtime raised.
    """
    try:
        return run(kind, inputs=inputs)
    except ServingError:
        raise
    except BaseException as error:  # noqa: BLE001 - even what would end the thread
        raise _as_serving_error(error) from None


def _as_serving_error(raised: BaseException) -> ServingError:
    if isinstance(raised, ServingError):
        return raised
    _logger.error("A run met an error that is nobody's request", exc_info=raised)
    return Internal(f"{type(raised).__name__}: {raised}")
