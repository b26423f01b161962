"""A server told by --platform_config_file to batch and to warm up with every kind of record."""

from pathlib import Path
from typing import Any

import pytest
import requests
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from aspira.contracts.signatures import CLASSIFY_METHOD, REGRESS_METHOD
from aspira.runtimes.saved_model import read_meta_graph
from aspira.testing.saved_models import save_module
from system.server_process import ServerProcess

PLATFORM_CONFIG = """
platform_configs {
  key: "tensorflow"
  value {
    source_adapter_config {
      [type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig] {
        legacy_config {
          batching_parameters { max_batch_size { value: 16 } allowed_batch_sizes: [4, 16] }
          enable_model_warmup: true
          model_warmup_options {
            num_request_iterations { value: 2 }
            enable_all_batch_sizes_warmup: true
          }
          session_config { intra_op_parallelism_threads: 1 }
          enable_session_metadata: true
        }
      }
    }
  }
}
"""
Log = prediction_log_pb2.PredictionLog


def write_model(directory: Path) -> None:
    """`scores` and `outputs` are what the float feature `x` of each example says."""

    def parse(inputs: Any) -> Any:
        return tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([1], tf.float32)})["x"]

    spec = [tf.TensorSpec([None], tf.string, name="inputs")]
    module = tf.Module()
    module.classify = tf.function(lambda inputs: {"scores": parse(inputs)}, input_signature=spec)
    module.regress = tf.function(lambda inputs: {"outputs": parse(inputs)}, input_signature=spec)
    signatures = {"classify": module.classify, "regress": module.regress}
    save_module(module, directory=directory, signature=signatures)


def example() -> tf.train.Example:
    message = tf.train.Example()
    message.features.feature["x"].float_list.value.append(2.0)
    return message


def write_warmup(directory: Path) -> None:
    """One record of each kind that is asked about examples, and one of a session's run."""
    regress, multi, session_run = Log(), Log(), Log()
    request = regress.regress_log.request
    request.model_spec.name, request.model_spec.signature_name = "m", "regress"
    request.input.example_list.examples.append(example())
    request = multi.multi_inference_log.request
    for name, method in (("regress", REGRESS_METHOD), ("classify", CLASSIFY_METHOD)):
        task = request.tasks.add(method_name=method)
        task.model_spec.name, task.model_spec.signature_name = "m", name
    request.input.example_list.examples.append(example())
    signature = read_meta_graph(directory, tags=["serve"]).signature_def["regress"]
    request = session_run.session_run_log.request
    examples = tf.make_tensor_proto([example().SerializeToString()])
    request.feed.add(name=signature.inputs["inputs"].name).tensor.CopyFrom(examples)
    request.fetch.append(signature.outputs["outputs"].name)
    (directory / "assets.extra").mkdir()
    file = directory / "assets.extra" / "tf_serving_warmup_requests"
    with tf.io.TFRecordWriter(str(file)) as writer:
        for log in (regress, multi, session_run):
            writer.write(log.SerializeToString())


@pytest.mark.parametrize("listener", ["envoy", "portable"])
def test_batching_and_warm_up(tmp_path: Path, listener: str) -> None:
    write_model(tmp_path / "m" / "1")
    write_warmup(tmp_path / "m" / "1")
    (tmp_path / "platform.config").write_text(PLATFORM_CONFIG)
    with ServerProcess(
        f"--listener={listener}",
        "--model_name=m",
        f"--model_base_path={tmp_path / 'm'}",
        f"--platform_config_file={tmp_path / 'platform.config'}",
        log=tmp_path / "log",
    ) as server:
        url = f"{server.rest_url}/v1/models/m:regress"
        question = {"signature_name": "regress", "examples": [{"x": 2.0}]}
        assert requests.post(url, json=question, timeout=60).json() == {"results": [2.0]}
        page = requests.get(f"{server.rest_url}/monitoring/prometheus/metrics", timeout=60).text
        log = server.output()
    assert "platform.config: without effect: enable_session_metadata" in log
    assert "Number of warmup records read: 3." in log
    # Twice each: as recorded, with 4 rows and with 16; then the request, padded to 4 rows.
    runs = 'runtime_latency_count{model_name="m",API="Regress",runtime="TF1"} 7\n'
    assert f":tensorflow:serving:{runs}" in page
    assert ":tensorflow:serving:batching_session:processed_batch_size_sum{} 4\n" in page
