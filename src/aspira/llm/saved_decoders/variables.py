"""The variables of a decoder: weights, made as they are first asked for, and the caches."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from aspira.llm.decoders.config import DecoderConfig
from aspira.llm.saved_decoders.step_inputs import BLOCK_SIZE

Floats = npt.NDArray[Any]
Variable = Any


class DecoderVariables(tf.Module):  # type: ignore[misc]
    """Functions that are traced make weights here; a SavedModel keeps what was made."""

    def __init__(self, config: DecoderConfig, *, dtype: Any) -> None:
        super().__init__()
        self._dtype = dtype
        self._weights: dict[str, Variable] = {}
        self.caches = [
            tuple(
                _make_cache(config, name=f"{kind}_cache.{index}", dtype=dtype)
                for kind in ("key", "value")
            )
            for index in range(config.num_layers)
        ]

    def matrix(self, names: Sequence[str], *, read: Callable[[Sequence[str]], Floats]) -> Variable:
        """In the decoder's precision."""
        return self._weight("-".join(names), read=lambda: read(names), dtype=self._dtype)

    def vector(self, name: str, *, read: Callable[[], Floats]) -> Variable:
        """In float32."""
        return self._weight(name, read=read, dtype=tf.float32)

    def _weight(self, name: str, *, read: Callable[[], Floats], dtype: Any) -> Variable:
        key = name.replace(".", "_")
        if key not in self._weights:
            # Out of the graph that is being traced.
            with tf.init_scope():
                value = np.asarray(read()).astype(dtype.as_numpy_dtype)
                self._weights[key] = tf.Variable(value, trainable=False, name=key)
        return self._weights[key]


def _make_cache(config: DecoderConfig, *, name: str, dtype: Any) -> Variable:
    """An empty one, whose size is set when the model is loaded."""
    shape = [BLOCK_SIZE, config.head_size]
    return tf.Variable(
        tf.zeros([0, *shape], dtype), shape=[None, *shape], trainable=False, name=name
    )
