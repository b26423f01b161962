import numpy as np
import pytest
from tensorflow.core.protobuf import meta_graph_pb2

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.signatures import CLASSIFY_METHOD, Signature, TensorSpec
from aspira.contracts.tensors import DataType
from aspira.wire.signature_def import decode_signature, describe_signature, encode_signature
from aspira.wire.tensor_proto import encode_tensor


def through_the_wire(signature: Signature) -> Signature:
    message = meta_graph_pb2.SignatureDef()
    encode_signature(signature, into=message)
    return decode_signature(meta_graph_pb2.SignatureDef.FromString(message.SerializeToString()))


def test_round_trip() -> None:
    signature = Signature(
        inputs={
            "image": TensorSpec(DataType.FLOAT, (None, 28, 28), "serving_default_image:0"),
            "text": TensorSpec(DataType.STRING, (), "serving_default_text:0"),
        },
        outputs={
            "any_rank": TensorSpec(DataType.BFLOAT16, None, "StatefulPartitionedCall:0"),
            "none": TensorSpec(DataType.INT64, (0, None), "StatefulPartitionedCall:1"),
        },
        method_name=CLASSIFY_METHOD,
    )
    assert through_the_wire(signature) == signature


def test_aliases_come_in_their_own_order() -> None:
    spec = TensorSpec(DataType.FLOAT, None)
    signature = through_the_wire(
        Signature(inputs=dict.fromkeys("bca", spec), outputs=dict.fromkeys("zxy", spec))
    )
    assert list(signature.inputs) == ["a", "b", "c"]
    assert list(signature.outputs) == ["x", "y", "z"]


def test_defaults_round_trip() -> None:
    spec = TensorSpec(DataType.FLOAT, (2,), "b:0")
    default = np.float32([1, 2])
    signature = through_the_wire(Signature(inputs={"b": spec}, outputs={}, defaults={"b": default}))
    assert signature.defaults.keys() == {"b"}
    np.testing.assert_array_equal(signature.defaults["b"], default, strict=True)


def test_a_default_that_cannot_be_read_is_named() -> None:
    message = meta_graph_pb2.SignatureDef()
    encode_tensor(np.float32([1]), into=message.defaults["good"])
    message.defaults["bad"].SetInParent()
    with pytest.raises(InvalidArgument) as caught:
        decode_signature(message)
    assert caught.value.message == "tensor parsing error: bad"


def test_a_scalar_is_not_an_unknown_rank() -> None:
    message = meta_graph_pb2.SignatureDef()
    outputs = {
        "scalar": TensorSpec(DataType.FLOAT, ()),
        "unknown": TensorSpec(DataType.FLOAT, None),
    }
    encode_signature(Signature({}, outputs), into=message)
    assert not message.outputs["scalar"].tensor_shape.unknown_rank
    assert message.outputs["scalar"].HasField("tensor_shape")
    assert message.outputs["unknown"].tensor_shape.unknown_rank


def test_an_unknown_size_is_minus_one() -> None:
    message = meta_graph_pb2.SignatureDef()
    spec = TensorSpec(DataType.FLOAT, (None, 3), "x:0")
    encode_signature(Signature({"x": spec}, {}), into=message)
    assert [dim.size for dim in message.inputs["x"].tensor_shape.dim] == [-1, 3]
    assert message.inputs["x"].name == "x:0"
    assert message.inputs["x"].dtype == DataType.FLOAT


def test_description_is_text_format() -> None:
    signature = Signature(
        inputs={"x": TensorSpec(DataType.FLOAT, (None,), "x:0")},
        outputs={},
        method_name=CLASSIFY_METHOD,
    )
    assert describe_signature(signature) == (
        'inputs {\n  key: "x"\n  value {\n    name: "x:0"\n    dtype: DT_FLOAT\n'
        "    tensor_shape {\n      dim {\n        size: -1\n      }\n    }\n  }\n}\n"
        'method_name: "tensorflow/serving/classify"\n'
    )
