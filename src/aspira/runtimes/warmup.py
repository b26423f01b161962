"""Replays a model's recorded requests before it is published: its first clients do not wait."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from aspira.contracts.errors import FailedPrecondition, InvalidArgument, ServingError, Unimplemented
from aspira.contracts.events import EventBus, WarmupFinished, WarmupRunEnded
from aspira.contracts.servable import Servable
from aspira.contracts.signatures import Signature, SignatureTable, TensorSpec, joint_alias
from aspira.contracts.tensors import Tensor, Tensors
from aspira.runtimes.options import WarmupOptions
from aspira.runtimes.warmup_records import (
    MAX_RECORDS,
    RecordedRequest,
    RecordedSessionRun,
    RecordedTask,
    parse_record,
    read_records,
    warmup_file,
)


@runtime_checkable
class SessionServable(Protocol):
    """A servable whose tensors can be asked for by the names that the model's file gives them."""

    def run_session(
        self, feeds: Tensors, *, fetches: tuple[str, ...], targets: tuple[str, ...]
    ) -> None:
        """Feed tensors, compute others and run operations.

        Raises:
            ServingError: with the runtime's own text.
        """
        ...


def replay_warmup(
    servable: Servable, *, path: Path, options: WarmupOptions, events: EventBus
) -> None:
    """Run every record of `path`/assets.extra's file, if there is one.

    Raises:
        ServingError: a record cannot be read or replayed; the version must not be published.
    """
    file = warmup_file(path)
    if not options.is_enabled or not file.is_file():
        return
    started_s = time.monotonic()
    replayer = _Replayer(servable, file=file, options=options, events=events)
    if options.num_threads > 1:
        with ThreadPoolExecutor(options.num_threads, "Warmup_ThreadPool") as pool:
            for ended in [pool.submit(replayer.replay_all) for _ in range(options.num_threads)]:
                ended.result()
    else:
        replayer.replay_all()
    duration_s = time.monotonic() - started_s
    events.publish(WarmupFinished(str(path), replayer.num_records, duration_s))


class _Run(NamedTuple):
    """One call of a servable."""

    signature_name: str
    inputs: Tensors
    outputs: tuple[str, ...]


class _Replayer:
    """Takes records of one file until there are none; several threads may share it."""

    def __init__(
        self, servable: Servable, *, file: Path, options: WarmupOptions, events: EventBus
    ) -> None:
        self._servable = servable
        self._file = file
        self._options = options
        self._events = events
        self._records = read_records(file)
        self._lock = Lock()
        self.num_records = 0

    def replay_all(self) -> None:
        """Replay what no other thread took."""
        try:
            while (record := self._take()) is not None:
                self._replay(record)
                # The first record past the limit is still replayed, as in TensorFlow Serving.
                if self.num_records > MAX_RECORDS:
                    raise InvalidArgument(
                        f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at"
                        f" {self._file}"
                    )
        except ServingError:
            with self._lock:
                self._records.close()
            raise

    def _take(self) -> bytes | None:
        with self._lock:
            record = next(self._records, None)
            self.num_records += record is not None
            return record

    def _replay(self, record: bytes) -> None:
        options = self._options
        recorded = parse_record(
            record, file=self._file, is_session_run_refused=options.is_session_run_refused
        )
        for _ in range(options.num_request_iterations):
            match recorded:
                case RecordedRequest():
                    self._replay_request(recorded)
                case RecordedSessionRun():
                    self._replay_session_run(recorded)

    def _replay_request(self, recorded: RecordedRequest) -> None:
        for inputs in self._sized_inputs(recorded):
            for run in _plan_runs(recorded._replace(inputs=inputs), servable=self._servable):
                started_s = time.monotonic()
                self._servable.run(run.signature_name, inputs=run.inputs, outputs=run.outputs)
                duration_s = time.monotonic() - started_s
                self._events.publish(WarmupRunEnded(recorded.model_name, recorded.api, duration_s))

    def _sized_inputs(self, recorded: RecordedRequest) -> Iterator[Tensors]:
        """The inputs as recorded, then with each number of rows that a batch may have."""
        yield recorded.inputs
        if recorded.tasks:
            signature = _find_signature(self._servable, name=recorded.tasks[0].signature_name)
            if any(
                _is_batched(x, spec=signature.inputs.get(a)) for a, x in recorded.inputs.items()
            ):
                for num_rows in self._options.batch_sizes:
                    yield {
                        alias: _resize(tensor, spec=signature.inputs.get(alias), num_rows=num_rows)
                        for alias, tensor in recorded.inputs.items()
                    }

    def _replay_session_run(self, recorded: RecordedSessionRun) -> None:
        if not isinstance(self._servable, SessionServable):
            raise Unimplemented(
                "A warm-up record asks for tensors of a session, which this model's runtime has not"
            )
        self._servable.run_session(
            recorded.feeds, fetches=recorded.fetches, targets=recorded.targets
        )


def _find_signature(servable: Servable, *, name: str) -> Signature:
    """A signature of a servable.

    Raises:
        FailedPrecondition: it has none of this name.
    """
    signature = servable.signatures.get(name)
    if signature is None:
        raise FailedPrecondition(f'Serving signature key "{name}" not found.')
    return signature


def _plan_runs(recorded: RecordedRequest, *, servable: Servable) -> list[_Run]:
    signatures = servable.signatures
    runs = [_plan_run(recorded.inputs, task=task, servable=servable) for task in recorded.tasks]
    if len(runs) < 2 or not isinstance(signatures, SignatureTable):
        return runs
    return [_join(runs, signatures=signatures)]


def _plan_run(inputs: Tensors, *, task: RecordedTask, servable: Servable) -> _Run:
    signature = _find_signature(servable, name=task.signature_name)
    return _Run(task.signature_name, signature.bind_inputs(inputs), task.choose_outputs(signature))


def _join(runs: list[_Run], *, signatures: SignatureTable) -> _Run:
    """One run for all, as a MultiInference is answered."""
    inputs = {
        joint_alias(run.signature_name, alias=alias): tensor
        for run in runs
        for alias, tensor in run.inputs.items()
    }
    outputs = [
        joint_alias(run.signature_name, alias=alias) for run in runs for alias in run.outputs
    ]
    return _Run(signatures.join(run.signature_name for run in runs), inputs, tuple(outputs))


def _is_batched(tensor: Tensor, *, spec: TensorSpec | None) -> bool:
    """Whether its first axis may have any length, and there is something to repeat."""
    if spec is None or not tensor.ndim or not len(tensor):
        return False
    return spec.shape is None or spec.shape[:1] == (None,)


def _resize(tensor: Tensor, *, spec: TensorSpec | None, num_rows: int) -> Tensor:
    if not _is_batched(tensor, spec=spec):
        return tensor
    resized: Tensor = np.resize(tensor, (num_rows, *tensor.shape[1:]))
    return resized
