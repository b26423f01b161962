"""Replays a model's recorded requests before it is published: its first clients do not wait.

The records are TensorFlow Serving's: a TFRecord file of PredictionLog messages beside the model.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aspira.contracts.errors import (
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    Unimplemented,
)
from aspira.contracts.events import EventBus, WarmupFinished
from aspira.contracts.examples import check_examples
from aspira.contracts.identity import DEFAULT_SIGNATURE_NAME
from aspira.contracts.servable import Servable
from aspira.contracts.tensors import Tensors
from aspira.runtimes.options import WarmupOptions
from aspira.runtimes.saved_model import as_serving_error
from aspira.wire.examples import decode_examples
from aspira.wire.tensor_proto import decode_tensor

WARMUP_FILE = "tf_serving_warmup_requests"
MAX_RECORDS = 1000

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any


@dataclass(frozen=True, slots=True)
class _Replay:
    """One run of one signature."""

    signature_name: str
    inputs: Tensors
    output_filter: tuple[str, ...] = ()


def replay_warmup(
    servable: Servable, *, path: Path, options: WarmupOptions, events: EventBus
) -> None:
    """Run every record of `path`/assets.extra's file, if there is one.

    Raises:
        ServingError: a record cannot be read or replayed; the version must not be published.
    """
    file = path / "assets.extra" / WARMUP_FILE
    if not options.is_enabled or not file.is_file():
        return
    started_s = time.monotonic()
    num_records = 0
    for record in _read_records(file):
        num_records += 1
        for replay in _parse_record(record, file=file):
            for _ in range(max(options.num_request_iterations, 1)):
                _run(replay, servable=servable)
        if num_records > MAX_RECORDS:
            raise InvalidArgument(
                f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {file}"
            )
    events.publish(WarmupFinished(str(path), num_records, time.monotonic() - started_s))


def _run(replay: _Replay, *, servable: Servable) -> None:
    name = replay.signature_name or DEFAULT_SIGNATURE_NAME
    signature = servable.signatures.get(name)
    if signature is None:
        raise FailedPrecondition(f'Serving signature key "{name}" not found.')
    servable.run(
        name,
        inputs=signature.bind_inputs(replay.inputs),
        outputs=signature.choose_outputs(replay.output_filter),
    )


def _parse_record(record: bytes, *, file: Path) -> list[_Replay]:
    from google.protobuf.message import DecodeError
    from tensorflow_serving.apis import prediction_log_pb2

    try:
        log = prediction_log_pb2.PredictionLog.FromString(record)
    except DecodeError as error:
        raise InvalidArgument(f"Failed to parse warmup record: {record!r} from {file}") from error
    kind = log.WhichOneof("log_type")
    if kind is None:
        return []
    request = getattr(log, kind).request
    match kind:
        case "predict_log":
            return [_parse_predict(request)]
        case "classify_log" | "regress_log":
            return [_parse_examples(request.model_spec.signature_name, request=request)]
        case "multi_inference_log":
            return [
                _parse_examples(task.model_spec.signature_name, request=request)
                for task in request.tasks
            ]
    number = log.DESCRIPTOR.fields_by_name[kind].number
    raise Unimplemented(f"Unsupported log_type for warmup: {number}")


def _parse_predict(request: Message) -> _Replay:
    inputs = {alias: decode_tensor(proto, alias=alias) for alias, proto in request.inputs.items()}
    return _Replay(request.model_spec.signature_name, inputs, tuple(request.output_filter))


def _parse_examples(signature_name: str, *, request: Message) -> _Replay:
    examples = decode_examples(request.input)
    check_examples(examples)
    return _Replay(signature_name, {"inputs": examples})


def _read_records(file: Path) -> Iterator[bytes]:
    import tensorflow as tf

    try:
        yield from tf.compat.v1.io.tf_record_iterator(str(file))
    except tf.errors.DataLossError as error:
        raise DataLoss(
            f"{error.message}. Please verify your warmup data is in TFRecord format."
        ) from error
    except tf.errors.OpError as error:
        raise as_serving_error(error) from error
