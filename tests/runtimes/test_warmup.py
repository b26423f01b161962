from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.example import example_pb2
from tensorflow_serving.apis import prediction_log_pb2

from aspira.contracts.errors import (
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    ServingError,
    Unavailable,
    Unimplemented,
)
from aspira.contracts.events import EventBus, LifecycleEvent, WarmupFinished
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensors
from aspira.runtimes.options import WarmupOptions
from aspira.runtimes.warmup import replay_warmup

X = np.float32([1, 2, 5])
FLOAT = TensorSpec(DataType.FLOAT, None)
STRING = TensorSpec(DataType.STRING, (None,))
Log = prediction_log_pb2.PredictionLog


class Recorder:
    """A servable that notes what it is asked."""

    def __init__(self, *, error: ServingError | None = None) -> None:
        self.runs: list[tuple[str, Tensors, tuple[str, ...]]] = []
        self.signatures = {
            "serving_default": Signature({"x": FLOAT}, {"y": FLOAT, "z": FLOAT}),
            "classes": Signature({"inputs": STRING}, {"scores": FLOAT}),
            "values": Signature({"inputs": STRING}, {"outputs": FLOAT}),
        }
        self._error = error

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        self.runs.append((signature_name, inputs, outputs))
        if self._error is not None:
            raise self._error
        return {}

    def unload(self) -> None:
        raise AssertionError("whoever loads it unloads it")


def warmup_file(path: Path) -> Path:
    folder = path / "assets.extra"
    folder.mkdir(exist_ok=True)
    return folder / "tf_serving_warmup_requests"


def write(path: Path, *, records: Iterable[bytes]) -> None:
    with tf.io.TFRecordWriter(str(warmup_file(path))) as writer:
        for record in records:
            writer.write(record)


def write_logs(path: Path, *logs: Any) -> None:
    write(path, records=[log.SerializeToString() for log in logs])


def replay(path: Path, *, servable: Recorder, **options: Any) -> list[LifecycleEvent]:
    events: list[LifecycleEvent] = []
    bus = EventBus()
    bus.subscribe_lifecycle(events.append)
    replay_warmup(servable, path=path, options=WarmupOptions(**options), events=bus)
    return events


def refusal(path: Path, *, error: type[ServingError], servable: Recorder | None = None) -> str:
    with pytest.raises(error) as caught:
        replay(path, servable=servable or Recorder())
    return caught.value.message


def predict_log(signature_name: str = "", *, outputs: tuple[str, ...] = ()) -> Any:
    log = Log()
    request = log.predict_log.request
    # Only the signature counts: the version that is loading is the one that is asked.
    request.model_spec.name = "another model"
    request.model_spec.version.value = 99
    request.model_spec.signature_name = signature_name
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(X))
    request.output_filter.extend(outputs)
    return log


def example(value: float) -> Any:
    message = example_pb2.Example()
    message.features.feature["x"].float_list.value.append(value)
    return message


def fill_examples(message: Any, *, signature_name: str) -> None:
    message.model_spec.signature_name = signature_name
    message.input.example_list.examples.extend([example(1), example(2)])


EXAMPLES = [example(1).SerializeToString(), example(2).SerializeToString()]


@pytest.mark.parametrize("signature_name", ["", "serving_default"])
def test_a_predict_record(tmp_path: Path, signature_name: str) -> None:
    servable = Recorder()
    write_logs(tmp_path, predict_log(signature_name))
    (event,) = replay(tmp_path, servable=servable)
    ((name, inputs, outputs),) = servable.runs
    assert name == "serving_default"
    assert inputs.keys() == {"x"}
    np.testing.assert_array_equal(inputs["x"], X, strict=True)
    assert outputs == ("y", "z")
    assert isinstance(event, WarmupFinished)
    assert event.path == str(tmp_path)
    assert event.num_records == 1
    assert event.duration_s >= 0


def test_the_outputs_of_a_record_count(tmp_path: Path) -> None:
    servable = Recorder()
    write_logs(tmp_path, predict_log(outputs=("z",)))
    replay(tmp_path, servable=servable)
    assert [outputs for _, _, outputs in servable.runs] == [("z",)]


def test_records_of_examples(tmp_path: Path) -> None:
    classify, regress, multi = Log(), Log(), Log()
    fill_examples(classify.classify_log.request, signature_name="classes")
    fill_examples(regress.regress_log.request, signature_name="values")
    request = multi.multi_inference_log.request
    for name in ("values", "classes"):
        request.tasks.add().model_spec.signature_name = name
    request.input.example_list.examples.extend([example(1), example(2)])
    servable = Recorder()
    write_logs(tmp_path, classify, regress, multi)
    (event,) = replay(tmp_path, servable=servable)
    assert event.num_records == 3
    assert [(name, outputs) for name, _, outputs in servable.runs] == [
        ("classes", ("scores",)),
        ("values", ("outputs",)),
        ("values", ("outputs",)),
        ("classes", ("scores",)),
    ]
    for _, inputs, _ in servable.runs:
        assert inputs["inputs"].tolist() == EXAMPLES


