"""Has an OpenVINO model say when an index of a request is out of range.

TensorFlow refuses such a request. OpenVINO takes an index past the end for zeros and counts a
negative one from the end, so the model gets one more output, and a request for which it is false
is given to TensorFlow, for its answer.
"""

from typing import Any

import numpy as np

IN_RANGE = "aspira_in_range"

# OpenVINO's bindings have no usable types.
Model = Any
Output = Any


def guard_gathers(model: Model) -> None:
    """Add the output `aspira_in_range` if the model looks up indices that requests decide."""
    from openvino import opset13 as ops

    checks = [
        _in_range(node)
        for node in model.get_ordered_ops()
        if node.get_type_name() == "Gather" and _depends_on_request(node.input_value(1))
    ]
    if not checks:
        return
    in_range = checks[0]
    for check in checks[1:]:
        in_range = ops.logical_and(in_range, check)
    in_range.output(0).get_tensor().set_names({IN_RANGE})
    model.add_outputs(in_range.output(0))


def _in_range(gather: Any) -> Any:
    from openvino import opset13 as ops

    data, indices, axis = (gather.input_value(number) for number in range(3))
    zero = ops.constant(np.int64(0))
    size = _reshape(ops.gather(ops.shape_of(data, "i64"), axis, zero), shape=())
    flat = _reshape(ops.convert(indices, "i64"), shape=(-1,))
    # Of no indices the lowest is the largest number there is, and the highest the smallest.
    lowest, highest = ops.reduce_min(flat, zero), ops.reduce_max(flat, zero)
    return ops.logical_and(ops.greater_equal(lowest, zero), ops.less(highest, size))


def _reshape(node: Any, *, shape: tuple[int, ...]) -> Any:
    from openvino import opset13 as ops

    return ops.reshape(node, ops.constant(np.array(shape, np.int64)), special_zero=False)


def _depends_on_request(output: Output) -> bool:
    """Whether the values come from an input, and not only from the shape of one."""
    waiting, seen = [output.get_node()], set()
    while waiting:
        node = waiting.pop()
        if node.get_type_name() == "Parameter":
            return True
        if node.get_type_name() == "ShapeOf" or node.get_friendly_name() in seen:
            continue
        seen.add(node.get_friendly_name())
        waiting.extend(source.get_node() for source in node.input_values())
    return False
