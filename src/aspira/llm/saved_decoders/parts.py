"""The parts of a decoder as TensorFlow operations: what the family files compose.

Hidden states are [tokens, size] in float32; matrices are multiplied in the precision that they are
kept in.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from aspira.llm.decoders.config import DecoderConfig, rotary_frequencies
from aspira.llm.decoders.family import Heads, Node
from aspira.llm.saved_decoders.variables import DecoderVariables
from aspira.llm.weights.source import Weights


class TensorflowParts:
    """`DecoderParts`, and the rest, for the tokens of one call."""

    def __init__(
        self,
        config: DecoderConfig,
        *,
        weights: Weights,
        variables: DecoderVariables,
        positions: Node,
    ) -> None:
        self._config = config
        self._weights = weights
        self._variables = variables
        self._cosine, self._sine = self._rotation(positions)

    def embed(self, token_ids: Node) -> Node:
        return tf.cast(tf.gather(self._embedding(), token_ids), tf.float32)

    def linear(self, hidden: Node, *, name: str, parts: tuple[str, ...] = ("",)) -> Node:
        """Several matrices of one input are one product: fewer, larger ones are faster."""
        names = [f"{name}{part}.weight" for part in parts]
        matrix = self._variables.matrix(names, read=self._read_columns)
        return tf.cast(tf.matmul(tf.cast(hidden, matrix.dtype), matrix), tf.float32)

    def norm(self, hidden: Node, *, name: str) -> Node:
        """See `DecoderParts.norm`."""
        mean = tf.reduce_mean(tf.square(hidden), axis=-1, keepdims=True)
        scale = tf.math.rsqrt(mean + self._config.norm_epsilon)
        return hidden * scale * self._vector(f"{name}.weight")

    def project_heads(self, hidden: Node, *, layer: str, has_bias: bool = False) -> Heads:
        """See `DecoderParts.project_heads`."""
        config, names = self._config, ("query", "key", "value")
        projected = self.linear(hidden, name=f"{layer}.", parts=names)
        if has_bias:
            biases = [self._vector(f"{layer}.{name}.bias") for name in names]
            projected += tf.concat(biases, axis=0)
        heads = tf.reshape(
            projected, [-1, config.num_heads + 2 * config.num_kv_heads, config.head_size]
        )
        query, key, value = tf.split(
            heads, [config.num_heads, config.num_kv_heads, config.num_kv_heads], axis=1
        )
        return query, key, value

    def rotate(self, heads: Node) -> Node:
        """See `DecoderParts.rotate`."""
        swapped = tf.roll(heads, self._config.head_size // 2, axis=-1)
        return heads * self._cosine + swapped * self._sine

    def gated_mlp(self, hidden: Node, *, layer: str) -> Node:
        """SwiGLU."""
        both = self.linear(hidden, name=f"{layer}.", parts=("gate", "up"))
        gate, up = tf.split(both, 2, axis=-1)
        return self.linear(gate * tf.sigmoid(gate) * up, name=f"{layer}.down")

    def logits(self, hidden: Node) -> Node:
        """Of every token given, [tokens, vocabulary]."""
        normed = self.norm(hidden, name="final_norm")
        if not self._config.has_tied_head:
            return self.linear(normed, name="head")
        matrix = self._embedding()
        product = tf.matmul(tf.cast(normed, matrix.dtype), matrix, transpose_b=True)
        return tf.cast(product, tf.float32)

    def _embedding(self) -> Node:
        return self._variables.matrix(["embedding.weight"], read=self._read_rows)

    def _rotation(self, positions: Node) -> tuple[Node, Node]:
        """[tokens, 1, head size]. The sine has the sign of the pair's half that it is added to."""
        frequencies = rotary_frequencies(self._config)
        if "rotary_factors.weight" in self._weights:
            frequencies = frequencies / self._weights.read("rotary_factors.weight")
        both_halves = np.concatenate([frequencies, frequencies]).astype(np.float32)
        signs = np.repeat(np.array([-1, 1], np.float32), len(frequencies))
        angles = tf.cast(positions, tf.float32)[:, tf.newaxis, tf.newaxis] * both_halves
        return tf.cos(angles), tf.sin(angles) * signs

    def _vector(self, name: str) -> Node:
        return self._variables.vector(name, read=lambda: self._weights.read(name))

    def _read_columns(self, names: Sequence[str]) -> npt.NDArray[np.float32]:
        """[inputs, outputs], which TensorFlow multiplies faster than what files have."""
        return np.concatenate([self._weights.read(name).T for name in names], axis=1)

    def _read_rows(self, names: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.concatenate([self._weights.read(name) for name in names])
