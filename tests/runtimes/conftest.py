"""Models to load: some written here with TensorFlow 2, others of TensorFlow Serving's tests."""

import os
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from aspira.testing.saved_models import write_half_plus_two

ROOT = Path(__file__).parents[2]
DEFAULT_TESTDATA = ROOT.parent / "shared" / "testdata" / "tfserving"


@pytest.fixture(scope="session")
def tfserving_testdata() -> Path:
    """TensorFlow Serving's test data; skips where there is none."""
    path = Path(os.environ.get("ASPIRA_TFSERVING_TESTDATA") or DEFAULT_TESTDATA)
    if not path.is_dir():
        pytest.skip(f"no TensorFlow Serving test data at {path}; see ASPIRA_TFSERVING_TESTDATA")
    return path


@pytest.fixture(scope="session")
def half_plus_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("half_plus_two") / "1"
    write_half_plus_two(path)
    return path


# By the names that Aspira gives them.
PASSED_DTYPES = {
    "bfloat16": tf.bfloat16,
    "half": tf.half,
    "bool": tf.bool,
    "complex64": tf.complex64,
    "uint32": tf.uint32,
    "int64": tf.int64,
    "int4": tf.dtypes.experimental.int4,
    "float8_e5m2": tf.dtypes.experimental.float8_e5m2,
}


def make_identity(dtype: tf.DType) -> Any:
    spec = tf.TensorSpec([None], dtype, name="tensor")
    return tf.function(lambda tensor: {"tensor": tf.identity(tensor)}, input_signature=[spec])


class Sampler(tf.Module):
    """A function for each thing that a signature can do."""

    def __init__(self, vocabulary: Path) -> None:
        super().__init__()
        text = tf.lookup.TextFileInitializer(
            str(vocabulary),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        pairs = tf.lookup.KeyValueTensorInitializer(
            tf.constant([1, 2], tf.int64), tf.constant(["one", "two"])
        )
        self.numbers = tf.lookup.StaticHashTable(text, default_value=-1)
        self.names = tf.lookup.StaticHashTable(pairs, default_value="?")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def split(self, x: Any) -> dict[str, Any]:
        return {"sum": tf.reduce_sum(x), "half": x / 2, "count": tf.size(x)}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.string, name="text")])
    def texts(self, text: Any) -> dict[str, Any]:
        return {"same": tf.identity(text), "length": tf.strings.length(text)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
    def look_up(self, word: Any) -> dict[str, Any]:
        number = self.numbers.lookup(word)
        return {"number": number, "name": self.names.lookup(number)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32, name="a"),
            tf.TensorSpec([None], tf.float32, name="b"),
        ]
    )
    def subtract(self, a: Any, b: Any) -> dict[str, Any]:
        return {"difference": a - b}


@pytest.fixture(scope="session")
def sampler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel of `Sampler`; it has moved since, and its vocabulary file is gone."""
    folder = tmp_path_factory.mktemp("sampler")
    vocabulary = folder / "vocabulary.txt"
    vocabulary.write_text("zero\none\ntwo\n")
    module = Sampler(vocabulary)
    signatures = {
        "serving_default": module.split,
        "texts": module.texts,
        "look_up": module.look_up,
        "subtract": module.subtract,
        **{name: make_identity(dtype) for name, dtype in PASSED_DTYPES.items()},
    }
    written = folder / "written"
    tf.saved_model.save(module, str(written), signatures=signatures)
    vocabulary.unlink()
    return written.rename(folder / "1")
