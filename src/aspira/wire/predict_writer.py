"""Serializes answers to Predict without a protobuf message for each of them.

Of two answers with equal shapes and dtypes all is equal but the numbers, which come last in their
field. So protobuf writes what is before them once, and from then on the numbers are put behind it.
"""

from typing import Any

from aspira.contracts.identity import ServableId
from aspira.contracts.inference import PredictResponse
from aspira.contracts.tensors import Tensor
from aspira.wire.prediction import encode_model_spec
from aspira.wire.tensor_proto import encode_tensor, is_written_raw

# Requests choose the shapes. What is not kept is written anew each time.
_MAX_KEPT = 1024


class PredictResponseWriter:
    """Any thread: what two write at once is written twice, and equal.

    `response_class` is the message's, which is generated at TensorFlow's import.
    """

    def __init__(self, response_class: type[Any], *, use_tensor_content: bool) -> None:
        self._response_class = response_class
        self._use_tensor_content = use_tensor_content
        # What precedes an output's numbers, by alias, dtype and shape; empty if they are not raw.
        self._heads: dict[tuple[str, object, tuple[int, ...]], bytes] = {}
        self._specs: dict[tuple[ServableId, str], bytes] = {}

    def serialize(self, response: PredictResponse) -> bytes:
        """The message. Fields of a message may follow each other in parts, map entries too."""
        parts: list[bytes] = []
        for alias, tensor in response.outputs.items():
            head = self._heads.get((alias, tensor.dtype, tensor.shape))
            if head is None:
                head = self._write_head(alias, tensor=tensor)
            if head:
                parts += (head, tensor.tobytes())
            else:
                parts.append(self._serialize_output(alias, tensor=tensor))
        spec = self._specs.get((response.servable_id, response.signature_name))
        parts.append(self._write_spec(response) if spec is None else spec)
        return b"".join(parts)

    def _write_head(self, alias: str, *, tensor: Tensor) -> bytes:
        head = b""
        if tensor.nbytes and is_written_raw(tensor, use_tensor_content=self._use_tensor_content):
            head = self._serialize_output(alias, tensor=tensor)[: -tensor.nbytes]
        if len(self._heads) < _MAX_KEPT:
            self._heads[alias, tensor.dtype, tensor.shape] = head
        return head

    def _serialize_output(self, alias: str, *, tensor: Tensor) -> bytes:
        message = self._response_class()
        encode_tensor(
            tensor, into=message.outputs[alias], use_tensor_content=self._use_tensor_content
        )
        serialized: bytes = message.SerializeToString()
        return serialized

    def _write_spec(self, response: PredictResponse) -> bytes:
        message = self._response_class()
        encode_model_spec(response.servable_id, into=message.model_spec)
        message.model_spec.signature_name = response.signature_name
        spec: bytes = message.SerializeToString()
        if len(self._specs) < _MAX_KEPT:
            self._specs[response.servable_id, response.signature_name] = spec
        return spec
