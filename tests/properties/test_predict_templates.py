"""What a template reads is what protobuf would have read, whatever bytes a request is made of."""

import numpy as np
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tensorflow_serving.apis.predict_pb2 import PredictRequest as Message

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.inference import PredictRequest
from aspira.wire.predict_templates import PredictTemplates
from aspira.wire.prediction import decode_predict_request
from aspira.wire.tensor_proto import encode_tensor


def _make_payload(*, is_content: bool, num_inputs: int) -> bytes:
    message = Message()
    message.model_spec.name = "model"
    message.model_spec.version.value = 3
    message.output_filter.append("y")
    for index in range(num_inputs):
        tensor = np.arange(4, dtype=np.float32).reshape(2, 2)
        encode_tensor(tensor, into=message.inputs[f"x{index}"], use_tensor_content=is_content)
    payload: bytes = message.SerializeToString(deterministic=True)
    return payload


def _decode(payload: bytes) -> PredictRequest | None:
    try:
        return decode_predict_request(Message.FromString(payload), deadline=None)
    except (DecodeError, InvalidArgument):
        return None


@given(
    is_content=st.booleans(),
    num_inputs=st.integers(1, 2),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
)
def test_any_change_of_bytes(
    is_content: bool, num_inputs: int, changes: list[tuple[int, int]]
) -> None:
    payload = _make_payload(is_content=is_content, num_inputs=num_inputs)
    learned = _decode(payload)
    assert learned is not None
    templates = PredictTemplates()
    templates.learn(payload, request=learned)
    changed = bytearray(payload)
    for position, byte in changes:
        changed[position % len(changed)] = byte
    found = templates.try_decode(bytes(changed), deadline=None, priority=0)
    assert found is not None or bytes(changed) != payload
    if found is not None:
        wanted = _decode(bytes(changed))
        assert wanted is not None
        assert found._replace(inputs={}) == wanted._replace(inputs={})
        assert found.inputs.keys() == wanted.inputs.keys()
        for alias, tensor in wanted.inputs.items():
            np.testing.assert_array_equal(found.inputs[alias], tensor)
