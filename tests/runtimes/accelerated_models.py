"""SavedModels whose signatures accelerators can and cannot serve, and how to load them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from aspira.contracts.events import EventBus, LifecycleEvent
from aspira.contracts.tensors import Tensor, Tensors
from aspira.runtimes.accelerated import AcceleratedLoader, AcceleratedServable
from aspira.runtimes.accelerator_options import AcceleratorOptions
from aspira.runtimes.options import TensorflowOptions, WarmupOptions
from aspira.runtimes.tensorflow import TensorflowLoader
from aspira.wire.tensor_proto import encode_tensor

NUM_IDS = 5


def signature(*specs: tf.TensorSpec) -> Any:
    return tf.function(input_signature=list(specs))


def floats(*shape: int | None, name: str = "x") -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.float32, name=name)


class Stateless(tf.Module):
    """A signature for each thing that a graph may have in it."""

    def __init__(self) -> None:
        super().__init__()
        random = np.random.default_rng(0)
        self.matrix = tf.Variable(random.normal(0, 0.5, (4, 3)).astype("float32"))
        self.embeddings = tf.Variable(random.normal(0, 1, (NUM_IDS, 2)).astype("float32"))

    @signature(floats(None, 4))
    def dense(self, x: Any) -> dict[str, Any]:
        scores = tf.matmul(x, self.matrix)
        return {"best": tf.argmax(scores, axis=1), "hidden": tf.nn.relu(scores), "scores": scores}

    @signature(tf.TensorSpec([None, 2], tf.int64, name="ids"))
    def embed(self, ids: Any) -> dict[str, Any]:
        return {"vectors": tf.gather(self.embeddings, ids)}

    @signature(floats(None, 4, name="used"), floats(None, 4, name="unused"))
    def half_used(self, used: Any, unused: Any) -> dict[str, Any]:
        return {"same": used, "doubled": used * 2}

    @signature(floats(None, 4))
    def center(self, x: Any) -> dict[str, Any]:
        return {"centered": x - tf.reduce_mean(x, axis=0)}

    @signature(floats(2, 4))
    def fixed(self, x: Any) -> dict[str, Any]:
        return {"sum": tf.reduce_sum(x), "scores": tf.matmul(x, self.matrix)}

    @signature(tf.TensorSpec([None], tf.string, name="text"))
    def text(self, text: Any) -> dict[str, Any]:
        return {"length": tf.strings.length(text)}

    @signature(floats(None, 4))
    def noise(self, x: Any) -> dict[str, Any]:
        return {"y": x + tf.random.uniform(tf.shape(x))}

    @signature(tf.TensorSpec([None], tf.float64, name="x"))
    def double(self, x: Any) -> dict[str, Any]:
        return {"y": x * 2}

    @signature(tf.TensorSpec([None], tf.int64, name="x"))
    def wide(self, x: Any) -> dict[str, Any]:
        return {"y": x * 3}

    @signature(tf.TensorSpec([None], tf.uint8, name="x"))
    def small(self, x: Any) -> dict[str, Any]:
        return {"y": x + tf.constant(200, tf.uint8)}

    @signature(tf.TensorSpec([None], tf.int32, name="x"))
    def divide(self, x: Any) -> dict[str, Any]:
        return {"y": 7 // x}

    @signature(floats(None, 4))
    def checked(self, x: Any) -> dict[str, Any]:
        return {"y": tf.debugging.check_numerics(x, "not a number")}

    @signature(tf.TensorSpec([], tf.int32, name="n"))
    def loop(self, n: Any) -> dict[str, Any]:
        return {"n": tf.while_loop(lambda i: i < n, lambda i: (i + 1,), (tf.constant(0),))[0]}

    @signature(tf.TensorSpec(None, tf.float32, name="x"))
    def any_rank(self, x: Any) -> dict[str, Any]:
        return {"y": x * 2}

    @signature(floats(None, 4))
    def three_rows(self, x: Any) -> dict[str, Any]:
        return {"y": tf.reshape(x, [12, -1]) * 2}


STATELESS_SIGNATURES = (
    "any_rank", "center", "checked", "dense", "divide", "double", "embed", "fixed", "half_used",
    "loop", "noise", "small", "text", "three_rows", "wide",
)  # fmt: skip


class Tally(tf.Module):
    """`count` changes what `read` reads; `plain` has to do with neither."""

    def __init__(self) -> None:
        super().__init__()
        self.total = tf.Variable([0.0])

    @signature(floats(None))
    def count(self, x: Any) -> dict[str, Any]:
        return {"total": self.total.assign_add(tf.reduce_sum(x, keepdims=True))}

    @signature(floats(None))
    def read(self, x: Any) -> dict[str, Any]:
        return {"total": self.total + 0 * x}

    @signature(floats(None))
    def plain(self, x: Any) -> dict[str, Any]:
        return {"y": x * 2}


def write_module(module: tf.Module, *, names: tuple[str, ...], directory: Path) -> Path:
    signatures = {name: getattr(module, name) for name in names}
    tf.saved_model.save(module, str(directory), signatures=signatures)
    return directory


def write_records(file: Path, *, name: str, requests: list[Tensors]) -> None:
    """Recorded requests, as TensorFlow Serving's request log has them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for inputs in requests:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            for alias, tensor in inputs.items():
                encode_tensor(tensor, into=request.inputs[alias])
            writer.write(log.SerializeToString())


@dataclass
class Loading:
    """Loads a version directory, and notes what it told."""

    path: Path
    options: AcceleratorOptions
    told: list[LifecycleEvent] = field(default_factory=list)

    def load(self) -> AcceleratedServable:
        events, warmup = EventBus(), WarmupOptions()
        events.subscribe_lifecycle(self.told.append)
        tensorflow = TensorflowLoader(
            self.path, options=TensorflowOptions(), warmup=warmup, events=events
        )
        return AcceleratedLoader(
            self.path, tensorflow=tensorflow, options=self.options, warmup=warmup, events=events
        ).load()

    def told_of(self, kind: type) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]


def run(servable: AcceleratedServable, name: str, **inputs: Tensor) -> Tensors:
    outputs = tuple(servable.signatures[name].outputs)
    return servable.run(name, inputs=inputs, outputs=outputs)
