"""A decoder in TensorFlow: its layers put together, and the functions that a SavedModel has."""

from typing import Any

import tensorflow as tf

from aspira.llm.decoders.config import DecoderConfig
from aspira.llm.decoders.families import family_named
from aspira.llm.decoders.family import Node
from aspira.llm.saved_decoders.attention import Attention, PagedAttention, RowAttention
from aspira.llm.saved_decoders.parts import TensorflowParts
from aspira.llm.saved_decoders.step_inputs import StepInputs
from aspira.llm.saved_decoders.variables import DecoderVariables
from aspira.llm.weights.source import Weights


class Decoder:
    """Everything that a decoder computes; `variables` are what it keeps."""

    def __init__(self, config: DecoderConfig, *, weights: Weights, dtype: Any) -> None:
        self._config = config
        self._weights = weights
        self.variables = DecoderVariables(config, dtype=dtype)

    def step(self, inputs: StepInputs) -> Node:
        """The logits [R, vocabulary] of one step, which is added to the cache."""
        parts = self._parts(inputs.positions)
        attention = PagedAttention(self._config, inputs=inputs, caches=self.variables.caches)
        hidden = self._layers(parts, token_ids=inputs.token_ids, attention=attention)
        return parts.logits(tf.gather(hidden, inputs.sampled_rows))

    def next_tokens(self, input_ids: Node) -> Node:
        """The most likely token after each row of [rows, length]; negative ids at its end are none.

        Causal attention does not let them reach the tokens before them.
        """
        shape = tf.shape(input_ids)
        parts = self._parts(tf.tile(tf.range(shape[1]), [shape[0]]))
        hidden = self._layers(
            parts,
            token_ids=tf.reshape(tf.maximum(input_ids, 0), [-1]),
            attention=RowAttention(self._config, num_rows=shape[0]),
        )
        lengths = tf.reduce_sum(tf.cast(input_ids >= 0, tf.int32), axis=1)
        last = tf.range(shape[0]) * shape[1] + tf.maximum(lengths, 1) - 1
        return tf.argmax(parts.logits(tf.gather(hidden, last)), axis=-1)

    def _parts(self, positions: Node) -> TensorflowParts:
        return TensorflowParts(
            self._config, weights=self._weights, variables=self.variables, positions=positions
        )

    def _layers(self, parts: TensorflowParts, *, token_ids: Node, attention: Attention) -> Node:
        make_heads = family_named(self._config.family).make_heads
        hidden = parts.embed(token_ids)
        for index in range(self._config.num_layers):
            layer = f"layers.{index}"
            normed = parts.norm(hidden, name=f"{layer}.attention_norm")
            query, key, value = make_heads(parts, hidden=normed, layer=layer)
            attended = attention.attend(index, query=query, key=key, value=value)
            hidden += parts.linear(attended, name=f"{layer}.attention_output")
            normed = parts.norm(hidden, name=f"{layer}.mlp_norm")
            hidden += parts.gated_mlp(normed, layer=layer)
        return hidden
