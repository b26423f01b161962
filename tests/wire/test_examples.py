import pytest
import tensorflow as tf
from tensorflow.core.example import example_pb2
from tensorflow_serving.apis import input_pb2

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.tensors import DataType, data_type_of
from aspira.wire.examples import decode_examples


def example(**features: float) -> example_pb2.Example:
    message = example_pb2.Example()
    for name, value in features.items():
        message.features.feature[name].float_list.value.append(value)
    return message


def features_of(serialized: bytes) -> dict[str, list[float]]:
    """What a model's ParseExample would see."""
    parsed = tf.io.parse_single_example(
        serialized,
        {name: tf.io.FixedLenFeature([], tf.float32, default_value=-1.0) for name in "abc"},
    )
    return {name: float(value) for name, value in parsed.items()}


def test_examples_are_one_string_tensor() -> None:
    examples = [example(a=1), example(), example(b=2)]
    message = input_pb2.Input(example_list=input_pb2.ExampleList(examples=examples))
    tensor = decode_examples(message)
    assert data_type_of(tensor) is DataType.STRING
    assert tensor.shape == (3,)
    assert [example_pb2.Example.FromString(one) for one in tensor] == examples


def test_the_context_is_in_every_example() -> None:
    message = input_pb2.Input(
        example_list_with_context=input_pb2.ExampleListWithContext(
            context=example(a=10, c=30), examples=[example(b=2), example(a=1)]
        )
    )
    first, second = decode_examples(message)
    assert features_of(first) == {"a": 10, "b": 2, "c": 30}
    assert features_of(second) == {"a": 1, "b": -1, "c": 30}


@pytest.mark.parametrize(
    "message",
    [
        input_pb2.Input(),
        input_pb2.Input(example_list=input_pb2.ExampleList()),
        input_pb2.Input(
            example_list_with_context=input_pb2.ExampleListWithContext(context=example(a=1))
        ),
    ],
)
def test_no_examples(message: input_pb2.Input) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode_examples(message)
    assert caught.value.message == "Input is empty."
