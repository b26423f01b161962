"""The parts of a decoder as OpenVINO operations: what the family files and the builder compose.

Hidden states are [tokens, 1, size] and heads [tokens, heads, 1, head size]: on CPUs with AMX,
OpenVINO fuses a gated MLP into one operation only where its input has three axes, and its weights
are float16 constants behind one conversion.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import openvino as ov
from openvino import opset15 as ops
from openvino._pyopenvino.op import _PagedAttentionExtension

from aspira.llm.decoders.config import DecoderConfig
from aspira.llm.decoders.family import Heads, Node
from aspira.llm.decoders.layers import DecoderLayers, make_parameter, times
from aspira.llm.decoders.options import WeightFormat
from aspira.llm.weights.source import Weights

NUM_ATTENTION_INPUTS = 28


class StepInputs(NamedTuple):
    """What one step feeds, as parameters of the model; the names are those of the ports."""

    input_ids: Node
    position_ids: Node
    past_lens: Node
    subsequence_begins: Node
    block_indices: Node
    block_indices_begins: Node
    max_context_len: Node
    sampled_rows: Node


class DecoderGraph(DecoderLayers):
    """A decoder with a paged cache."""

    def __init__(
        self,
        config: DecoderConfig,
        *,
        weights: Weights,
        inputs: StepInputs,
        weight_format: WeightFormat,
    ) -> None:
        super().__init__(
            config,
            weights=weights,
            weight_format=weight_format,
            position_ids=inputs.position_ids,
        )
        self._inputs = inputs
        self._unused = _unused_attention_inputs()
        self.caches: list[Node] = []

    def embed(self) -> tuple[Node, Node]:
        """The hidden states of the step's tokens, and the embedding matrix."""
        matrix = self._matrix("embedding.weight")
        hidden = ops.gather(matrix, self._inputs.input_ids, ops.constant(0, np.int64))
        return ops.unsqueeze(hidden, ops.constant(1, np.int64)), matrix

    def project_heads(self, hidden: Node, *, layer: str, has_bias: bool = False) -> Heads:
        """See `DecoderParts.project_heads`."""
        projected = (
            self.linear(hidden, name=f"{layer}.{part}", has_bias=has_bias)
            for part in ("query", "key", "value")
        )
        query, key, value = (
            ops.reshape(
                part, ops.constant([0, -1, 1, self._config.head_size], np.int64), special_zero=True
            )
            for part in projected
        )
        return query, key, value

    def attend(self, query: Node, *, key: Node, value: Node) -> Node:
        """Causal attention of each sequence over its cache, to which keys and values are added."""
        index = len(self.caches) // 2
        caches = [
            make_parameter(f"{kind}_cache.{index}", shape=[-1] * 4, dtype=ov.Type.dynamic)
            for kind in ("key", "value")
        ]
        self.caches += caches
        tokens = [_flat(part) for part in (query, key, value)]
        inputs = self._inputs
        attention = _PagedAttentionExtension(
            _outputs(
                [
                    *tokens,
                    *caches,
                    inputs.past_lens,
                    inputs.subsequence_begins,
                    inputs.block_indices,
                    inputs.block_indices_begins,
                    ops.constant(np.float32(self._config.head_size**-0.5)),
                    ops.constant(np.int32(0)),
                    ops.constant(np.zeros(0, np.float32)),
                    inputs.max_context_len,
                    *self._unused,
                ]
            )
        )
        for kind in ("k", "v"):
            attention.get_rt_info()[f"num_{kind}_heads"] = self._config.num_kv_heads
            attention.get_rt_info()[f"{kind}_head_size"] = self._config.head_size
        return ops.unsqueeze(attention.output(0), ops.constant(1, np.int64))

    def logits(self, hidden: Node, *, embedding: Node) -> Node:
        """[sampled rows, vocabulary], for those rows alone."""
        rows = ops.gather(hidden, self._inputs.sampled_rows, ops.constant(0, np.int64))
        normed = self.norm(rows, name="final_norm")
        product = times(normed, matrix=self.head_matrix(embedding))
        return ops.squeeze(product, ops.constant(1, np.int64))

    def _column(self, positions: Node) -> Node:
        return ops.reshape(positions, ops.constant([-1, 1, 1, 1], np.int64), special_zero=False)


def _unused_attention_inputs() -> list[Node]:
    """Inputs 13 to 27: scores, rotation of the cache, sparse attention and the like, all off."""
    ints, floats, none = np.zeros(0, np.int32), np.zeros(0, np.float32), np.int32(0)
    values: Sequence[Any] = (
        ints, ints, ints, floats,
        floats, none, none, np.zeros((0, 0, 0, 0), np.float32),
        none, ints, ints, ints,
        ints, np.zeros(0, np.uint8), ints,
    )  # fmt: skip
    return [ops.constant(value) for value in values]


def _outputs(nodes: Sequence[Node]) -> list[Node]:
    assert len(nodes) == NUM_ATTENTION_INPUTS
    return [node.output(0) for node in nodes]


def _flat(heads: Node) -> Node:
    return ops.reshape(heads, ops.constant([0, -1], np.int64), special_zero=True)


def make_step_inputs() -> StepInputs:
    """The parameters of a step."""
    tokens, integers = (ov.Type.i64, [-1]), (ov.Type.i32, [-1])
    kinds = StepInputs(
        tokens, tokens, integers, integers, integers, integers, (ov.Type.i32, []), integers
    )
    return StepInputs(
        *(
            make_parameter(name, shape=shape, dtype=dtype)
            for name, (dtype, shape) in zip(StepInputs._fields, kinds, strict=True)
        )
    )