def test_a_record_of_no_kind_is_counted_only(tmp_path: Path) -> None:
    servable = Recorder()
    write(tmp_path, records=[b""])
    (event,) = replay(tmp_path, servable=servable)
    assert event.num_records == 1
    assert servable.runs == []


@pytest.mark.parametrize(("kind", "number"), [("session_run_log", 5), ("predict_streamed_log", 7)])
def test_kinds_that_cannot_be_replayed(tmp_path: Path, kind: str, number: int) -> None:
    log = Log()
    getattr(log, kind).SetInParent()
    write_logs(tmp_path, log)
    text = refusal(tmp_path, error=Unimplemented)
    assert text == f"Unsupported log_type for warmup: {number}"


def test_without_a_file_nothing_happens(tmp_path: Path) -> None:
    assert replay(tmp_path, servable=Recorder()) == []


def test_when_disabled_the_file_is_not_even_read(tmp_path: Path) -> None:
    warmup_file(tmp_path).write_bytes(b"no records at all")
    assert replay(tmp_path, servable=Recorder(), is_enabled=False) == []


@pytest.mark.parametrize(("iterations", "num_runs"), [(1, 2), (3, 6), (0, 2), (-1, 2)])
def test_iterations(tmp_path: Path, iterations: int, num_runs: int) -> None:
    servable = Recorder()
    write_logs(tmp_path, predict_log(outputs=("y",)), predict_log(outputs=("z",)))
    (event,) = replay(tmp_path, servable=servable, num_request_iterations=iterations)
    assert event.num_records == 2
    assert len(servable.runs) == num_runs
    order = [outputs for _, _, outputs in servable.runs]
    assert order == sorted(order)


@pytest.mark.parametrize("num_records", [1000, 1001])
def test_the_number_of_records_is_bounded(tmp_path: Path, num_records: int) -> None:
    servable = Recorder()
    record = predict_log().SerializeToString()
    write(tmp_path, records=[record] * num_records)
    if num_records == 1000:
        (event,) = replay(tmp_path, servable=servable)
        assert event.num_records == 1000
        return
    assert refusal(tmp_path, error=InvalidArgument, servable=servable) == (
        f"Number of warmup records exceeds the maximum (1000) at {warmup_file(tmp_path)}"
    )
    assert len(servable.runs) == 1001


SUFFIX = ". Please verify your warmup data is in TFRecord format."


def test_a_file_that_is_no_tfrecord(tmp_path: Path) -> None:
    warmup_file(tmp_path).write_bytes(b"these are not the records you are looking for")
    text = refusal(tmp_path, error=DataLoss)
    assert text.startswith("corrupted record at 0")
    assert text.endswith(SUFFIX)


def test_a_file_whose_last_record_is_cut_off(tmp_path: Path) -> None:
    servable = Recorder()
    write_logs(tmp_path, predict_log(), predict_log())
    file = warmup_file(tmp_path)
    file.write_bytes(file.read_bytes()[:-7])
    text = refusal(tmp_path, error=DataLoss, servable=servable)
    assert text.startswith("truncated record at ")
    assert text.endswith(SUFFIX)
    assert len(servable.runs) == 1


def test_a_record_that_is_no_prediction_log(tmp_path: Path) -> None:
    write(tmp_path, records=[b"\xff\xff"])
    assert refusal(tmp_path, error=InvalidArgument) == (
        rf"Failed to parse warmup record: b'\xff\xff' from {warmup_file(tmp_path)}"
    )


def with_wrong_input() -> Any:
    log = predict_log()
    log.predict_log.request.inputs["w"].CopyFrom(tf.make_tensor_proto(X))
    return log


def without_examples() -> Any:
    log = Log()
    log.classify_log.request.model_spec.signature_name = "classes"
    return log


@pytest.mark.parametrize(
    ("log", "error", "text"),
    [
        (
            predict_log("nothing"),
            FailedPrecondition,
            'Serving signature key "nothing" not found.',
        ),
        (
            predict_log(outputs=("w",)),
            InvalidArgument,
            (
                "output tensor alias not found in signature: w "
                "Outputs expected to be in the set {y,z}."
            ),
        ),
        (
            with_wrong_input(),
            InvalidArgument,
            (
                "input size does not match signature: 2!=1 len({w,x}) != len({x})."
                " Sent extra: {w}. Missing but required: {}."
            ),
        ),
        (without_examples(), InvalidArgument, "Input is empty."),
    ],
)
def test_a_record_that_does_not_fit_the_model_fails_the_load(
    tmp_path: Path, log: Any, error: type[ServingError], text: str
) -> None:
    write_logs(tmp_path, log)
    assert refusal(tmp_path, error=error) == text


def test_a_run_that_fails_fails_the_load(tmp_path: Path) -> None:
    write_logs(tmp_path, predict_log(), predict_log())
    servable = Recorder(error=Unavailable("device lost"))
    assert refusal(tmp_path, error=Unavailable, servable=servable) == "device lost"
    assert len(servable.runs) == 1
