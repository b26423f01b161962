"""The models that the golden requests ask, beside those of `conftest.py`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

ECHOED = {
    "float": tf.float32,
    "double": tf.float64,
    "int8": tf.int8,
    "int16": tf.int16,
    "int32": tf.int32,
    "int64": tf.int64,
    "uint8": tf.uint8,
    "uint16": tf.uint16,
    "uint32": tf.uint32,
    "uint64": tf.uint64,
    "bool": tf.bool,
    "string": tf.string,
    "half": tf.float16,
    "bfloat16": tf.bfloat16,
    "complex64": tf.complex64,
    "complex128": tf.complex128,
}

Function = Callable[..., Mapping[str, Any]]


def write_golden_models(directory: Path) -> None:
    """`echo`, `odd`, `examples` and `defaults`, each with a version 1."""
    _write_echo(directory / "echo" / "1")
    _write_odd(directory / "odd" / "1")
    _write_examples(directory / "examples" / "1")
    _write_defaults(directory / "defaults" / "1")


def _write_echo(directory: Path) -> None:
    """For each dtype a signature that answers `y` = `x`, of any shape. The default is float's."""
    signatures = {
        name: _function(lambda x: {"y": tf.identity(x)}, x=tf.TensorSpec(None, dtype))
        for name, dtype in ECHOED.items()
    }
    _save({**signatures, "serving_default": signatures["float"]}, directory=directory)


def _write_odd(directory: Path) -> None:
    """Outputs that the row format, or JSON, cannot express. All take `x`: float [n]."""
    spec = tf.TensorSpec([None], tf.float32)
    signatures = {
        "total": _function(lambda x: {"y": tf.reduce_sum(x)}, x=spec),
        "uneven": _function(lambda x: {"a": x, "b": x[1:]}, x=spec),
        "half": _function(lambda x: {"y": tf.cast(x, tf.float16)}, x=spec),
        "fails": _function(lambda x: (tf.debugging.assert_positive(x), {"y": x})[1], x=spec),
        "bytes": _function(lambda x: {"raw_bytes": tf.io.encode_base64(tf.as_string(x))}, x=spec),
        "reshaped": _function(lambda x: {"y": tf.reshape(x, [-1, 2])}, x=spec),
    }
    _save({**signatures, "serving_default": signatures["total"]}, directory=directory)


def _write_examples(directory: Path) -> None:
    """Examples with a float feature `x`, missing ones count as 0; see the signatures."""
    strings = tf.TensorSpec([None], tf.string)

    def parse(inputs: Any) -> Any:
        feature = tf.io.FixedLenFeature([1], tf.float32, default_value=[0.0])
        return tf.io.parse_example(inputs, {"x": feature})["x"]

    def label(x: Any) -> Any:
        return tf.where(x > 0, "positive", "other")

    def take(make: Callable[[Any], Mapping[str, Any]]) -> Any:
        return _function(lambda inputs: make(parse(inputs)), inputs=strings)

    signatures = {
        "classify": take(lambda x: {"classes": label(x), "scores": x * 2}),
        "classes": take(lambda x: {"classes": label(x)}),
        "scores": take(lambda x: {"scores": tf.concat([x, -x], axis=1)}),
        "regress": take(lambda x: {"outputs": x / 2 + 2}),
        "regress_flat": take(lambda x: {"outputs": tf.reshape(x, [-1]) + 1}),
        "three": take(lambda x: {"classes": label(x), "scores": x, "more": x}),
        "other": take(lambda x: {"other": x}),
        "flat_scores": take(lambda x: {"scores": tf.reshape(x, [-1])}),
        "double_scores": take(lambda x: {"scores": tf.cast(x, tf.float64)}),
        "float_classes": take(lambda x: {"classes": x}),
        "fixed_scores": take(lambda x: {"scores": tf.zeros([3, 1]) + tf.reduce_sum(x)}),
        "widths": take(lambda x: {"classes": label(x), "scores": tf.concat([x, x], axis=1)}),
        "wide_outputs": take(lambda x: {"outputs": tf.concat([x, x], axis=1)}),
        "int_outputs": take(lambda x: {"outputs": tf.cast(x, tf.int64)}),
        "fixed_outputs": take(lambda x: {"outputs": tf.zeros([3]) + tf.reduce_sum(x)}),
        "named_else": _function(lambda examples: {"outputs": parse(examples)}, examples=strings),
        "two_inputs": _function(
            lambda inputs, more: {"outputs": parse(inputs) + parse(more)},
            inputs=strings,
            more=strings,
        ),
    }
    _save({**signatures, "serving_default": signatures["classify"]}, directory=directory)


def _write_defaults(directory: Path) -> None:
    """`y` = `x` + `offset`, where `offset` may be left out, and is then 10."""
    spec = tf.TensorSpec([None], tf.float32)
    add = _function(
        lambda x, offset: {"y": x + offset}, x=spec, offset=tf.TensorSpec([], tf.float32)
    )
    _save({"serving_default": add}, directory=directory)
    file = directory / "saved_model.pb"
    message = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    signature = message.meta_graphs[0].signature_def["serving_default"]
    signature.defaults["offset"].CopyFrom(tf.make_tensor_proto(10.0))
    file.write_bytes(message.SerializeToString())


def _function(function: Function, **inputs: tf.TensorSpec) -> Any:
    specs = [tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in inputs.items()]
    return tf.function(function, input_signature=specs)


def _save(signatures: Mapping[str, Any], *, directory: Path) -> None:
    module = tf.Module()
    # A trackable object must hold them, or their graphs are not saved.
    module.functions = list(signatures.values())
    tf.saved_model.save(module, str(directory), signatures=dict(signatures))
