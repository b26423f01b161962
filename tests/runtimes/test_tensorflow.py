import asyncio
import shutil
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow_serving.apis import prediction_log_pb2

from aspira.contracts.errors import FailedPrecondition, InvalidArgument, NotFound, ServingError
from aspira.contracts.events import EventBus, LifecycleEvent, WarmupFinished, WarmupRunEnded
from aspira.contracts.signatures import (
    CLASSIFY_METHOD,
    PREDICT_METHOD,
    REGRESS_METHOD,
    SignatureTable,
    TensorSpec,
)
from aspira.contracts.tensors import DataType, Tensor, Tensors
from aspira.runtimes.options import TensorflowOptions, WarmupOptions
from aspira.runtimes.saved_model import open_session, read_meta_graph
from aspira.runtimes.tensorflow import (
    TensorflowLoader,
    TensorflowServable,
    make_session_config,
)

X = np.float32([1, 2, 5])


def load(path: Path, *, events: EventBus | None = None) -> TensorflowServable:
    return TensorflowLoader(
        path,
        options=TensorflowOptions(),
        warmup=WarmupOptions(),
        events=events or EventBus(),
    ).load()


def run(servable: TensorflowServable, name: str = "serving_default", **inputs: Tensor) -> Tensors:
    outputs = tuple(servable.signatures[name].outputs)
    return servable.run(name, inputs=inputs, outputs=outputs)


def texts(*values: bytes) -> Tensor:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def assert_same(found: Tensor, expected: Tensor) -> None:
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, expected, strict=True)


@pytest.fixture(scope="module")
def served_half_plus_two(half_plus_two: Path) -> Iterator[TensorflowServable]:
    servable = load(half_plus_two)
    yield servable
    servable.unload()


@pytest.fixture(scope="module")
def served_sampler(sampler: Path) -> Iterator[TensorflowServable]:
    servable = load(sampler)
    yield servable
    servable.unload()


def test_a_model_of_today(served_half_plus_two: TensorflowServable) -> None:
    assert_same(run(served_half_plus_two, x=X)["y"], np.float32([2.5, 3, 4.5]))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3,), (2, 0), (2, 3, 4)])
