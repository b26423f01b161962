"""Models whose ops TensorFlow does not have, on real servers."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tensorflow as tf

from aspira.testing.saved_models import save_module
from system.server_process import ServerProcess

OP_SOURCE = """
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

REGISTER_OP("AspiraDouble").Input("x: float").Output("y: float").SetShapeFn(
    [](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->input(0));
      return absl::OkStatus();
    });

class AspiraDouble : public tensorflow::OpKernel {
 public:
  using tensorflow::OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    tensorflow::Tensor* output = nullptr;
    const tensorflow::Tensor& input = context->input(0);
    OP_REQUIRES_OK(context, context->allocate_output(0, input.shape(), &output));
    for (int index = 0; index < input.NumElements(); ++index) {
      output->flat<float>()(index) = 2 * input.flat<float>()(index);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("AspiraDouble").Device(tensorflow::DEVICE_CPU), AspiraDouble);
"""
CONFIG = """
model_config_list {{
  config {{ name: "text" base_path: "{directory}/text" model_platform: "tensorflow" }}
  config {{ name: "forest" base_path: "{directory}/forest" model_platform: "tensorflow" }}
}}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`text` splits sentences with an op of TF Text, `forest` is a decision forest."""
    directory = tmp_path_factory.mktemp("models")
    _write_text(directory / "text" / "1")
    _write_forest(directory / "forest" / "1")
    (directory / "models.config").write_text(CONFIG.format(directory=directory))
    return directory


def _write_text(directory: Path) -> None:
    text = pytest.importorskip("tensorflow_text")

    def split(sentence: Any) -> dict[str, Any]:
        words = text.WhitespaceTokenizer().tokenize(sentence)
        return {"words": words.to_tensor(default_value="")}

    _save(split, directory=directory, spec=tf.TensorSpec([None], tf.string, name="sentence"))


def _write_forest(directory: Path) -> None:
    ydf = pytest.importorskip("ydf")
    pytest.importorskip("ydf_tf")
    ydf.verbose(0)
    x = np.arange(100, dtype=np.float32)
    data = {"x": x, "y": np.float32(2) * (x >= 50)}
    learner = ydf.CartLearner(label="y", task=ydf.Task.REGRESSION)
    learner.train(data).to_tensorflow_saved_model(str(directory), mode="tf")


def _save(function: Callable[[Any], Any], *, directory: Path, spec: tf.TensorSpec) -> None:
    signature = tf.function(function, input_signature=[spec])
    save_module(tf.Module(), directory=directory, signature=signature)


@pytest.fixture(scope="module")
def op_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that a user might have compiled."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to compile an op with")
    directory = tmp_path_factory.mktemp("ops")
    source, library = directory / "double.cc", directory / "double.so"
    source.write_text(OP_SOURCE)
    flags = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags(), "-w"]
    subprocess.run(
        [compiler, "-std=c++17", "-shared", "-fPIC", str(source), "-o", str(library), *flags],
        check=True,
    )
    return library


def predict(server: ServerProcess, name: str, instances: list[Any]) -> Any:
    url = f"{server.rest_url}/v1/models/{name}:predict"
    return requests.post(url, json={"instances": instances}, timeout=60).json()


@pytest.mark.parametrize("listener", ["envoy", "portable"])
def test_ops_of_installed_packages_need_no_flag(
    models: Path, tmp_path: Path, listener: str
) -> None:
    flags = [f"--listener={listener}", f"--model_config_file={models / 'models.config'}"]
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        words = {"predictions": [["one", "two", "three"], ["four", "", ""]]}
        assert predict(server, "text", ["one two  three", "four"]) == words
        forest = predict(server, "forest", [{"x": 10.0}, {"x": 90.0}])
        assert forest == {"predictions": [0.0, 2.0]}


@pytest.mark.parametrize("listener", ["envoy", "portable"])
def test_a_library_of_ops_is_loaded_before_the_models(
    op_library: Path, tmp_path: Path, listener: str
) -> None:
    double = tf.load_op_library(str(op_library)).aspira_double
    spec = tf.TensorSpec([None], tf.float32, name="x")
    _save(lambda x: {"y": double(x)}, directory=tmp_path / "m" / "1", spec=spec)
    flags = [f"--listener={listener}", "--model_name=m", f"--model_base_path={tmp_path / 'm'}"]
    flags.append(f"--custom_op_libraries={op_library}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        assert predict(server, "m", [1.0, 2.5]) == {"predictions": [2.0, 5.0]}


def test_a_missing_library_is_an_error_at_the_start(tmp_path: Path) -> None:
    server = ServerProcess(
        f"--model_base_path={tmp_path}",
        "--custom_op_libraries=/nonexistent/ops.so",
        log=tmp_path / "log",
    )
    server.start()
    try:
        assert server.wait() == 255
        assert "--custom_op_libraries: /nonexistent/ops.so; No such file" in server.stdout()
    finally:
        server.kill()
