"""TFLite models through LiteRT."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from aspira.contracts.errors import Internal, InvalidArgument, NotFound, ServingError, Unimplemented
from aspira.contracts.events import EventBus
from aspira.contracts.signatures import PREDICT_METHOD, SignatureTable
from aspira.contracts.tensors import DataType
from aspira.runtimes import tflite_parsing
from aspira.runtimes.litert import LitertLoader, LitertServable
from aspira.runtimes.options import LitertOptions, WarmupOptions
from aspira.runtimes.tflite_model import read_signature_defs

TEST_DATA = Path(
    os.environ.get("ASPIRA_TFSERVING_TESTDATA")
    or Path(__file__).parents[3] / "shared" / "testdata" / "tfserving"
)
PLAIN = "saved_model_half_plus_two_tflite"
WITH_SIGNATURES = "saved_model_half_plus_two_tflite_with_sigdef"

pytestmark = pytest.mark.skipif(
    not TEST_DATA.is_dir(), reason="TensorFlow Serving's test data is not here"
)


def load(directory: Path, *, num_pools: int = 1) -> LitertServable:
    return LitertLoader(
        directory,
        options=LitertOptions(is_preferred=True, num_pools=num_pools),
        warmup=WarmupOptions(),
        events=EventBus(),
    ).load()


def version(name: str) -> Path:
    return TEST_DATA / name / "00000123"


def floats(*values: float) -> np.ndarray:
    return np.array([[value] for value in values], np.float32)


def test_a_model_without_signatures_gets_one_from_its_tensors() -> None:
    servable = load(version(PLAIN))
    (signature,) = servable.signatures.values()
    assert signature.method_name == PREDICT_METHOD
    assert signature.inputs["x"].dtype is DataType.FLOAT
    assert signature.inputs["x"].shape == (1, 1)
    answer = servable.run("serving_default", inputs={"x": floats(1.0)}, outputs=("y",))
    np.testing.assert_array_equal(answer["y"], floats(2.5))


def test_signatures_of_the_metadata_name_the_inputs() -> None:
    servable = load(version(WITH_SIGNATURES))
    assert servable.signatures["serving_default"].inputs["x"].runtime_name == "tflite_input:0"
    answer = servable.run("serving_default", inputs={"x": floats(2.0)}, outputs=("y",))
    np.testing.assert_array_equal(answer["y"], floats(3.0))


def test_inputs_are_resized_from_request_to_request() -> None:
    servable = load(version(PLAIN))
    for values in ((1.0, 2.0, 5.0), (1.0,), (4.0, 4.0)):
        answer = servable.run("serving_default", inputs={"x": floats(*values)}, outputs=("y",))
        np.testing.assert_array_equal(answer["y"], floats(*values) / 2 + 2)


def test_answers_do_not_change_when_the_interpreter_runs_again() -> None:
    servable = load(version(PLAIN))
    first = servable.run("serving_default", inputs={"x": floats(1.0)}, outputs=("y",))["y"]
    servable.run("serving_default", inputs={"x": floats(9.0)}, outputs=("y",))
    np.testing.assert_array_equal(first, floats(2.5))


def test_more_requests_than_interpreters_all_get_their_own_answers() -> None:
    servable = load(version(PLAIN), num_pools=2)
    wrong: list[float] = []

    def ask(value: float) -> None:
        for _ in range(200):
            answer = servable.run("serving_default", inputs={"x": floats(value)}, outputs=("y",))
            if answer["y"] != value / 2 + 2:
                wrong.append(value)

    threads = [threading.Thread(target=ask, args=(float(value),)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_several_signatures_in_one_run() -> None:
    servable = load(version(WITH_SIGNATURES))
    table = servable.signatures
    assert isinstance(table, SignatureTable)
    answer = servable.run(
        table.join(["serving_default"]),
        inputs={"serving_default/x": floats(2.0)},
        outputs=("serving_default/y",),
    )
    np.testing.assert_array_equal(answer["serving_default/y"], floats(3.0))


def test_tensors_by_their_names() -> None:
    servable = load(version(WITH_SIGNATURES))
    output = servable.signatures["serving_default"].outputs["y"].runtime_name
    servable.run_session({"tflite_input": floats(2.0)}, fetches=(output,), targets=())
    with pytest.raises(Internal, match="Missing input TFLite tensor: nothing"):
        servable.run_session({"nothing": floats(2.0)}, fetches=(output,), targets=())
    with pytest.raises(Unimplemented, match="target"):
        servable.run_session({"tflite_input": floats(2.0)}, fetches=(), targets=("op",))


def test_a_wrong_dtype_is_refused_and_harms_nobody() -> None:
    servable = load(version(PLAIN))
    with pytest.raises(InvalidArgument, match="Input x is of type int32, expected float"):
        servable.run("serving_default", inputs={"x": np.array([[1]], np.int32)}, outputs=("y",))
    test_inputs_are_resized_from_request_to_request()


def serialized(**features: float | bytes) -> bytes:
    example = tf.train.Example()
    for name, value in features.items():
        feature = example.features.feature[name]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        else:
            feature.float_list.value.append(value)
    return bytes(example.SerializeToString())


def strings(*values: bytes) -> np.ndarray:
    return np.array(values, np.object_)


PARSED = ("ParseExample/ParseExampleV2", "ParseExample/ParseExampleV2:1")


def test_examples_are_parsed_though_litert_cannot() -> None:
    servable = load(version("parse_example_tflite"))
    assert servable.signatures["serving_default"].inputs.keys() == {"input"}
    examples = strings(serialized(x=2.5, y=b"text"), serialized())
    answer = servable.run("serving_default", inputs={"input": examples}, outputs=PARSED)
    assert answer[PARSED[0]].tolist() == [[2.5], [0.0]]
    assert answer[PARSED[1]].tolist() == [[b"text"], [b"missing"]]
    answer = servable.run("serving_default", inputs={"input": strings()}, outputs=PARSED[:1])
    assert answer[PARSED[0]].shape == (0, 1)


def test_what_is_no_example_is_the_clients_fault() -> None:
    servable = load(version("parse_example_tflite"))
    with pytest.raises(InvalidArgument) as caught:
        servable.run("serving_default", inputs={"input": strings(b"\xff")}, outputs=PARSED)
    assert caught.value.message == "Could not parse example input, value: '\ufffd'"


def convert(function: Callable[[Any], dict[str, Any]], directory: Path) -> Path:
    """A TFLite model of a function of serialized examples."""
    spec = tf.TensorSpec([None], tf.string, name="serialized")
    concrete = tf.function(function, input_signature=[spec]).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], tf.Module())
    converter.allow_custom_ops = True
    (directory / "model.tflite").write_bytes(converter.convert())
    return directory


def test_parsed_features_of_all_kinds_go_on_into_the_model(tmp_path: Path) -> None:
    features = {
        "dense": tf.io.FixedLenFeature([2], tf.float32),
        "count": tf.io.FixedLenFeature([], tf.int64, default_value=7),
        "sparse": tf.io.VarLenFeature(tf.float32),
    }

    def add(examples: Any) -> dict[str, Any]:
        parsed = tf.io.parse_example(examples, features)
        dense = tf.reduce_sum(parsed["dense"], axis=1)
        count = tf.cast(parsed["count"], tf.float32)
        return {"sum": dense + count + tf.reduce_sum(parsed["sparse"].values)}

    servable = load(convert(add, tmp_path))
    example = tf.train.Example()
    example.features.feature["dense"].float_list.value.extend([1, 2])
    example.features.feature["sparse"].float_list.value.extend([10, 20, 30])
    (alias,), (output,) = (
        servable.signatures["serving_default"].inputs,
        (servable.signatures["serving_default"].outputs),
    )
    examples = strings(example.SerializeToString())
    answer = servable.run("serving_default", inputs={alias: examples}, outputs=(output,))
    assert answer[output].tolist() == [70.0]
    with pytest.raises(InvalidArgument, match="dense"):
        servable.run("serving_default", inputs={alias: strings(b"")}, outputs=(output,))


def test_an_op_that_litert_lacks_is_named(tmp_path: Path) -> None:
    def split(text: Any) -> dict[str, Any]:
        return {"y": tf.strings.lower(text)}

    with pytest.raises(Internal, match="unresolved custom op: StringLower"):
        load(convert(split, tmp_path))


def test_a_parsing_op_that_is_not_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tflite_parsing, "_DTYPES", {})
    with pytest.raises(Internal, match="A ParseExample op of the model is not understood"):
        load(version("parse_example_tflite"))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No such file"):
        load(tmp_path)


def test_rubbish(tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(b"rubbish" * 100)
    with pytest.raises(Internal, match="Cannot build FlatBufferModel from buffer"):
        load(tmp_path)


def test_damaged_metadata_is_an_error_of_its_own() -> None:
    model = (version(WITH_SIGNATURES) / "model.tflite").read_bytes()
    random = np.random.default_rng(0)
    for _ in range(500):
        damaged = bytearray(model)
        for position in random.integers(8, len(model), 8):
            damaged[position] = random.integers(256)
        with suppress(ServingError):
            read_signature_defs(bytes(damaged))
