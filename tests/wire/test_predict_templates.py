from collections.abc import Callable

import numpy as np
import pytest
from google.protobuf import wrappers_pb2
from tensorflow_serving.apis import model_pb2, predict_pb2

from aspira.contracts.inference import PredictRequest
from aspira.contracts.tensors import DataType, Tensor
from aspira.wire.predict_templates import PredictTemplates
from aspira.wire.prediction import decode_predict_request
from aspira.wire.tensor_proto import encode_tensor

Message = predict_pb2.PredictRequest
Change = Callable[[Message], object]


def make_message(*, is_content: bool = True, **inputs: Tensor) -> Message:
    message = Message()
    message.model_spec.name = "m"
    for alias, tensor in inputs.items():
        encode_tensor(tensor, into=message.inputs[alias], use_tensor_content=is_content)
    return message


def serialize(message: Message) -> bytes:
    payload: bytes = message.SerializeToString(deterministic=True)
    return payload


def learn(*payloads: bytes) -> PredictTemplates:
    templates = PredictTemplates()
    for payload in payloads:
        request = decode_predict_request(Message.FromString(payload), deadline=None)
        templates.learn(payload, request=request)
    return templates


def try_decode(templates: PredictTemplates, payload: bytes) -> PredictRequest | None:
    return templates.try_decode(payload, deadline=3.5, priority=2)


def assert_read_as_by_protobuf(request: PredictRequest | None, *, payload: bytes) -> None:
    wanted = decode_predict_request(Message.FromString(payload), deadline=3.5)
    assert request is not None
    assert request._replace(inputs={}) == wanted._replace(inputs={}, priority=2)
    assert request.inputs.keys() == wanted.inputs.keys()
    for alias, tensor in wanted.inputs.items():
        assert request.inputs[alias].dtype == tensor.dtype
        np.testing.assert_array_equal(request.inputs[alias], tensor)


@pytest.mark.parametrize("is_content", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 40)])
def test_other_numbers_are_read_as_protobuf_reads_them(
    is_content: bool, dtype: type, shape: tuple[int, ...]
) -> None:
    numbers = np.arange(1, 1 + np.prod(shape), dtype=dtype).reshape(shape)
    first = make_message(is_content=is_content, x=numbers, other=numbers + 1)
    second = make_message(is_content=is_content, x=numbers * 3, other=numbers - 5)
    for message in (first, second):
        message.model_spec.version.value = 7
        message.model_spec.signature_name = "s"
        message.output_filter.append("y")
    request = try_decode(learn(serialize(first)), serialize(second))
    assert_read_as_by_protobuf(request, payload=serialize(second))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float16, np.complex64])
def test_any_numbers_in_tensor_content(dtype: type) -> None:
    first, second = (serialize(make_message(x=np.array([one, 5], dtype))) for one in (1, 2))
    assert_read_as_by_protobuf(try_decode(learn(first), second), payload=second)


def _name(message: Message) -> None:
    message.model_spec.name = "n"


def _alias(message: Message) -> None:
    message.inputs["y"].CopyFrom(message.inputs["x"])
    del message.inputs["x"]


def _dtype(message: Message) -> None:
    message.inputs["x"].dtype = DataType.INT32


def _shape(message: Message) -> None:
    message.inputs["x"].tensor_shape.dim[0].size = 3
    message.inputs["x"].tensor_shape.dim[1].size = 2


def _length(message: Message) -> None:
    message.inputs["x"].CopyFrom(make_message(x=np.ones((2, 4), np.float32)).inputs["x"])


@pytest.mark.parametrize("change", [_name, _alias, _dtype, _shape, _length])
def test_what_differs_in_more_than_numbers_is_protobufs_to_read(change: Change) -> None:
    message = make_message(x=np.ones((2, 3), np.float32))
    templates = learn(serialize(message))
    assert try_decode(templates, serialize(message)) is not None
    change(message)
    assert try_decode(templates, serialize(message)) is None


@pytest.mark.parametrize(
    "message",
    [
        make_message(x=np.array([b"text"], object)),
        make_message(x=np.array([True, False])),
        make_message(is_content=False, x=np.arange(3)),
        make_message(x=np.zeros((0, 3), np.float32)),
    ],
    ids=["strings", "bools", "varints", "nothing"],
)
def test_messages_that_are_not_learned(message: Message) -> None:
    payload = serialize(message)
    assert try_decode(learn(payload), payload) is None


def test_one_value_for_a_whole_shape_is_not_learned() -> None:
    message = make_message(is_content=False, x=np.ones(1, np.float32))
    message.inputs["x"].tensor_shape.dim[0].size = 5
    assert try_decode(learn(serialize(message)), serialize(message)) is None


def test_two_fields_of_values_are_not_learned() -> None:
    message = make_message(x=np.ones(3, np.float32))
    message.inputs["x"].float_val.extend([4, 5, 6])
    assert try_decode(learn(serialize(message)), serialize(message)) is None


def test_values_in_the_field_of_another_type_are_not_learned() -> None:
    message = Message(model_spec=model_pb2.ModelSpec(name="m"))
    tensor = message.inputs["x"]
    tensor.dtype = DataType.HALF
    tensor.tensor_shape.dim.add(size=4)
    tensor.float_val.extend([0.0, 0.0])
    assert try_decode(learn(serialize(message)), serialize(message)) is None


def test_an_alias_that_comes_twice_is_not_learned() -> None:
    message = make_message(x=np.ones(3, np.float32))
    payload = serialize(message) + serialize(Message(inputs=message.inputs))
    assert try_decode(learn(payload), payload) is None


def test_messages_of_one_length_are_told_apart() -> None:
    numbers = np.ones(3, np.float32)
    payloads = []
    for version in (1, 2, 3):
        message = make_message(x=numbers)
        message.model_spec.version.CopyFrom(wrappers_pb2.Int64Value(value=version))
        payloads.append(serialize(message))
    templates = learn(*payloads)
    for payload in payloads:
        assert_read_as_by_protobuf(try_decode(templates, payload), payload=payload)


def test_what_clients_make_up_is_learned_up_to_a_bound() -> None:
    payloads = [serialize(make_message(x=np.ones(size, np.float32))) for size in range(1, 1100)]
    templates = learn(*payloads)
    learned = [try_decode(templates, payload) is not None for payload in payloads]
    assert learned == [index < 1024 for index in range(len(payloads))]


def test_of_one_length_a_few_are_learned() -> None:
    messages = [make_message(x=np.ones(3, np.float32)) for _ in range(10)]
    for version, message in enumerate(messages):
        message.model_spec.version.value = version + 1
    templates = learn(*map(serialize, messages))
    learned = [try_decode(templates, serialize(message)) is not None for message in messages]
    assert learned == [True] * 8 + [False] * 2
