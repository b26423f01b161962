"""SavedModels with an accelerator: what serves each signature, and that nobody can tell."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import openvino
import pytest
import tensorflow as tf

import aspira.runtimes.openvino as openvino_accelerator
from aspira.contracts.errors import FailedPrecondition, InvalidArgument
from aspira.contracts.events import (
    AcceleratorProblem,
    CompiledAfterReady,
    RuntimeChosen,
    RuntimesReleased,
)
from aspira.contracts.tensors import Tensor
from aspira.runtimes.accelerated import AcceleratedServable
from aspira.runtimes.accelerator_options import AcceleratorOptions
from runtimes.accelerated_models import (
    NUM_IDS,
    STATELESS_SIGNATURES,
    Loading,
    Stateless,
    Tally,
    run,
    write_module,
    write_records,
)

OPENVINO, XLA = "openvino", "xla"
# General, one row alone, one row beside others.
NUM_FORMS = 3
random = np.random.default_rng(1)


@pytest.fixture(scope="module")
def stateless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stateless") / "1"
    return write_module(Stateless(), names=STATELESS_SIGNATURES, directory=directory)


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tally") / "1"
    return write_module(Tally(), names=("count", "plain", "read"), directory=directory)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def loadings(stateless: Path, cache: Path) -> dict[str, Loading]:
    return {
        kind: Loading(stateless, AcceleratorOptions(kind=kind, cache_dir=str(cache)))
        for kind in (OPENVINO, XLA, "tensorflow")
    }


@pytest.fixture(scope="module")
def served(loadings: dict[str, Loading]) -> Iterator[dict[str, AcceleratedServable]]:
    servables = {kind: loading.load() for kind, loading in loadings.items()}
    yield servables
    for servable in servables.values():
        servable.unload()


def rows(num_rows: int) -> Tensor:
    return random.normal(size=(num_rows, 4)).astype(np.float32)


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "openvino_reason", "xla_reason"),
    [
        ("dense", "", ""),
        ("embed", "", "refuses an index out of range"),
        ("half_used", "", ""),
        ("center", "", "xla answers otherwise"),
        ("fixed", "", ""),
        ("three_rows", "", "XLA cannot compile it"),
        ("text", "works on string", "works on string"),
        ("noise", "RandomUniform has state", "RandomUniform has state"),
        ("double", "works on double", ""),
        ("wide", "Mul computes in int64", ""),
        ("small", "computes in uint8", ""),
        ("divide", "refuses to divide by zero", "refuses to divide by zero"),
        ("checked", "CheckNumerics has state", "CheckNumerics has state"),
        ("loop", "control flow", ""),
        ("any_rank", "it takes none generated", "it takes none generated"),
    ],
)
def test_what_serves_each_signature_and_why(
    served: dict[str, AcceleratedServable], name: str, openvino_reason: str, xla_reason: str
) -> None:
    for kind, reason in ((OPENVINO, openvino_reason), (XLA, xla_reason)):
        choice = served[kind].runtimes[name]
        assert choice.runtime == ("tensorflow" if reason else kind), choice
        assert reason in choice.reason
        assert choice.reason


def test_only_what_tensorflow_serves_is_known_never_to_wait(
    served: dict[str, AcceleratedServable],
) -> None:
    assert {"dense", "double"} <= served["tensorflow"].straight_signatures
    assert "double" in served[OPENVINO].straight_signatures
    for servable in served.values():
        runtimes = {servable.runtimes[name].runtime for name in servable.straight_signatures}
        assert runtimes <= {"tensorflow"}


@pytest.mark.parametrize("kind", [OPENVINO, XLA])
@pytest.mark.parametrize("num_rows", [0, 1, 3, 16, 17])
@pytest.mark.parametrize("name", ["dense", "center"])
def test_answers_are_tensorflows(
    served: dict[str, AcceleratedServable], kind: str, num_rows: int, name: str
) -> None:
    x = rows(num_rows)
    expected = run(served["tensorflow"], name, x=x)
    found = run(served[kind], name, x=x)
    assert list(found) == list(expected)
    for alias, tensor in expected.items():
        assert_close(found[alias], tensor)


@pytest.mark.parametrize("kind", [OPENVINO, XLA])
@pytest.mark.parametrize("outputs", [("scores", "best"), ("hidden",), ("best", "hidden", "scores")])
def test_the_outputs_asked_for_come_in_that_order(
    served: dict[str, AcceleratedServable], kind: str, outputs: tuple[str, ...]
) -> None:
    x = rows(3)
    expected = run(served["tensorflow"], "dense", x=x)
    found = served[kind].run("dense", inputs={"x": x}, outputs=outputs)
    assert tuple(found) == outputs
    for alias in outputs:
        assert_close(found[alias], expected[alias])


def test_inputs_that_nothing_depends_on(served: dict[str, AcceleratedServable]) -> None:
    x = rows(2)
    for kind in (OPENVINO, XLA):
        found = run(served[kind], "half_used", used=x, unused=x + 1)
        assert_close(found["same"], x)
        assert_close(found["doubled"], x * 2)


@pytest.mark.parametrize("num_rows", [1, 3])
def test_inputs_are_never_written_to(served: dict[str, AcceleratedServable], num_rows: int) -> None:
    """OpenVINO reads them where they are, and might compute in place."""
    x = rows(num_rows)
    kept = x.copy()
    found = run(served[OPENVINO], "half_used", used=x, unused=x)
    np.testing.assert_array_equal(x, kept)
    assert_close(found["doubled"], kept * 2)


@pytest.mark.parametrize("kind", [OPENVINO, XLA])
def test_an_answer_is_not_overwritten_by_the_next(
    served: dict[str, AcceleratedServable], kind: str
) -> None:
    first, second = rows(3), rows(3)
    answer = run(served[kind], "dense", x=first)
    kept = {alias: tensor.copy() for alias, tensor in answer.items()}
    run(served[kind], "dense", x=second)
    for alias, tensor in kept.items():
        np.testing.assert_array_equal(answer[alias], tensor)


@pytest.mark.parametrize("kind", [OPENVINO, XLA])
def test_runs_may_overlap(served: dict[str, AcceleratedServable], kind: str) -> None:
    matrix = run(served["tensorflow"], "dense", x=np.eye(4, dtype=np.float32))["scores"]

    def ask(number: int) -> None:
        x = np.full((number % 5 + 1, 4), number, np.float32)
        assert_close(run(served[kind], "dense", x=x)["scores"], x @ matrix)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(400)))


@pytest.mark.parametrize("kind", [OPENVINO, XLA])
@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.frombuffer(x.tobytes(), np.float32).reshape(x.shape),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: np.asfortranarray(x),
    ],
    ids=["read-only", "strided", "columns first"],
)
def test_inputs_in_any_memory(
    served: dict[str, AcceleratedServable], kind: str, change: Callable[[Tensor], Tensor]
) -> None:
    x = rows(3)
    changed = change(x)
    found = run(served[kind], "dense", x=changed)["scores"]
    assert_close(found, run(served["tensorflow"], "dense", x=x)["scores"])
    np.testing.assert_array_equal(changed, x)


@pytest.mark.parametrize("kind", [OPENVINO, XLA])
@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("dense", {"x": np.ones((1, 4))}),
        ("dense", {"x": np.ones((1, 5), np.float32)}),
        ("dense", {"x": np.ones(4, np.float32)}),
        ("embed", {"ids": np.int64([[0, NUM_IDS]])}),
        ("embed", {"ids": np.int64([[-1, 0]])}),
        ("embed", {"ids": np.int64([[2**32, 0]])}),
        ("divide", {"x": np.int32([0])}),
        ("checked", {"x": np.float32([[np.nan] * 4])}),
    ],
)
def test_what_tensorflow_refuses_is_refused_in_its_words(
    served: dict[str, AcceleratedServable], kind: str, name: str, inputs: dict[str, Tensor]
) -> None:
    with pytest.raises(InvalidArgument) as expected:
        run(served["tensorflow"], name, **inputs)
    with pytest.raises(InvalidArgument) as found:
        run(served[kind], name, **inputs)
    assert found.value.message == expected.value.message


@pytest.mark.parametrize("kind", [OPENVINO, XLA])
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_values_that_are_no_numbers(
    served: dict[str, AcceleratedServable], kind: str, value: float
) -> None:
    x = rows(2)
    x[0, 0] = value
    expected = run(served["tensorflow"], "dense", x=x)
    for alias, tensor in run(served[kind], "dense", x=x).items():
        assert_close(tensor, expected[alias])


def test_a_declined_request_is_told_once(stateless: Path, cache: Path) -> None:
    loading = Loading(stateless, AcceleratorOptions(kind=OPENVINO, cache_dir=str(cache)))
    servable = loading.load()
    for _ in range(3):
        with pytest.raises(InvalidArgument):
            run(servable, "dense", x=np.ones((1, 5), np.float32))
    (problem,) = loading.told_of(AcceleratorProblem)
    assert problem.path == str(stateless)
    assert "dense" in problem.message
    assert loading.told_of(RuntimesReleased) == []
    servable.unload()
    assert loading.told_of(RuntimesReleased) == [RuntimesReleased(str(stateless))]


@pytest.mark.parametrize("kind", [OPENVINO, XLA])
def test_state_is_never_frozen(tally: Path, kind: str, tmp_path: Path) -> None:
    servable = Loading(tally, AcceleratorOptions(kind=kind, cache_dir=str(tmp_path))).load()
    choices = servable.runtimes
    assert {name: choice.runtime for name, choice in choices.items()} == {
        "count": "tensorflow",
        "plain": kind,
        "read": "tensorflow",
    }
    assert choices["read"].reason == "it reads variables, which signature `count` changes"
    zero = np.float32([0])
    before = run(servable, "read", x=zero)["total"]
    np.testing.assert_array_equal(run(servable, "count", x=np.float32([2, 3]))["total"], before + 5)
    np.testing.assert_array_equal(run(servable, "read", x=zero)["total"], before + 5)
    servable.unload()


def test_each_choice_is_told(loadings: dict[str, Loading], served: object) -> None:
    for loading in loadings.values():
        chosen = loading.told_of(RuntimeChosen)
        assert [event.signature_name for event in chosen] == list(STATELESS_SIGNATURES)
        assert {event.path for event in chosen} == {str(loading.path)}


def test_no_run_compiles_once_a_version_is_ready(
    loadings: dict[str, Loading], served: dict[str, AcceleratedServable]
) -> None:
    for num_rows in range(20):
        run(served[XLA], "dense", x=rows(num_rows))
    assert loadings[XLA].told_of(CompiledAfterReady) == []


def test_on_a_gpu_tensorflow_serves_unless_told_otherwise(
    tally: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a device"])
    servable = Loading(tally, AcceleratorOptions(kind="auto", cache_dir=str(tmp_path))).load()
    assert {choice.runtime for choice in servable.runtimes.values()} == {"tensorflow"}
    assert "GPU" in servable.runtimes["plain"].reason
    servable.unload()


def record_dense(file: Path) -> None:
    write_records(file, name="dense", requests=[{"x": rows(2)} for _ in range(20)])


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_other_precisions_tell_what_they_cost(
    stateless: Path, precision: str, tmp_path: Path
) -> None:
    record_dense(tmp_path / "records")
    loading = Loading(
        stateless,
        AcceleratorOptions(
            kind=OPENVINO,
            precision=precision,
            calibration_file=str(tmp_path / "records"),
            cache_dir=str(tmp_path),
        ),
    )
    servable = loading.load()
    choice = servable.runtimes["dense"]
    assert (choice.runtime, choice.precision) == (OPENVINO, precision)
    assert choice.difference.endswith("of the largest value") or "integers" in choice.difference
    assert float(choice.difference.split()[0]) > 1e-5
    expected = servable._tensorflow.run("dense", inputs={"x": rows(5)}, outputs=("scores",))
    assert expected["scores"].shape == (5, 3)
    servable.unload()


def test_int8_without_records_is_refused(stateless: Path, tmp_path: Path) -> None:
    options = AcceleratorOptions(kind=OPENVINO, precision="int8", cache_dir=str(tmp_path))
    with pytest.raises(FailedPrecondition, match="tf_serving_warmup_requests has none"):
        Loading(stateless, options).load()


def count_compiles(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    compile_model = openvino.Core.compile_model
    compiled: list[object] = []

    def note(core: openvino.Core, model: object, *arguments: object) -> object:
        compiled.append(model)
        return compile_model(core, model, *arguments)

    monkeypatch.setattr(openvino.Core, "compile_model", note)
    return compiled


def test_a_restart_does_not_compile_again(
    tally: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = AcceleratorOptions(kind=OPENVINO, cache_dir=str(tmp_path))
    x = np.float32([1, 2])
    compiled = count_compiles(monkeypatch)
    for _ in range(2):
        servable = Loading(tally, options).load()
        assert len(compiled) == NUM_FORMS
        assert servable.runtimes["plain"].runtime == OPENVINO
        np.testing.assert_array_equal(run(servable, "plain", x=x)["y"], x * 2)
        servable.unload()
    file = next(tmp_path.iterdir())
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    loading = Loading(tally, options)
    loading.load().unload()
    assert len(compiled) == NUM_FORMS + 1
    assert "it is damaged" in loading.told_of(AcceleratorProblem)[0].message


def test_another_model_or_precision_is_compiled(
    tally: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    write_module(Stateless(), names=("dense",), directory=other)
    compiled = count_compiles(monkeypatch)
    for path, precision in ((tally, "f32"), (tally, "bf16"), (other, "f32")):
        options = AcceleratorOptions(
            kind=OPENVINO, precision=precision, cache_dir=str(tmp_path / "cache")
        )
        Loading(path, options).load().unload()
    assert len(compiled) == 3 * NUM_FORMS


@pytest.mark.parametrize(("num_streams", "max_bytes", "num_forms"), [(0, 0, 1), (2, 128 << 20, 2)])
def test_large_models_and_streams_by_order_have_fewer_forms(
    tally: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    num_streams: int,
    max_bytes: int,
    num_forms: int,
) -> None:
    monkeypatch.setattr(openvino_accelerator, "_MAX_BYTES_FOR_FORMS", max_bytes)
    compiled = count_compiles(monkeypatch)
    options = AcceleratorOptions(
        kind=OPENVINO, num_streams=num_streams, cache_dir=str(tmp_path / "cache")
    )
    servable = Loading(tally, options).load()
    assert len(compiled) == num_forms
    assert servable.runtimes["plain"].runtime == OPENVINO
    for x in (np.float32([1]), np.float32([1, 2])):
        np.testing.assert_array_equal(run(servable, "plain", x=x)["y"], x * 2)
    servable.unload()
