import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import saved_model_pb2

from aspira.contracts.errors import (
    DataLoss,
    InvalidArgument,
    NotFound,
    ServingError,
    Unimplemented,
    Unknown,
)
from aspira.runtimes.saved_model import (
    as_serving_error,
    open_session,
    read_meta_graph,
    run_once,
)


def open_directory(directory: Path) -> Any:
    meta_graph = read_meta_graph(directory, tags=("serve",))
    return open_session(directory, meta_graph=meta_graph, config=None)


def refusal(directory: Path, *, error: type[ServingError]) -> str:
    with pytest.raises(error) as caught:
        open_directory(directory)
    return caught.value.message


@pytest.fixture
def model(half_plus_two: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    copy = tmp_path / "1"
    shutil.copytree(half_plus_two, copy)
    return copy


def test_a_session_has_its_variables(half_plus_two: Path) -> None:
    meta_graph = read_meta_graph(half_plus_two, tags=("serve",))
    signature = meta_graph.signature_def["serving_default"]
    with open_session(half_plus_two, meta_graph=meta_graph, config=None) as session:
        feeds = {signature.inputs["x"].name: np.float32([1, 2])}
        (y,) = run_once(session, feeds=feeds, fetches=[signature.outputs["y"].name])
    np.testing.assert_array_equal(y, np.float32([2.5, 3]), strict=True)


def test_a_model_in_text_format(model: Path) -> None:
    binary = model / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(binary.read_bytes())
    (model / "saved_model.pbtxt").write_text(text_format.MessageToString(saved_model))
    binary.unlink()
    open_directory(model).close()


@pytest.mark.parametrize("content", [None, "a file", "an empty directory"])
def test_no_model(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "7"
    if content == "a file":
        path.write_text("")
    elif content == "an empty directory":
        path.mkdir()
    assert refusal(path, error=NotFound) == (
        "Specified file path does not appear to contain a SavedModel bundle "
        f"(should have a file called `saved_model.pb`)\nSpecified file path: {path}"
    )


def test_a_format_of_before_saved_models(tfserving_testdata: Path) -> None:
    path = tfserving_testdata / "bad_half_plus_two" / "00000123"
    assert refusal(path, error=Unimplemented) == "Session Bundle is deprecated and removed."


@pytest.mark.parametrize("tags", [("serve", "gpu"), ("train",), ()])
def test_no_graph_for_the_tags(half_plus_two: Path, tags: tuple[str, ...]) -> None:
    with pytest.raises(NotFound) as caught:
        read_meta_graph(half_plus_two, tags=tags)
    assert caught.value.message == (
        "Could not find meta graph def matching supplied tags: "
        f"{{ {' '.join(sorted(tags))} }}. To inspect available tag-sets in the SavedModel, please "
        "use the SavedModel CLI: `saved_model_cli`"
    )


def test_a_truncated_model(model: Path) -> None:
    file = model / "saved_model.pb"
    file.write_bytes(file.read_bytes()[:-100])
    assert refusal(model, error=DataLoss) == f"Can't parse {file} as binary proto"


def test_a_text_model_that_does_not_parse(model: Path) -> None:
    (model / "saved_model.pb").unlink()
    file = model / "saved_model.pbtxt"
    file.write_text("meta_graphs {\n  nonsense\n}")
    text = refusal(model, error=DataLoss)
    assert text.startswith(f"Can't parse {file} as text proto: 2:3")


def test_a_model_without_its_variables(model: Path) -> None:
    index = model / "variables" / "variables.index"
    index.unlink()
    assert refusal(model, error=NotFound) == (
        f"{index}; the checkpoint of this SavedModel is missing"
    )


def test_a_model_without_its_variables_folder(model: Path) -> None:
    shutil.rmtree(model / "variables")
    assert refusal(model, error=NotFound) == (
        f"{model}/variables/variables.index; the checkpoint of this SavedModel is missing"
    )


def test_a_model_without_its_variables_data(model: Path) -> None:
    data = model / "variables" / "variables.data-00000-of-00001"
    data.unlink()
    assert refusal(model, error=NotFound).startswith(f"{data}; No such file or directory")


def test_a_damaged_index(model: Path) -> None:
    (model / "variables" / "variables.index").write_bytes(b"abc")
    assert refusal(model, error=DataLoss).startswith("file is too short to be an sstable")


def test_an_unknown_op(model: Path) -> None:
    file = model / "saved_model.pb"
    file.write_bytes(file.read_bytes().replace(b"AddV2", b"AddV9"))
    text = refusal(model, error=NotFound)
    assert text.startswith("Op type not registered 'AddV9' in binary running on ")


def save_stateless(directory: Path) -> None:
    module = tf.Module()
    module.double = tf.function(
        lambda x: {"y": x + x}, input_signature=[tf.TensorSpec([None], tf.float32, name="x")]
    )
    tf.saved_model.save(module, str(directory), signatures=module.double)


def test_a_model_without_variables_needs_no_checkpoint(tmp_path: Path) -> None:
    save_stateless(tmp_path / "1")
    shutil.rmtree(tmp_path / "1" / "variables")
    open_directory(tmp_path / "1").close()


@pytest.mark.parametrize(
    ("make_error", "error", "text"),
    [
        (lambda: tf.errors.DataLossError(None, None, "torn"), DataLoss, "torn"),
        (
            lambda: tf.errors.InvalidArgumentError(None, None, "Graph execution error:\n\nbad"),
            InvalidArgument,
            "bad",
        ),
        (lambda: tf.errors.UnknownError(None, None, "who knows"), Unknown, "who knows"),
        (lambda: NotFound("gone"), NotFound, "gone"),
        (lambda: ValueError("odd"), Unknown, "odd"),
    ],
)
def test_errors_keep_their_code_and_text(
    make_error: Callable[[], Exception], error: type[ServingError], text: str
) -> None:
    found = as_serving_error(make_error())
    assert type(found) is error
    assert found.message == text
