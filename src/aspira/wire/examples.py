"""The `Input` message of classify and regress: a list of tf.Examples as one string tensor."""

from typing import Any

import numpy as np

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.tensors import Tensor

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any


def decode_examples(message: Message) -> Tensor:
    """The serialized examples, shape [n], each with the common context put before it.

    Raises:
        InvalidArgument: there are none.
    """
    kind = message.WhichOneof("kind")
    if kind is None:
        raise InvalidArgument("Input is empty.")
    examples = getattr(message, kind)
    context = b""
    if kind == "example_list_with_context":
        context = examples.context.SerializeToString()
    if not examples.examples:
        raise InvalidArgument("Input is empty.")
    serialized = np.empty(len(examples.examples), dtype=object)
    # Protobuf merges what is concatenated, so the example's own features win over the context's.
    serialized[:] = [context + example.SerializeToString() for example in examples.examples]
    return serialized
