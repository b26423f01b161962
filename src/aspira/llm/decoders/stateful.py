"""Builds a decoder as other OpenVINO tools know one: [texts, tokens] in, the cache in variables.

What optimum-intel writes and openvino-genai reads. `read_ir` makes a step model of it, so the forms
are those that OpenVINO's paged transformation knows: keys and values of earlier calls are gathered
by beam, joined with the new ones, repeated for the heads that share them, and attended to.
"""

from typing import NamedTuple

import numpy as np
import openvino as ov
from openvino import opset15 as ops
from openvino.op.util import Variable, VariableInfo

from aspira.llm.decoders.config import DecoderConfig
from aspira.llm.decoders.family import Heads, Node
from aspira.llm.decoders.layers import DecoderLayers, make_parameter, times
from aspira.llm.decoders.options import WeightFormat
from aspira.llm.weights.source import Weights


class StatefulInputs(NamedTuple):
    """The inputs of each call, by the names that tools know."""

    input_ids: Node
    attention_mask: Node
    position_ids: Node
    beam_idx: Node


def build_stateful(
    config: DecoderConfig, *, weights: Weights, weight_format: WeightFormat
) -> ov.Model:
    """A model of four inputs and the logits of all tokens; `weight_format` is decided.

    Raises:
        ServingError: a weight is missing or of a type that is not served.
    """
    ids, mask, positions = (
        make_parameter(name, shape=[-1, -1], dtype=ov.Type.i64)
        for name in ("input_ids", "attention_mask", "position_ids")
    )
    beams = make_parameter("beam_idx", shape=[-1], dtype=ov.Type.i32)
    inputs = StatefulInputs(ids, mask, positions, beams)
    graph = _StatefulGraph(config, weights=weights, inputs=inputs, weight_format=weight_format)
    hidden, embedding = graph.embed()
    logits = graph.logits(graph.run_layers(hidden), embedding=embedding)
    logits.output(0).set_names({"logits"})
    return ov.Model([ops.result(logits)], graph.kept, list(inputs), config.family)


class _StatefulGraph(DecoderLayers):
    """Hidden states are [texts, tokens, size], heads [texts, heads, tokens, head size]."""

    def __init__(
        self,
        config: DecoderConfig,
        *,
        weights: Weights,
        inputs: StatefulInputs,
        weight_format: WeightFormat,
    ) -> None:
        super().__init__(
            config,
            weights=weights,
            weight_format=weight_format,
            position_ids=inputs.position_ids,
        )
        self._inputs = inputs
        self._mask = self._causal_mask()
        self.kept: list[Node] = []

    def embed(self) -> tuple[Node, Node]:
        """The hidden states of all tokens, and the embedding matrix."""
        matrix = self._matrix("embedding.weight")
        return ops.gather(matrix, self._inputs.input_ids, _int(0)), matrix

    def logits(self, hidden: Node, *, embedding: Node) -> Node:
        normed = self.norm(hidden, name="final_norm")
        return times(normed, matrix=self.head_matrix(embedding))

    def project_heads(self, hidden: Node, *, layer: str, has_bias: bool = False) -> Heads:
        """See `DecoderParts.project_heads`."""
        query, key, value = (
            self._split(self.linear(hidden, name=f"{layer}.{part}", has_bias=has_bias))
            for part in ("query", "key", "value")
        )
        return query, key, value

    def attend(self, query: Node, *, key: Node, value: Node) -> Node:
        """See `DecoderLayers.attend`."""
        index = len(self.kept) // 2
        keys, values = (
            self._repeat(self._remember(heads, name=f"past_key_values.{index}.{kind}"))
            for heads, kind in ((key, "key"), (value, "value"))
        )
        attended = ops.scaled_dot_product_attention(query, keys, values, self._mask)
        joined = ops.transpose(attended, ops.constant([0, 2, 1, 3], np.int64))
        return ops.reshape(joined, ops.constant([0, 0, -1], np.int64), special_zero=True)

    def _column(self, positions: Node) -> Node:
        return ops.unsqueeze(positions, ops.constant([1, 3], np.int64))

    def _split(self, projected: Node) -> Node:
        shape = ops.constant([0, 0, -1, self._config.head_size], np.int64)
        heads = ops.reshape(projected, shape, special_zero=True)
        return ops.transpose(heads, ops.constant([0, 2, 1, 3], np.int64))

    def _remember(self, heads: Node, *, name: str) -> Node:
        """What earlier calls left, with these at its end, which later ones find."""
        num_heads, size = self._config.num_kv_heads, self._config.head_size
        info = VariableInfo()
        info.data_shape = ov.PartialShape([-1, num_heads, -1, size])
        info.data_type, info.variable_id = ov.Type.f32, name
        variable = Variable(info)
        empty = ops.concat(
            [self._num_texts(), ops.constant([num_heads, 0, size], np.int64)], axis=0
        )
        past = ops.read_value(ops.broadcast(np.float32(0), empty), variable)
        whole = ops.concat([ops.gather(past, self._inputs.beam_idx, _int(0)), heads], axis=-2)
        self.kept.append(ops.assign(whole, variable))
        return whole

    def _repeat(self, heads: Node) -> Node:
        """Each head as often as queries share it."""
        num_shared = self._config.num_heads // self._config.num_kv_heads
        if num_shared == 1:
            return heads
        apart = ops.unsqueeze(heads, _int(2))
        times_each = ops.constant([1, 1, num_shared, 1, 1], np.int64)
        repeated = ops.broadcast(apart, times_each, broadcast_spec="BIDIRECTIONAL")
        shape = [0, self._config.num_heads, -1, self._config.head_size]
        return ops.reshape(repeated, ops.constant(shape, np.int64), special_zero=True)

    def _causal_mask(self) -> Node:
        """[texts, 1, tokens, all tokens so far]: 0 where a token sees another, else hardly."""
        mask = self._inputs.attention_mask
        num_all, num_new = _length(mask), _length(self._inputs.input_ids)
        keys = ops.range(_int(0), num_all, _int(1), "i64")
        queries = ops.range(ops.subtract(num_all, num_new), num_all, _int(1), "i64")
        is_earlier = ops.less_equal(keys, ops.unsqueeze(queries, _int(1)))
        is_text = ops.unsqueeze(ops.convert(mask, "boolean"), ops.constant([1, 2], np.int64))
        is_seen = ops.logical_and(is_text, is_earlier)
        least = np.float32(np.finfo(np.float32).min)
        return ops.select(is_seen, ops.constant(np.float32(0)), ops.constant(least))

    def _num_texts(self) -> Node:
        shape = ops.shape_of(self._inputs.input_ids)
        return ops.gather(shape, ops.constant([0], np.int64), _int(0))


def _length(tokens: Node) -> Node:
    return ops.gather(ops.shape_of(tokens), _int(1), _int(0))


def _int(value: int) -> Node:
    return ops.constant(value, np.int64)
