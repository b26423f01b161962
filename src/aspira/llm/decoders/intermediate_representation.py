"""Turns an OpenVINO IR of a decoder, as optimum-intel and others publish them, into a step model.

The stateful attention of the file becomes paged attention by OpenVINO's own transformation; what
is left to do is to compute logits for the sampled rows alone.
"""

from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset15 as ops
from openvino._offline_transformations import paged_attention_transformation

from aspira.contracts.errors import DataLoss, FailedPrecondition, Unimplemented
from aspira.llm.decoders.family import Node
from aspira.llm.decoders.graph import NUM_ATTENTION_INPUTS
from aspira.llm.decoders.layers import make_parameter

_ATTENTION_TYPE = "PagedAttentionExtension"
# Between the head's matrix and the result only these are met in published files.
_PASSED_TYPES = frozenset({"Convert", "Add", "Multiply", "Reshape", "Tanh", "Divide"})


def read_ir(core: ov.Core, *, path: Path) -> ov.Model:
    """The model of an IR's XML file, from a step's inputs to the logits of its sampled rows.

    Raises:
        ServingError: it cannot be read, or is no decoder that paged attention can serve.
    """
    try:
        model = core.read_model(path)
    except RuntimeError as error:
        raise DataLoss(f"{path} is not an OpenVINO IR that can be read: {error}") from error
    try:
        paged_attention_transformation(model)
    except RuntimeError as error:
        raise Unimplemented(
            f"{path} cannot be served with a paged cache: {error}; export it as a stateful "
            "text-generation model (optimum-cli export openvino --task text-generation-with-past)"
        ) from error
    _check_attention(model, path=path)
    _sample_rows(model, path=path)
    return model


def _check_attention(model: ov.Model, *, path: Path) -> None:
    nodes = [node for node in model.get_ops() if node.get_type_name() == _ATTENTION_TYPE]
    if not nodes:
        raise Unimplemented(f"{path} has no attention that a paged cache could serve")
    for node in nodes:
        if node.get_input_size() != NUM_ATTENTION_INPUTS:
            raise FailedPrecondition(
                f"OpenVINO {ov.get_version()} gives attention {node.get_input_size()} inputs, "
                f"and Aspira knows {NUM_ATTENTION_INPUTS}; install the version it is pinned to"
            )


def _sample_rows(model: ov.Model, *, path: Path) -> None:
    """Gather the rows wanted in front of the head's matrix, and make the logits [rows, vocabulary].

    After the transformation the tokens are the first axis.
    """
    result = model.get_results()[0]
    head = _find_head(result.input_value(0).get_node(), path=path)
    rows = make_parameter("sampled_rows", shape=[-1], dtype=ov.Type.i32)
    gathered = ops.gather(head.input_value(0), rows, ops.constant(0, np.int64))
    head.input(0).replace_source_output(gathered.output(0))
    vocabulary = result.input_value(0).get_partial_shape()[-1]
    flat = ops.reshape(
        result.input_value(0),
        ops.constant([-1, vocabulary.get_length()], np.int64),
        special_zero=False,
    )
    result.input(0).replace_source_output(flat.output(0))
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()


def _find_head(node: Node, *, path: Path) -> Node:
    while node.get_type_name() != "MatMul":
        if node.get_type_name() not in _PASSED_TYPES:
            raise Unimplemented(
                f"{path}: {node.get_type_name()} stands between the last matrix and the logits, "
                "which is not served"
            )
        node = node.input_value(0).get_node()
    return node
