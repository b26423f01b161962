"""Reads a warm-up file: TensorFlow Serving's TFRecords of PredictionLog, each as what to run."""

from collections.abc import Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from aspira.contracts.errors import DataLoss, InvalidArgument, Unimplemented
from aspira.contracts.examples import CLASSIFICATION_OUTPUTS, REGRESSION_OUTPUTS, check_examples
from aspira.contracts.identity import DEFAULT_SIGNATURE_NAME
from aspira.contracts.signatures import CLASSIFY_METHOD, REGRESS_METHOD, Signature
from aspira.contracts.tensors import Tensors
from aspira.runtimes.saved_model import as_serving_error
from aspira.wire.examples import decode_examples
from aspira.wire.tensor_proto import decode_tensor

MAX_RECORDS = 1000

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any

_METHOD_OUTPUTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {CLASSIFY_METHOD: CLASSIFICATION_OUTPUTS, REGRESS_METHOD: REGRESSION_OUTPUTS}
)


class RecordedTask(NamedTuple):
    """One signature of a recorded request. `method_name` is empty for Predict."""

    signature_name: str
    method_name: str = ""
    output_filter: tuple[str, ...] = ()

    def choose_outputs(self, signature: Signature) -> tuple[str, ...]:
        """The outputs that the recorded API would ask for."""
        read = _METHOD_OUTPUTS.get(self.method_name, ())
        return tuple(alias for alias in read if alias in signature.outputs) or (
            signature.choose_outputs(self.output_filter)
        )


class RecordedRequest(NamedTuple):
    """Inputs for one signature or, of a MultiInference, for several. `api` is as in events."""

    model_name: str
    api: str
    tasks: tuple[RecordedTask, ...]
    inputs: Tensors


class RecordedSessionRun(NamedTuple):
    """Tensors and operations by their names in the graph."""

    feeds: Tensors
    fetches: tuple[str, ...]
    targets: tuple[str, ...]


def warmup_file(directory: Path) -> Path:
    """Where a version directory has its recorded requests, if it has any."""
    return directory / "assets.extra" / "tf_serving_warmup_requests"


def read_records(file: Path) -> Generator[bytes]:
    """The records of a TFRecord file.

    Raises:
        DataLoss: it is damaged, or no such file.
        ServingError: it cannot be read.
    """
    import tensorflow as tf
    from tensorflow.python.util import deprecation

    # What is advised in its place is a data pipeline, for which records are too few.
    try:
        with deprecation.silence():
            records = tf.compat.v1.io.tf_record_iterator(str(file))
        yield from records
    except tf.errors.DataLossError as error:
        raise DataLoss(
            f"{error.message}. Please verify your warmup data is in TFRecord format."
        ) from error
    except tf.errors.OpError as error:
        raise as_serving_error(error) from error


def parse_record(
    record: bytes, *, file: Path, is_session_run_refused: bool
) -> RecordedRequest | RecordedSessionRun | None:
    """What a record asks for; None if it holds no request.

    Raises:
        InvalidArgument: it is no PredictionLog, or its request cannot be read.
        Unimplemented: a kind that is not replayed.
    """
    from google.protobuf.message import DecodeError
    from tensorflow_serving.apis import prediction_log_pb2

    try:
        log = prediction_log_pb2.PredictionLog.FromString(record)
    except DecodeError as error:
        raise InvalidArgument(f"Failed to parse warmup record: {record!r} from {file}") from error
    kind = log.WhichOneof("log_type")
    if kind is None:
        return None
    request = getattr(log, kind).request
    match kind:
        case "predict_log":
            return _parse_predict(request)
        case "classify_log":
            return _parse_examples(request, api="classify", method_name=CLASSIFY_METHOD)
        case "regress_log":
            return _parse_examples(request, api="regress", method_name=REGRESS_METHOD)
        case "multi_inference_log":
            return _parse_multi_inference(request)
        case "session_run_log" if not is_session_run_refused:
            return _parse_session_run(request)
    number = log.DESCRIPTOR.fields_by_name[kind].number
    raise Unimplemented(f"Unsupported log_type for warmup: {number}")


def _parse_predict(request: Message) -> RecordedRequest:
    inputs = {alias: decode_tensor(proto, alias=alias) for alias, proto in request.inputs.items()}
    task = RecordedTask(_signature_name(request), output_filter=tuple(request.output_filter))
    return RecordedRequest(request.model_spec.name, "predict", (task,), inputs)


def _parse_examples(request: Message, *, api: str, method_name: str) -> RecordedRequest:
    task = RecordedTask(_signature_name(request), method_name)
    return RecordedRequest(request.model_spec.name, api, (task,), _decode_inputs(request))


def _parse_multi_inference(request: Message) -> RecordedRequest:
    tasks = tuple(RecordedTask(_signature_name(task), task.method_name) for task in request.tasks)
    name = request.tasks[0].model_spec.name if request.tasks else ""
    return RecordedRequest(name, "multi_inference", tasks, _decode_inputs(request))


def _parse_session_run(request: Message) -> RecordedRequest | RecordedSessionRun:
    feeds = {feed.name: decode_tensor(feed.tensor, alias=feed.name) for feed in request.feed}
    if request.tensor_name_is_alias:
        task = RecordedTask(_signature_name(request), output_filter=tuple(request.fetch))
        return RecordedRequest(request.model_spec.name, "", (task,), feeds)
    return RecordedSessionRun(feeds, tuple(request.fetch), tuple(request.target))


def _signature_name(message: Message) -> str:
    return message.model_spec.signature_name or DEFAULT_SIGNATURE_NAME


def _decode_inputs(request: Message) -> Tensors:
    examples = decode_examples(request.input)
    check_examples(examples)
    return {"inputs": examples}