def test_shapes_are_kept(served_half_plus_two: TensorflowServable, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    assert_same(run(served_half_plus_two, x=x)["y"], x / 2 + np.float32(2))


def test_signatures_are_those_of_the_model(served_sampler: TensorflowServable) -> None:
    signatures = served_sampler.signatures
    assert signatures.keys() >= {"look_up", "serving_default", "subtract", "texts"}
    assert list(signatures) == sorted(signatures)
    assert not any(name.startswith("__") for name in signatures)
    # TensorFlow Serving lists those, too, in the metadata.
    assert isinstance(signatures, SignatureTable)
    init = signatures.listed()["__saved_model_init_op"]
    assert init.outputs["__saved_model_init_op"].dtype is DataType.INVALID
    assert signatures.listed().keys() == {*signatures, "__saved_model_init_op"}
    split = signatures["serving_default"]
    assert split.method_name == PREDICT_METHOD
    assert split.inputs == {"x": TensorSpec(DataType.FLOAT, (None,), "serving_default_x:0")}
    assert {alias: (s.dtype, s.shape) for alias, s in split.outputs.items()} == {
        "count": (DataType.INT32, ()),
        "half": (DataType.FLOAT, (None,)),
        "sum": (DataType.FLOAT, ()),
    }
    assert signatures["texts"].inputs["text"].shape is None


@pytest.mark.parametrize(
    "outputs", [("count", "half", "sum"), ("sum", "count"), ("half",), ("sum",)]
)
def test_the_outputs_asked_for_come_in_that_order(
    served_sampler: TensorflowServable, outputs: tuple[str, ...]
) -> None:
    expected = {"sum": np.float32(8), "half": X / 2, "count": np.int32(3)}
    found = served_sampler.run("serving_default", inputs={"x": X}, outputs=outputs)
    assert tuple(found) == outputs
    for alias in outputs:
        assert_same(found[alias], np.asarray(expected[alias]))


def test_inputs_go_by_alias_whatever_their_order(served_sampler: TensorflowServable) -> None:
    a, b = np.float32([5]), np.float32([3])
    assert_same(run(served_sampler, "subtract", a=a, b=b)["difference"], np.float32([2]))
    assert_same(run(served_sampler, "subtract", b=b, a=a)["difference"], np.float32([2]))


@pytest.mark.parametrize(
    "text",
    [
        texts(b"a", b"", b"\x00\xff\x00", "ä".encode() * 999),
        texts(),
        texts(b"a", b"b").reshape(2, 1),
        np.array(b"a\x00b\x00", dtype=object),
    ],
)
def test_strings_are_bytes_of_any_kind(served_sampler: TensorflowServable, text: Tensor) -> None:
    found = run(served_sampler, "texts", text=text)
    assert_same(found["same"], text)
    lengths = np.array([len(value) for value in text.ravel()], np.int32)
    assert_same(found["length"], lengths.reshape(text.shape))


@pytest.mark.parametrize(
    "data_type",
    [
        DataType.BFLOAT16,
        DataType.HALF,
        DataType.BOOL,
        DataType.COMPLEX64,
        DataType.UINT32,
        DataType.INT64,
        DataType.INT4,
        DataType.FLOAT8_E5M2,
    ],
)
def test_dtypes_pass_unchanged(served_sampler: TensorflowServable, data_type: DataType) -> None:
    name = data_type.name.lower()
    tensor = np.array([0, 1, 1]).astype(data_type.numpy_dtype)
    assert_same(run(served_sampler, name, tensor=tensor)["tensor"], tensor)


def test_tables_are_initialized_from_assets_where_the_model_is_now(
    served_sampler: TensorflowServable,
) -> None:
    found = run(served_sampler, "look_up", word=texts(b"two", b"one", b"zero", b"x"))
    assert_same(found["number"], np.int64([2, 1, 0, -1]))
    assert_same(found["name"], texts(b"two", b"one", b"?", b"?"))


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (np.float64([1]), "Type mismatch: actual double vs. expect float"),
        (np.int32([1]), "Type mismatch: actual int32 vs. expect float"),
        (texts(b"1"), "Type mismatch: actual string vs. expect float"),
    ],
)
def test_a_wrong_dtype_is_refused_and_the_model_serves_on(
    served_half_plus_two: TensorflowServable, x: Tensor, text: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        run(served_half_plus_two, x=x)
    assert caught.value.message.startswith(text)
    assert_same(run(served_half_plus_two, x=X)["y"], np.float32([2.5, 3, 4.5]))


def test_shapes_that_do_not_fit_are_refused(served_sampler: TensorflowServable) -> None:
    a, b = np.ones(2, np.float32), np.ones(3, np.float32)
    with pytest.raises(InvalidArgument) as caught:
        run(served_sampler, "subtract", a=a, b=b)
    assert "[2] vs. [3]" in caught.value.message


def test_runs_may_overlap(served_half_plus_two: TensorflowServable) -> None:
    def ask(number: int) -> float:
        return float(run(served_half_plus_two, x=np.float32([number]))["y"][0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(200))) == [number / 2 + 2 for number in range(200)]


def test_inputs_that_are_views_of_a_message(served_half_plus_two: TensorflowServable) -> None:
    received = np.frombuffer(X.tobytes(), np.float32)
    assert not received.flags.writeable
    assert_same(run(served_half_plus_two, x=received)["y"], np.float32([2.5, 3, 4.5]))
    assert_same(run(served_half_plus_two, x=X[::2])["y"], np.float32([2.5, 4.5]))


def test_an_unloaded_model_lets_its_session_go(half_plus_two: Path) -> None:
    servable = load(half_plus_two)
    freed = threading.Event()
    weakref.finalize(servable._session, freed.set)
    servable.unload()
    assert asyncio.run(asyncio.to_thread(freed.wait, 20.0))


def test_after_a_load_the_first_request_finds_all_made(
    sampler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_nothing(options: object) -> None:
        raise AssertionError("made during a request")

    servable = load(sampler)
    monkeypatch.setattr(servable._session, "_make_callable_from_options", make_nothing)
    assert_same(run(servable, x=X)["half"], X / 2)
    assert_same(run(servable, "texts", text=texts(b"a"))["same"], texts(b"a"))
    servable.unload()


def test_what_we_use_of_session_callables(tfserving_testdata: Path) -> None:
    """`Session._make_callable_from_options` is not public; this is all we expect of it."""
    path = tfserving_testdata / "saved_model_half_plus_two_cpu" / "00000123"
    meta_graph = read_meta_graph(path, tags=("serve",))
    session = open_session(path, meta_graph=meta_graph, config=None)
    options = config_pb2.CallableOptions(feed=["x:0"], fetch=["y:0", "y2:0", "y:0"])
    options.run_options.inter_op_thread_pool = -1
    call = session._make_callable_from_options(options)
    x = np.float32([[1], [2]])
    results = call(x)
    assert isinstance(results, list)
    assert [type(result) for result in results] == [np.ndarray] * 3
    assert [result.ravel().tolist() for result in results] == [[2.5, 3], [3.5, 4], [2.5, 3]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected 1 feed tensors, but got 0"):
        call()
    unknown = config_pb2.CallableOptions(fetch=["nothing:0"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="nothing:0"):
        session._make_callable_from_options(unknown)
    session.close()
    with pytest.raises(tf.errors.CancelledError):
        call(x)
    # Its own end, after the session's, must be as harmless; a warning would fail this test.
    del call


def example(**features: float) -> bytes:
    message = tf.train.Example()
    for name, value in features.items():
        message.features.feature[name].float_list.value.append(value)
    serialized: bytes = message.SerializeToString()
    return serialized


@pytest.mark.parametrize(
    "name",
    [
        "saved_model_half_plus_two_cpu",
        "saved_model_half_plus_two_gpu",
        "saved_model_half_plus_two_mkl",
        "saved_model_half_plus_two_mlmd",
        "saved_model_half_plus_two_cpu_with_saved_model_config",
        "saved_model_half_plus_two_cpu_with_empty_saved_model_config",
    ],
)
def test_tensorflow_servings_half_plus_two(tfserving_testdata: Path, name: str) -> None:
    servable = load(tfserving_testdata / name / "00000123")
    x = np.float32([[1], [2], [5]])
    assert_same(run(servable, x=x)["y"], x / 2 + np.float32(2))
    servable.unload()


def test_signatures_that_take_examples(tfserving_testdata: Path) -> None:
    servable = load(tfserving_testdata / "saved_model_half_plus_two_cpu" / "00000123")
    assert servable.signatures["classify_x_to_y"].method_name == CLASSIFY_METHOD
    assert servable.signatures["regress_x_to_y"].method_name == REGRESS_METHOD
    inputs = texts(example(x=4), example(x=6, x2=1))
    scores = run(servable, "classify_x_to_y", inputs=inputs)["scores"]
    assert_same(scores, np.float32([[4], [5]]))
    outputs = run(servable, "regress_x_to_y2", inputs=inputs)["outputs"]
    assert_same(outputs, np.float32([[5], [6]]))
    with pytest.raises(InvalidArgument) as caught:
        run(servable, "classify_x_to_y", inputs=texts(b"garbage"))
    assert caught.value.message.startswith("Could not parse example input, value: 'garbage'")
    servable.unload()


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("saved_model_half_plus_three/00000123", [2], [4]),
        ("saved_model_half_plus_two_2_versions/00000124", [[2]], [[3]]),
        ("saved_model_half_plus_two_tf2_cpu/00000123", [2], [3]),
    ],
)
def test_other_models_of_tensorflow_serving(
    tfserving_testdata: Path, name: str, x: list[Any], y: list[Any]
) -> None:
    servable = load(tfserving_testdata / name)
    assert_same(run(servable, x=np.float32(x))["y"], np.float32(y))
    servable.unload()


def test_a_model_with_state(tfserving_testdata: Path) -> None:
    servable = load(tfserving_testdata / "saved_model_counter" / "00000123")

    def count(name: str, **inputs: Tensor) -> float:
        return float(run(servable, name, **inputs)["output"])

    assert servable.signatures["get_counter"].outputs["output"].dtype is DataType.FLOAT
    assert count("get_counter") == 0
    assert [count("incr_counter") for _ in range(3)] == [1, 2, 3]
    assert count("incr_counter_by", delta=np.float32(5)) == 8
    assert count("get_counter") == 8
    assert count("reset_counter") == 0
    servable.unload()


def test_each_load_has_a_state_of_its_own(tfserving_testdata: Path) -> None:
    first, second = (load(tfserving_testdata / "saved_model_counter/00000123") for _ in range(2))
    assert float(run(first, "incr_counter")["output"]) == 1
    first.unload()
    assert float(run(second, "incr_counter")["output"]) == 1
    second.unload()


def test_a_signature_that_cannot_be_run_leaves_the_others(
    half_plus_two: Path, tmp_path: Path
) -> None:
    path = tmp_path / "1"
    shutil.copytree(half_plus_two, path)
    meta_graph = read_meta_graph(path, tags=("serve",))
    signatures = meta_graph.signature_def
    signatures["broken"].CopyFrom(signatures["serving_default"])
    signatures["broken"].outputs["y"].name = "nothing:0"
    servable = TensorflowServable(
        open_session(path, meta_graph=meta_graph, config=None), meta_graph=meta_graph
    )
    servable.prepare()
    with pytest.raises(InvalidArgument, match="nothing:0"):
        run(servable, "broken", x=X)
    assert_same(run(servable, x=X)["y"], np.float32([2.5, 3, 4.5]))
    servable.unload()


def test_several_signatures_in_one_run(served_sampler: TensorflowServable) -> None:
    table = served_sampler.signatures
    assert isinstance(table, SignatureTable)
    name = table.join(["serving_default", "subtract", "texts"])
    outputs = served_sampler.run(
        name,
        inputs={
            "serving_default/x": X,
            "subtract/a": X,
            "subtract/b": np.ones_like(X),
            "texts/text": texts(b"one"),
        },
        outputs=("texts/length", "subtract/difference", "serving_default/half"),
    )
    assert list(outputs) == ["texts/length", "subtract/difference", "serving_default/half"]
    assert_same(outputs["subtract/difference"], X - 1)
    assert_same(outputs["serving_default/half"], X / 2)
    assert outputs["texts/length"].tolist() == [3]
    assert name not in table


def test_tensors_by_their_names_in_the_graph(served_sampler: TensorflowServable) -> None:
    signature = served_sampler.signatures["serving_default"]
    fed, fetched = signature.inputs["x"].runtime_name, signature.outputs["sum"].runtime_name
    served_sampler.run_session({fed: X}, fetches=(fetched,), targets=(fetched.partition(":")[0],))
    with pytest.raises(ServingError, match="nothing"):
        served_sampler.run_session({fed: X}, fetches=("nothing:0",), targets=())
    with pytest.raises(InvalidArgument):
        served_sampler.run_session({fed: texts(b"one")}, fetches=(fetched,), targets=())


QUANTIZED = {
    "qint8": (tf.qint8, tf.int8),
    "quint8": (tf.quint8, tf.uint8),
    "qint16": (tf.qint16, tf.int16),
    "quint16": (tf.quint16, tf.uint16),
    "qint32": (tf.qint32, tf.int32),
}


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signature for each quantized type, which passes a tensor of it and tells its numbers."""
    path = tmp_path_factory.mktemp("quantized") / "1"
    tf1 = tf.compat.v1
    signatures = {}
    with tf1.Graph().as_default(), tf1.Session() as session:
        for name, (dtype, storage) in QUANTIZED.items():
            given = tf1.placeholder(dtype, [None])
            signatures[name] = tf1.saved_model.predict_signature_def(
                {"x": given},
                {"same": tf.identity(given), "numbers": tf.bitcast(given, storage)},
            )
        builder = tf1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()
    return path


def test_quantized_integers_keep_their_type(quantized: Path) -> None:
    servable = load(quantized)
    for name in QUANTIZED:
        dtype = DataType[name.upper()].numpy_dtype
        assert dtype is not None
        storage = np.dtype(QUANTIZED[name][1].as_numpy_dtype)
        given = np.array([1, 0, 127], storage)
        outputs = run(servable, name, x=given.view(dtype))
        assert_same(outputs["same"], given.view(dtype))
        assert_same(outputs["numbers"], given)
    servable.unload()


def write_warmup(path: Path, *, signature_name: str) -> None:
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = signature_name
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(X))
    (path / "assets.extra").mkdir()
    with tf.io.TFRecordWriter(str(path / "assets.extra/tf_serving_warmup_requests")) as writer:
        writer.write(log.SerializeToString())


@pytest.mark.parametrize(("signature_name", "error"), [("", None), ("nothing", FailedPrecondition)])
def test_a_load_includes_its_warm_up(
    half_plus_two: Path, tmp_path: Path, signature_name: str, error: type[ServingError] | None
) -> None:
    path = tmp_path / "1"
    shutil.copytree(half_plus_two, path)
    write_warmup(path, signature_name=signature_name)
    events: list[LifecycleEvent] = []
    bus = EventBus()
    bus.subscribe_lifecycle(events.append)
    if error is None:
        load(path, events=bus).unload()
        assert [type(event) for event in events] == [WarmupRunEnded, WarmupFinished]
        return
    with pytest.raises(error) as caught:
        load(path, events=bus)
    assert caught.value.message == 'Serving signature key "nothing" not found.'
    assert events == []


def test_no_model_no_load(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load(tmp_path / "absent")


CONFIG_FILE = (
    "intra_op_parallelism_threads: 9 inter_op_parallelism_threads: 9 log_device_placement: true"
)


@pytest.mark.parametrize(
    ("options", "intra", "inter"),
    [
        (TensorflowOptions(), 0, 0),
        (TensorflowOptions(session_parallelism=3), 3, 3),
        (TensorflowOptions(intra_op_parallelism=2), 2, 0),
        (TensorflowOptions(inter_op_parallelism=2), 0, 2),
        (TensorflowOptions(intra_op_parallelism=1, inter_op_parallelism=2), 1, 2),
    ],
)
def test_thread_flags(options: TensorflowOptions, intra: int, inter: int) -> None:
    config = make_session_config(options)
    assert config.intra_op_parallelism_threads == intra
    assert config.inter_op_parallelism_threads == inter
    assert config.allow_soft_placement


def test_the_gpu_memory_flag() -> None:
    config = make_session_config(TensorflowOptions(gpu_memory_fraction=0.25))
    assert config.gpu_options.per_process_gpu_memory_fraction == 0.25


@pytest.mark.parametrize(("parallelism", "threads"), [(0, 9), (2, 2)])
def test_flags_win_over_the_session_config_file(
    tmp_path: Path, parallelism: int, threads: int
) -> None:
    file = tmp_path / "session.config"
    file.write_text(CONFIG_FILE)
    config = make_session_config(
        TensorflowOptions(session_config_file=str(file), session_parallelism=parallelism)
    )
    assert config.log_device_placement
    assert config.intra_op_parallelism_threads == threads
    assert config.inter_op_parallelism_threads == threads


def test_a_session_config_file_that_does_not_parse(tmp_path: Path) -> None:
    file = tmp_path / "session.config"
    file.write_text("\nintra: 3")
    with pytest.raises(InvalidArgument) as caught:
        make_session_config(TensorflowOptions(session_config_file=str(file)))
    assert f"'{file}'" in caught.value.message
    assert "tensorflow.ConfigProto: 2:1" in caught.value.message


def test_the_session_config_reaches_the_session(half_plus_two: Path) -> None:
    options = TensorflowOptions(intra_op_parallelism=1, inter_op_parallelism=1)
    servable = TensorflowLoader(
        half_plus_two, options=options, warmup=WarmupOptions(), events=EventBus()
    ).load()
    config = servable._session._config
    # What is rewritten depends on the model too.
    config.ClearField("graph_options")
    assert config == make_session_config(options)
    assert_same(run(servable, x=X)["y"], np.float32([2.5, 3, 4.5]))
    servable.unload()
