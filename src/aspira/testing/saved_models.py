"""Writes small SavedModels in seconds: for tests, benchmarks and the demo."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Weights = Sequence[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]
"""Per layer its matrix, shape [inputs, outputs], and its bias, shape [outputs]."""


def write_half_plus_two(directory: Path, *, offset: float = 2.0) -> None:
    """The model of TensorFlow Serving's tutorials: y = x / 2 + `offset`, of any shape."""
    import tensorflow as tf

    module = tf.Module()
    module.a = tf.Variable(0.5, name="a")
    module.b = tf.Variable(offset, name="b")
    specs = [tf.TensorSpec(None, tf.float32, name="x")]
    predict = tf.function(lambda x: {"y": module.a * x + module.b}, input_signature=specs)
    save_module(module, directory=directory, signature=predict)


def write_classifier(directory: Path, *, weights: Weights, scale: float = 1.0) -> None:
    """Dense layers with ReLU between them. Inputs `image` [n, features], divided by `scale`.

    Outputs `label` [n], the likeliest class, and `probabilities` [n, classes].
    """
    import tensorflow as tf

    module = tf.Module()
    module.layers = [(tf.Variable(matrix), tf.Variable(bias)) for matrix, bias in weights]
    num_features = weights[0][0].shape[0]

    def classify(image: Any) -> dict[str, Any]:
        values = image / scale
        for index, (matrix, bias) in enumerate(module.layers):
            values = tf.matmul(tf.nn.relu(values) if index else values, matrix) + bias
        return {"label": tf.argmax(values, axis=1), "probabilities": tf.nn.softmax(values)}

    specs = [tf.TensorSpec([None, num_features], tf.float32, name="image")]
    save_module(module, directory=directory, signature=tf.function(classify, input_signature=specs))


def write_mlp(directory: Path, *, sizes: Sequence[int] = (128, 512, 256, 1), seed: int = 0) -> None:
    """A regression network with random weights. Input `x` [n, sizes[0]], output `y`."""
    import tensorflow as tf

    random = np.random.default_rng(seed)
    module = tf.Module()
    module.layers = [
        (
            tf.Variable(
                random.normal(0, num_inputs**-0.5, (num_inputs, num_outputs)), dtype="float32"
            ),
            tf.Variable(np.zeros(num_outputs, np.float32)),
        )
        for num_inputs, num_outputs in pairwise(sizes)
    ]

    def regress(x: Any) -> dict[str, Any]:
        for index, (matrix, bias) in enumerate(module.layers):
            x = tf.matmul(tf.nn.relu(x) if index else x, matrix) + bias
        return {"y": x}

    specs = [tf.TensorSpec([None, sizes[0]], tf.float32, name="x")]
    save_module(module, directory=directory, signature=tf.function(regress, input_signature=specs))


def write_mobilenet(directory: Path, *, seed: int = 0) -> None:
    """MobileNetV2 with random weights: `image` [n, 224, 224, 3] to `scores` [n, 1000]."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(seed)
    network = keras.applications.MobileNetV2(weights=None)
    specs = [tf.TensorSpec([None, 224, 224, 3], tf.float32, name="image")]
    module = tf.Module()
    # Not the network itself: Keras would save copies of its variables, and restore those.
    module.weights = [variable.value for variable in network.variables]
    predict = tf.function(
        lambda image: {"scores": network(image, training=False)}, input_signature=specs
    )
    save_module(module, directory=directory, signature=predict)


def write_counter(directory: Path) -> None:
    """Counts to `n`, a scalar int64, one step at a time: as slow as it is told to be."""
    import tensorflow as tf

    def count(n: Any) -> dict[str, Any]:
        (counted,) = tf.while_loop(lambda i: i < n, lambda i: (i + 1,), (tf.constant(0, tf.int64),))
        return {"counted": counted}

    specs = [tf.TensorSpec([], tf.int64, name="n")]
    signature = tf.function(count, input_signature=specs)
    save_module(tf.Module(), directory=directory, signature=signature)


def write_fixed_cost(directory: Path, *, num_steps: int) -> None:
    """Y = x / 2 + 2 for `x` [n, features], after `num_steps` products of 256 x 256 matrices.

    A run costs much the same for any number of rows: what batching is for.
    """
    import tensorflow as tf

    module = tf.Module()
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(256, 256)))
    module.rotation = tf.Variable(rotation, dtype=tf.float32)

    def predict(x: Any) -> dict[str, Any]:
        # Depends on the input, so that it is not computed once and for all, but not on its rows.
        matrix = module.rotation + 0.0 * tf.reduce_max(x)
        for _ in range(num_steps):
            matrix = tf.matmul(matrix, module.rotation)
        return {"y": x * 0.5 + 2.0 + 0.0 * matrix[0, 0]}

    specs = [tf.TensorSpec([None, None], tf.float32, name="x")]
    save_module(module, directory=directory, signature=tf.function(predict, input_signature=specs))


def write_linear_cost(directory: Path, *, num_steps: int) -> None:
    """Y = x / 2 + 2 for `x` [n, features], after `num_steps` products of each row's own matrix.

    A run costs as much again for each further row: what batching gains nothing for.
    """
    import tensorflow as tf

    module = tf.Module()
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(256, 256)))
    module.rotation = tf.Variable(rotation, dtype=tf.float32)

    def predict(x: Any) -> dict[str, Any]:
        # 64 rows of matrix for each row of the input, and depending on it.
        matrix = tf.tile(module.rotation[:64], [tf.shape(x)[0], 1]) + 0.0 * tf.reduce_max(x)
        for _ in range(num_steps):
            matrix = tf.matmul(matrix, module.rotation)
        return {"y": x * 0.5 + 2.0 + 0.0 * matrix[0, 0]}

    specs = [tf.TensorSpec([None, None], tf.float32, name="x")]
    save_module(module, directory=directory, signature=tf.function(predict, input_signature=specs))


def save_module(module: Any, *, directory: Path, signature: Any) -> None:
    """Save a tf.Module with one signature, `serving_default`, so that watchers see it whole.

    It is written beside its place under a name that is no version, then moved.
    """
    import tensorflow as tf

    partial = directory.with_name(f".{directory.name}.partial")
    tf.saved_model.save(module, str(partial), signatures=signature)
    partial.rename(directory)
