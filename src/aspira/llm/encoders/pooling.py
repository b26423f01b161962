"""Puts pooling behind an encoder's graph: the hidden states of a text's tokens to one vector."""

import numpy as np
import openvino as ov
from openvino import opset15 as ops

from aspira.contracts.errors import Unimplemented
from aspira.llm.decoders.family import Node
from aspira.llm.encoders.sentence_files import SentenceRules

_WHOLE_OUTPUT = "sentence_embedding"
_HIDDEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
# As PyTorch's and sentence-transformers' own divisions have it.
_LEAST_LENGTH = 1e-12
_LEAST_COUNT = 1e-9


def pool(model: ov.Model, *, rules: SentenceRules) -> ov.Model:
    """The same with one output, [texts, size], float32. The model given is not to be used again.

    Raises:
        Unimplemented: it has no output that could be pooled.
    """
    mask = next((one for one in model.inputs if "attention_mask" in one.names), None)
    vector = _find_output(model, names=(_WHOLE_OUTPUT,), rank=2)
    if vector is None:
        hidden = _find_output(model, names=_HIDDEN_OUTPUTS, rank=3)
        if hidden is None or mask is None:
            raise Unimplemented(
                f"The graph has inputs {_names(model.inputs)} and outputs {_names(model.outputs)}; "
                f"an encoder has attention_mask, and an output {' or '.join(_HIDDEN_OUTPUTS)}: "
                "export it with --task feature-extraction"
            )
        vector = _pooled(hidden, mask=mask.get_node(), kind=rules.pooling)
    if rules.is_normalized:
        vector = _normalized(vector)
    # What a caller may come to wait for is all that is computed.
    return ov.Model([ops.result(vector)], model.get_parameters(), "sentence_encoder")


def _find_output(model: ov.Model, *, names: tuple[str, ...], rank: int) -> Node | None:
    for output in model.outputs:
        size = output.get_partial_shape().rank
        if output.names & set(names) and size.is_static and size.get_length() == rank:
            return ops.convert(output.get_node().input_value(0), "f32")
    return None


def _pooled(hidden: Node, *, mask: Node, kind: str) -> Node:
    tokens = ops.constant(1, np.int64)
    if kind == "cls":
        return ops.gather(hidden, ops.constant(0, np.int64), tokens)
    weight = ops.unsqueeze(ops.convert(mask, "f32"), ops.constant(2, np.int64))
    if kind == "max":
        floor = ops.constant(np.float32(-1e9))
        seen = ops.select(ops.convert(weight, "boolean"), hidden, floor)
        return ops.reduce_max(seen, tokens)
    total = ops.reduce_sum(ops.multiply(hidden, weight), tokens)
    count = ops.maximum(ops.reduce_sum(weight, tokens), ops.constant(np.float32(_LEAST_COUNT)))
    return ops.divide(total, count)


def _normalized(vector: Node) -> Node:
    squares = ops.multiply(vector, vector)
    length = ops.sqrt(ops.reduce_sum(squares, ops.constant(1, np.int64), keep_dims=True))
    return ops.divide(vector, ops.maximum(length, ops.constant(np.float32(_LEAST_LENGTH))))


def _names(ports: list[ov.Output]) -> list[str]:
    return [min(port.names) if port.names else "?" for port in ports]
