import numpy as np
import pytest
from tensorflow_serving.apis import predict_pb2

from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.contracts.inference import PredictResponse
from aspira.contracts.tensors import DataType, Tensor
from aspira.wire.predict_writer import PredictResponseWriter
from aspira.wire.prediction import encode_predict_response

Message = predict_pb2.PredictResponse
_CARRIED = [one for one in DataType if one.numpy_dtype is not None and one is not DataType.STRING]


def make_response(version: int = 3, **outputs: Tensor) -> PredictResponse:
    return PredictResponse(outputs, ServableId(ModelName("m"), Version(version)), "s")


def by_protobuf(response: PredictResponse, *, use_tensor_content: bool) -> Message:
    message = Message()
    encode_predict_response(response, into=message, use_tensor_content=use_tensor_content)
    return message


@pytest.mark.parametrize("use_tensor_content", [False, True])
@pytest.mark.parametrize("data_type", _CARRIED, ids=lambda one: one.name)
def test_a_client_reads_what_protobuf_would_have_written(
    data_type: DataType, use_tensor_content: bool
) -> None:
    writer = PredictResponseWriter(Message, use_tensor_content=use_tensor_content)
    bits = np.random.default_rng(5)
    for size in (3, 0, 3, 70):
        storage = bits.integers(0, 2, (size, 2)).astype(np.int8)
        tensor = storage.astype(data_type.numpy_dtype)
        response = make_response(y=tensor, transposed=tensor.T, texts=np.array([b"a"], object))
        wanted = by_protobuf(response, use_tensor_content=use_tensor_content)
        assert Message.FromString(writer.serialize(response)) == wanted


def test_outputs_are_told_apart_by_alias_shape_dtype_and_who_answered() -> None:
    writer = PredictResponseWriter(Message, use_tensor_content=False)
    numbers = np.float32([1, 2, 3, 4])
    for response in (
        make_response(y=numbers),
        make_response(z=numbers),
        make_response(y=numbers.reshape(2, 2)),
        make_response(y=numbers.astype(np.float64)),
        make_response(version=4, y=numbers),
        make_response(version=4, y=numbers)._replace(signature_name="t"),
        make_response(y=numbers, z=numbers),
        make_response(),
    ):
        wanted = by_protobuf(response, use_tensor_content=False)
        assert Message.FromString(writer.serialize(response)) == wanted


def test_no_number_of_shapes_is_too_many() -> None:
    writer = PredictResponseWriter(Message, use_tensor_content=False)
    for size in range(1, 1100):
        response = make_response(version=size, y=np.full(size, size, np.float32))
        serialized = writer.serialize(response)
    wanted = by_protobuf(response, use_tensor_content=False)
    assert Message.FromString(serialized) == wanted
