"""Writes one of the models to measure, with an input and TensorFlow's own answer to it.

Usage: model_writer.py NAME DIRECTORY, where the directory does not exist yet.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aspira.testing.saved_models import (
    write_fixed_cost,
    write_half_plus_two,
    write_linear_cost,
    write_mlp,
    write_mobilenet,
)

# About 5 ms a run on the machine that the published figures are of.
_NUM_STEPS = 40
# About 0.5, 2.5 and 10 ms of CPU a row in batches there.
_LINEAR_STEPS = {"linear_short": 14, "linear_medium": 70, "linear_long": 280}

WRITERS = {
    "half_plus_two": write_half_plus_two,
    "mlp": write_mlp,
    "mobilenet": write_mobilenet,
    "fixed_cost": partial(write_fixed_cost, num_steps=_NUM_STEPS),
    **{
        name: partial(write_linear_cost, num_steps=num_steps)
        for name, num_steps in _LINEAR_STEPS.items()
    },
}
INPUT_SHAPES = {
    "fixed_cost": (1, 16),
    "mlp": (1, 128),
    "mobilenet": (1, 224, 224, 3),
    **dict.fromkeys(_LINEAR_STEPS, (1, 16)),
}


def make_input(name: str) -> npt.NDArray[np.float32]:
    if name not in INPUT_SHAPES:
        return np.array([1.0, 2.0, 5.0], np.float32)
    random = np.random.default_rng(1)
    return random.random(INPUT_SHAPES[name], np.float32)


def write_example(name: str, *, directory: Path) -> None:
    """`input.npy`, and `answer.npy` as TensorFlow computes it."""
    import tensorflow as tf

    array = make_input(name)
    loaded = tf.saved_model.load(str(directory / "versions" / "1"))
    signature = loaded.signatures["serving_default"]
    (input_name,) = signature.structured_input_signature[1]
    (answer,) = signature(**{input_name: tf.constant(array)}).values()
    np.save(directory / "input.npy", array)
    np.save(directory / "answer.npy", answer.numpy())


def main() -> None:
    name, target = sys.argv[1], Path(sys.argv[2])
    partial = target.with_name(f".{target.name}.partial")
    (partial / "versions").mkdir(parents=True)
    WRITERS[name](partial / "versions" / "1")
    write_example(name, directory=partial)
    partial.rename(target)


if __name__ == "__main__":
    main()
