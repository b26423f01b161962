"""One server per listener with the models that the conformance tests ask."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aspira.testing.saved_models import save_module, write_counter, write_half_plus_two
from conformance.golden_models import write_golden_models
from system.server_process import ServerProcess

CONFIG = """
model_config_list {{
  config {{
    name: "half_plus_two"
    base_path: "{directory}/half_plus_two"
    model_platform: "tensorflow"
    model_version_policy {{ all {{}} }}
    version_labels {{ key: "stable" value: 1 }}
    version_labels {{ key: "canary" value: 2 }}
  }}
  config {{ name: "texts" base_path: "{directory}/texts" model_platform: "tensorflow" }}
  config {{ name: "sums" base_path: "{directory}/sums" model_platform: "tensorflow" }}
  config {{ name: "counter" base_path: "{directory}/counter" model_platform: "tensorflow" }}
  config {{ name: "echo" base_path: "{directory}/echo" model_platform: "tensorflow" }}
  config {{ name: "odd" base_path: "{directory}/odd" model_platform: "tensorflow" }}
  config {{ name: "examples" base_path: "{directory}/examples" model_platform: "tensorflow" }}
  config {{ name: "defaults" base_path: "{directory}/defaults" model_platform: "tensorflow" }}
  config {{ name: "broken" base_path: "{directory}/broken" model_platform: "tensorflow" }}
  config {{ name: "missing" base_path: "{directory}/missing" model_platform: "tensorflow" }}
}}
"""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of half_plus_two (the second adds 3), texts, sums, counter, a broken model.

    And those of `golden_models.py`.
    """
    directory = tmp_path_factory.mktemp("models")
    for name in ("half_plus_two", "texts", "sums", "counter", "broken"):
        (directory / name).mkdir()
    write_half_plus_two(directory / "half_plus_two" / "1", offset=2.0)
    write_half_plus_two(directory / "half_plus_two" / "2", offset=3.0)
    _write_texts(directory / "texts" / "1")
    _write_sums(directory / "sums" / "1")
    write_counter(directory / "counter" / "1")
    write_half_plus_two(directory / "broken" / "1")
    saved_model = directory / "broken" / "1" / "saved_model.pb"
    saved_model.write_bytes(saved_model.read_bytes()[:100])
    write_golden_models(directory)
    (directory / "models.config").write_text(CONFIG.format(directory=directory))
    return directory


@pytest.fixture(scope="session", params=["envoy", "portable"])
def server(
    request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A running server with those models, behind each listener in turn."""
    log = tmp_path_factory.mktemp("logs") / f"{request.param}.log"
    with ServerProcess(
        f"--listener={request.param}",
        f"--model_config_file={models / 'models.config'}",
        "--max_num_load_retries=0",
        "--file_system_poll_wait_seconds=3600",
        log=log,
    ) as process:
        yield process


def _write_texts(directory: Path) -> None:
    """Strings: `text` [n] to `upper` [n], the same as `upper_bytes`, and `length` [n]."""
    import tensorflow as tf

    def transform(text: Any) -> dict[str, Any]:
        upper = tf.strings.upper(text)
        return {"upper": upper, "upper_bytes": upper, "length": tf.strings.length(text)}

    specs = [tf.TensorSpec([None], tf.string, name="text")]
    function = tf.function(transform, input_signature=specs)
    save_module(tf.Module(), directory=directory, signature=function)


def _write_sums(directory: Path) -> None:
    """Two inputs of different types, `a` float [n, 2] and `b` int64 [n]."""
    import tensorflow as tf

    def add(a: Any, b: Any) -> dict[str, Any]:
        return {"sum": tf.reduce_sum(a, axis=1) + tf.cast(b, tf.float32), "b_plus_one": b + 1}

    specs = [
        tf.TensorSpec([None, 2], tf.float32, name="a"),
        tf.TensorSpec([None], tf.int64, name="b"),
    ]
    function = tf.function(add, input_signature=specs)
    save_module(tf.Module(), directory=directory, signature=function)
