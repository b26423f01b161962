"""Ops from outside TensorFlow; `tests/system/test_custom_ops.py` serves models that have some."""

import logging
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest
from tensorflow.core.framework import graph_pb2

from aspira.contracts.errors import FailedPrecondition, NotFound
from aspira.runtimes import custom_ops
from aspira.runtimes.custom_ops import load_op_libraries, provide_ops

FOREST_OP = "SimpleMLInferenceOpWithHandle"
# A process keeps what it has registered, so this needs one of its own.
LOAD = f"""
import sys
from tensorflow.python.framework import op_def_registry
from aspira.runtimes.custom_ops import load_op_libraries
assert op_def_registry.get("{FOREST_OP}") is None
load_op_libraries(sys.argv[1:])
assert op_def_registry.get("{FOREST_OP}") is not None
assert "ydf_tf" not in sys.modules
"""


def graph_with(op: str) -> graph_pb2.GraphDef:
    """A graph that calls a function, which needs the op."""
    graph = graph_pb2.GraphDef()
    graph.node.add(op="Placeholder")
    graph.node.add(op="Own")
    function = graph.library.function.add()
    function.signature.name = "Own"
    function.node_def.add(op=op)
    return graph


def test_a_library_brings_its_ops() -> None:
    spec = util.find_spec("ydf_tf")
    if spec is None or spec.origin is None:
        pytest.skip("no package ydf_tf, whose library this loads")
    library = Path(spec.origin).with_name("inference.so")
    subprocess.run([sys.executable, "-c", LOAD, str(library)], check=True)


def test_a_missing_library() -> None:
    with pytest.raises(NotFound) as caught:
        load_op_libraries(["/nonexistent.so"])
    assert caught.value.message == "--custom_op_libraries: /nonexistent.so; No such file"


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    file = tmp_path / "ops.so"
    file.write_text("not a library")
    with pytest.raises(FailedPrecondition, match=r"ops\.so is no op library built for TensorFlow"):
        load_op_libraries([str(file)])


def test_ops_that_nothing_brings_are_named(caplog: pytest.LogCaptureFixture) -> None:
    provide_ops(graph_with("NobodysOp"))
    assert "A model needs ops that are not there: NobodysOp. Install" in caplog.text


def test_a_graph_of_known_ops_needs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        provide_ops(graph_with("AddV2"))
    assert caplog.text == ""


def test_a_broken_package_is_told_of_and_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken_ops.py").write_text("raise OSError('undefined symbol')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(custom_ops, "_PACKAGES", ("broken_ops", "absent_ops"))
    provide_ops(graph_with("NobodysOp"))
    assert "The package broken_ops cannot be imported: undefined symbol" in caplog.text
    assert "ops that are not there: NobodysOp" in caplog.text
