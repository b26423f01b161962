"""An encoder of BERT's shape as OpenVINO operations: token ids and their mask to hidden states."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset15 as ops

from aspira.contracts.errors import DataLoss
from aspira.llm.decoders.family import Node
from aspira.llm.decoders.layers import make_parameter
from aspira.llm.encoders.config import EncoderConfig
from aspira.llm.weights.hugging_face import list_weight_files
from aspira.llm.weights.safetensors_file import SafetensorsFile

# Files of a model with a head name its encoder.
_PREFIXES = ("", "bert.", "roberta.")
# Files of the first years name the vectors of norms otherwise.
_OLD_NAMES = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))

Floats = npt.NDArray[np.float32]


class EncoderWeights:
    """The tensors of a Hugging Face directory, as float32."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: Mapping[str, SafetensorsFile] = {
            name: file
            for file in map(SafetensorsFile, list_weight_files(directory))
            for name in file.names
        }

    def read(self, name: str) -> Floats:
        """One tensor.

        Raises:
            ServingError: it is not in the files, or of a type that is not served.
        """
        spellings = [name, *(name.replace(*pair) for pair in _OLD_NAMES if pair[0] in name)]
        for spelling in (prefix + one for one in spellings for prefix in _PREFIXES):
            if spelling in self._files:
                return self._files[spelling].read(spelling).astype(np.float32)
        raise DataLoss(f"{self._directory} has no tensor {name}; copy the model again")


def build_encoder(config: EncoderConfig, *, weights: EncoderWeights) -> ov.Model:
    """A model from `input_ids` and `attention_mask`, [texts, tokens], to hidden states.

    Raises:
        ServingError: a weight is missing or of a type that is not served.
    """
    ids, mask = (
        make_parameter(name, shape=[-1, -1], dtype=ov.Type.i64)
        for name in ("input_ids", "attention_mask")
    )
    graph = _EncoderGraph(config, weights=weights, mask=mask)
    hidden = graph.embed(ids)
    for index in range(config.num_layers):
        hidden = graph.layer(hidden, name=f"encoder.layer.{index}")
    hidden.output(0).set_names({"last_hidden_state"})
    return ov.Model([ops.result(hidden)], [ids, mask], "encoder")


class _EncoderGraph:
    """Hidden states are [texts, tokens, size], heads [texts, heads, tokens, head size]."""

    def __init__(self, config: EncoderConfig, *, weights: EncoderWeights, mask: Node) -> None:
        self._config = config
        self._weights = weights
        self._head_size = config.hidden_size // config.num_heads
        # Every token sees all tokens of its text, and no padding.
        self._is_seen = ops.unsqueeze(ops.convert(mask, "boolean"), ops.constant([1, 2], np.int64))

    def embed(self, ids: Node) -> Node:
        zero, one = ops.constant(0, np.int64), ops.constant(1, np.int64)
        words = ops.gather(self._constant("embeddings.word_embeddings.weight"), ids, zero)
        table = self._weights.read("embeddings.position_embeddings.weight")
        length = ops.squeeze(ops.gather(ops.shape_of(ids), one, zero))
        places = ops.range(zero, length, one, "i64")
        first = self._config.first_position
        positions = ops.gather(ops.constant(table[first:]), places, zero)
        # One text at a time is encoded, never a pair: all tokens are of the first kind.
        kind = self._weights.read("embeddings.token_type_embeddings.weight")[:1]
        summed = ops.add(ops.add(words, ops.constant(kind)), positions)
        return self._norm(summed, name="embeddings.LayerNorm")

    def layer(self, hidden: Node, *, name: str) -> Node:
        attended = self._attend(hidden, name=f"{name}.attention.self")
        attended = self._linear(attended, name=f"{name}.attention.output.dense")
        hidden = self._norm(ops.add(hidden, attended), name=f"{name}.attention.output.LayerNorm")
        inner = self._activate(self._linear(hidden, name=f"{name}.intermediate.dense"))
        outer = self._linear(inner, name=f"{name}.output.dense")
        return self._norm(ops.add(hidden, outer), name=f"{name}.output.LayerNorm")

    def _attend(self, hidden: Node, *, name: str) -> Node:
        # One product for all three: fewer, larger ones are faster.
        projected = self._linear(
            hidden, name=f"{name}.query", others=(f"{name}.key", f"{name}.value")
        )
        shape = ops.constant([0, 0, 3, self._config.num_heads, self._head_size], np.int64)
        heads = ops.reshape(projected, shape, special_zero=True)
        parts = ops.split(
            ops.transpose(heads, ops.constant([2, 0, 3, 1, 4], np.int64)),
            ops.constant(0, np.int64),
            3,
        )
        query, key, value = (
            ops.squeeze(part, ops.constant(0, np.int64)) for part in parts.outputs()
        )
        attended = ops.scaled_dot_product_attention(query, key, value, self._is_seen)
        joined = ops.transpose(attended, ops.constant([0, 2, 1, 3], np.int64))
        flat = ops.constant([0, 0, self._config.hidden_size], np.int64)
        return ops.reshape(joined, flat, special_zero=True)

    def _linear(self, hidden: Node, *, name: str, others: tuple[str, ...] = ()) -> Node:
        names = (name, *others)
        matrix = np.concatenate([self._weights.read(f"{one}.weight") for one in names])
        bias = np.concatenate([self._weights.read(f"{one}.bias") for one in names])
        product = ops.matmul(hidden, ops.constant(matrix), transpose_a=False, transpose_b=True)
        return ops.add(product, ops.constant(bias))

    def _norm(self, hidden: Node, *, name: str) -> Node:
        last = ops.constant([-1], np.int64)
        normed = ops.mvn(hidden, last, True, self._config.norm_epsilon, "inside_sqrt")  # noqa: FBT003
        scaled = ops.multiply(normed, self._constant(f"{name}.weight"))
        return ops.add(scaled, self._constant(f"{name}.bias"))

    def _activate(self, hidden: Node) -> Node:
        if self._config.activation == "relu":
            return ops.relu(hidden)
        return ops.gelu(hidden, self._config.activation)

    def _constant(self, name: str) -> Any:
        return ops.constant(self._weights.read(name))
