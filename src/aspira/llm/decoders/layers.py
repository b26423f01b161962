"""What decoders have in common however their cache is kept: matrices, norms, MLPs, rotation."""

from abc import ABC, abstractmethod

import numpy as np
import openvino as ov
from openvino import opset15 as ops

from aspira.llm.decoders.config import DecoderConfig, rotary_frequencies
from aspira.llm.decoders.families import family_named
from aspira.llm.decoders.family import Heads, Node
from aspira.llm.decoders.matrices import make_matrix
from aspira.llm.decoders.options import WeightFormat
from aspira.llm.weights.source import Weights


class DecoderLayers(ABC):
    """`DecoderParts`, over the weights of one decoder. Subclasses say how tokens are laid out."""

    def __init__(
        self,
        config: DecoderConfig,
        *,
        weights: Weights,
        weight_format: WeightFormat,
        position_ids: Node,
    ) -> None:
        self._config = config
        self._weights = weights
        self._weight_format = weight_format
        self._cosine, self._sine = self._rotation(position_ids)

    @abstractmethod
    def project_heads(self, hidden: Node, *, layer: str, has_bias: bool = False) -> Heads:
        """See `DecoderParts.project_heads`."""

    @abstractmethod
    def attend(self, query: Node, *, key: Node, value: Node) -> Node:
        """Causal attention over all tokens so far, to which keys and values are added."""

    @abstractmethod
    def _column(self, positions: Node) -> Node:
        """Positions as they are multiplied with the angles of a head."""

    def run_layers(self, hidden: Node) -> Node:
        """All layers, and the last norm's input."""
        make_heads = family_named(self._config.family).make_heads
        for index in range(self._config.num_layers):
            layer = f"layers.{index}"
            normed = self.norm(hidden, name=f"{layer}.attention_norm")
            query, key, value = make_heads(self, hidden=normed, layer=layer)
            attended = self.attend(query, key=key, value=value)
            hidden = ops.add(hidden, self.linear(attended, name=f"{layer}.attention_output"))
            normed = self.norm(hidden, name=f"{layer}.mlp_norm")
            hidden = ops.add(hidden, self.gated_mlp(normed, layer=layer))
        return hidden

    def linear(self, hidden: Node, *, name: str, has_bias: bool = False) -> Node:
        product = times(hidden, matrix=self._matrix(f"{name}.weight"))
        return ops.add(product, self._vector(f"{name}.bias")) if has_bias else product

    def norm(self, hidden: Node, *, name: str) -> Node:
        """See `DecoderParts.norm`."""
        squares = ops.power(hidden, np.float32(2))
        mean = ops.reduce_mean(squares, ops.constant([-1], np.int64), keep_dims=True)
        root = ops.sqrt(ops.add(mean, np.float32(self._config.norm_epsilon)))
        scale = ops.divide(np.float32(1), root)
        return ops.multiply(ops.multiply(hidden, scale), self._vector(f"{name}.weight"))

    def rotate(self, heads: Node) -> Node:
        """See `DecoderParts.rotate`."""
        half = self._config.head_size // 2
        first = _slice(heads, begin=0, end=half)
        second = _slice(heads, begin=half, end=2 * half)
        turned = ops.concat([ops.multiply(second, np.float32(-1)), first], axis=-1)
        return ops.add(ops.multiply(heads, self._cosine), ops.multiply(turned, self._sine))

    def gated_mlp(self, hidden: Node, *, layer: str) -> Node:
        """SwiGLU. Gate and up are one product: fewer, larger ones are faster."""
        matrix = self._matrix(f"{layer}.gate.weight", f"{layer}.up.weight")
        both = times(hidden, matrix=matrix)
        sizes = ops.constant([self._config.intermediate_size] * 2, np.int32)
        gate, up = ops.variadic_split(both, ops.constant(-1, np.int32), sizes).outputs()
        return self.linear(ops.multiply(ops.swish(gate), up), name=f"{layer}.down")

    def head_matrix(self, embedding: Node) -> Node:
        """What makes logits of the last norm's output."""
        return embedding if self._config.has_tied_head else self._matrix("head.weight")

    def _rotation(self, position_ids: Node) -> tuple[Node, Node]:
        frequencies = rotary_frequencies(self._config)
        if "rotary_factors.weight" in self._weights:
            frequencies = frequencies / self._weights.read("rotary_factors.weight")
        both_halves = np.concatenate([frequencies, frequencies]).astype(np.float32)
        column = self._column(ops.convert(position_ids, "f32"))
        angles = ops.multiply(column, ops.constant(both_halves.reshape(1, 1, 1, -1)))
        return ops.cos(angles), ops.sin(angles)

    def _matrix(self, *names: str) -> Node:
        return make_matrix(names, weights=self._weights, weight_format=self._weight_format)

    def _vector(self, name: str) -> Node:
        return ops.constant(self._weights.read(name).astype(np.float32))


def times(hidden: Node, *, matrix: Node) -> Node:
    """A product with a matrix, [outputs, inputs]."""
    return ops.matmul(hidden, matrix, transpose_a=False, transpose_b=True)


def make_parameter(name: str, *, shape: list[int], dtype: ov.Type) -> Node:
    """An input of the model."""
    parameter = ops.parameter(ov.PartialShape(shape), dtype)
    parameter.set_friendly_name(name)
    parameter.output(0).set_names({name})
    return parameter


def _slice(heads: Node, *, begin: int, end: int) -> Node:
    bounds = (ops.constant([value], np.int64) for value in (begin, end, 1, -1))
    return ops.slice(heads, *bounds)
