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
from aspira.contracts.events import EventBus, LifecycleEvent, WarmupFinished, WarmupRunEnded
from aspira.contracts.signatures import (
    CLASSIFY_METHOD,
    REGRESS_METHOD,
    Signature,
    SignatureTable,
    TensorSpec,
)
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
        self.ended: list[WarmupRunEnded] = []
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
    servable.ended = [event for event in events if isinstance(event, WarmupRunEnded)]
    return [event for event in events if not isinstance(event, WarmupRunEnded)]


def refusal(
    path: Path, *, error: type[ServingError], servable: Recorder | None = None, **options: Any
) -> str:
    with pytest.raises(error) as caught:
        replay(path, servable=servable or Recorder(), **options)
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


def test_runs_are_told_with_the_recorded_name_and_api(tmp_path: Path) -> None:
    regress, servable = Log(), Recorder()
    fill_examples(regress.regress_log.request, signature_name="values")
    write_logs(tmp_path, predict_log(), regress)
    replay(tmp_path, servable=servable)
    told = [(event.model_name, event.api) for event in servable.ended]
    assert told == [("another model", "predict"), ("", "regress")]
    assert all(event.duration_s >= 0 for event in servable.ended)


def test_tasks_of_one_record_are_one_run_where_the_runtime_can(tmp_path: Path) -> None:
    servable = Recorder()
    servable.signatures = SignatureTable(servable.signatures)
    log = Log()
    request = log.multi_inference_log.request
    request.tasks.add(method_name=REGRESS_METHOD).model_spec.signature_name = "values"
    request.tasks.add(method_name=CLASSIFY_METHOD).model_spec.signature_name = "classes"
    request.input.example_list.examples.append(example(1))
    write_logs(tmp_path, log)
    replay(tmp_path, servable=servable)
    ((name, inputs, outputs),) = servable.runs
    assert servable.signatures.resolve(name).outputs.keys() == set(outputs)
    assert outputs == ("values/outputs", "classes/scores")
    assert inputs.keys() == {"values/inputs", "classes/inputs"}


def session_run_log(*, is_alias: bool = False) -> Any:
    log = Log()
    request = log.session_run_log.request
    request.model_spec.signature_name = "serving_default"
    feed = request.feed.add(name="x" if is_alias else "x:0")
    feed.tensor.CopyFrom(tf.make_tensor_proto(X))
    request.fetch.append("z" if is_alias else "y:0")
    request.target.extend([] if is_alias else ["touch"])
    request.tensor_name_is_alias = is_alias
    return log


class SessionRecorder(Recorder):
    """A recorder that also notes what it is asked by the names of the graph."""

    def run_session(
        self, feeds: Tensors, *, fetches: tuple[str, ...], targets: tuple[str, ...]
    ) -> None:
        self.runs.append((f"fetch {fetches}, run {targets}", feeds, ()))


def test_a_session_run_is_replayed_by_tensor_names(tmp_path: Path) -> None:
    servable = SessionRecorder()
    write_logs(tmp_path, session_run_log())
    replay(tmp_path, servable=servable)
    ((name, feeds, _),) = servable.runs
    assert name == "fetch ('y:0',), run ('touch',)"
    np.testing.assert_array_equal(feeds["x:0"], X, strict=True)


def test_a_session_run_by_aliases_is_a_run_of_the_signature(tmp_path: Path) -> None:
    servable = Recorder()
    write_logs(tmp_path, session_run_log(is_alias=True))
    replay(tmp_path, servable=servable)
    assert [(name, outputs) for name, _, outputs in servable.runs] == [("serving_default", ("z",))]


def test_a_session_run_needs_a_runtime_that_has_one(tmp_path: Path) -> None:
    write_logs(tmp_path, session_run_log())
    assert "runtime has not" in refusal(tmp_path, error=Unimplemented)


def test_every_batch_size_is_run_with_rows_repeated_or_cut(tmp_path: Path) -> None:
    servable = Recorder()
    write_logs(tmp_path, predict_log())
    replay(tmp_path, servable=servable, batch_sizes=(2, 4))
    assert [inputs["x"].tolist() for _, inputs, _ in servable.runs] == [
        [1, 2, 5],
        [1, 2],
        [1, 2, 5, 1],
    ]


@pytest.mark.parametrize("shape", [(3,), ()])
def test_inputs_of_a_fixed_size_stay_as_they_are(tmp_path: Path, shape: tuple[int, ...]) -> None:
    servable = Recorder()
    fixed = TensorSpec(DataType.FLOAT, shape)
    servable.signatures["serving_default"] = Signature({"x": fixed}, {"y": FLOAT})
    write_logs(tmp_path, predict_log())
    replay(tmp_path, servable=servable, batch_sizes=(2, 4))
    assert [inputs["x"].tolist() for _, inputs, _ in servable.runs] == [[1, 2, 5]]


def test_several_threads_replay_every_record_once(tmp_path: Path) -> None:
    servable = Recorder()
    write_logs(tmp_path, *[predict_log(outputs=("y",)), predict_log(outputs=("z",))] * 20)
    (event,) = replay(tmp_path, servable=servable, num_threads=4)
    assert event.num_records == 40
    assert sorted(outputs for _, _, outputs in servable.runs) == [("y",)] * 20 + [("z",)] * 20


def test_an_error_in_one_of_several_threads_fails_the_load(tmp_path: Path) -> None:
    write_logs(tmp_path, *[predict_log()] * 20)
    servable = Recorder(error=Unavailable("device lost"))
    text = refusal(tmp_path, error=Unavailable, servable=servable, num_threads=4)
    assert text == "device lost"


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
    text = refusal(tmp_path, error=Unimplemented, is_session_run_refused=True)
    assert text == f"Unsupported log_type for warmup: {number}"


def test_without_a_file_nothing_happens(tmp_path: Path) -> None:
    assert replay(tmp_path, servable=Recorder()) == []


def test_when_disabled_the_file_is_not_even_read(tmp_path: Path) -> None:
    warmup_file(tmp_path).write_bytes(b"no records at all")
    assert replay(tmp_path, servable=Recorder(), is_enabled=False) == []


@pytest.mark.parametrize(("iterations", "num_runs"), [(1, 2), (3, 6), (0, 0)])
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
