from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.example import example_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    input_pb2,
    model_pb2,
    regression_pb2,
)

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.examples import (
    Classifications,
    ExamplesResponse,
    ExamplesResult,
    InferenceTask,
    Regressions,
)
from aspira.contracts.identity import ModelName, ModelSpec, ServableId, Version, VersionLabel
from aspira.contracts.signatures import CLASSIFY_METHOD
from aspira.contracts.tensors import DataType, data_type_of
from aspira.wire.examples import (
    decode_examples,
    decode_examples_request,
    decode_multi_inference_request,
    encode_examples_response,
    encode_multi_inference_response,
    serialize_examples,
)
from example_toys import VERSION, M, floats, strings


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
    tensor = decode_examples(message)
    assert data_type_of(tensor) is DataType.STRING
    assert tensor.shape == (0,)


def test_bytes_at_the_end_of_an_example_are_kept() -> None:
    message = example_pb2.Example()
    message.features.feature["a"].bytes_list.value.append(b"\0\0")
    (serialized,) = serialize_examples([message])
    assert example_pb2.Example.FromString(serialized) == message


@pytest.mark.parametrize(
    "request_class",
    [classification_pb2.ClassificationRequest, regression_pb2.RegressionRequest],
)
def test_requests(request_class: Any) -> None:
    message = request_class()
    message.model_spec.name = "m"
    message.model_spec.version.value = 3
    message.model_spec.signature_name = "s"
    message.input.example_list.examples.append(example(a=1))
    spec, examples, deadline, priority = decode_examples_request(message, deadline=7.0, priority=2)
    assert spec == ModelSpec(ModelName("m"), version=Version(3), signature_name="s")
    assert [example_pb2.Example.FromString(one) for one in examples] == [example(a=1)]
    assert (deadline, priority) == (7.0, 2)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (None, "Missing ModelSpec"),
        (model_pb2.ModelSpec(signature_name="s"), "ModelSpec has no name specified."),
    ],
)
def test_requests_of_no_model(spec: model_pb2.ModelSpec | None, text: str) -> None:
    message = regression_pb2.RegressionRequest(model_spec=spec)
    with pytest.raises(InvalidArgument) as caught:
        decode_examples_request(message, deadline=None)
    assert caught.value.message == text


def test_requests_of_several_tasks() -> None:
    message = inference_pb2.MultiInferenceRequest(
        tasks=[
            inference_pb2.InferenceTask(
                model_spec=model_pb2.ModelSpec(name="m", version_label="stable"),
                method_name=CLASSIFY_METHOD,
            ),
            inference_pb2.InferenceTask(),
        ],
        input=input_pb2.Input(example_list=input_pb2.ExampleList(examples=[example(a=1)])),
    )
    tasks, examples, deadline, priority = decode_multi_inference_request(
        message, deadline=None, priority=-1
    )
    assert tasks == (
        InferenceTask(ModelSpec(M, label=VersionLabel("stable")), CLASSIFY_METHOD),
        InferenceTask(ModelSpec(ModelName("")), ""),
    )
    assert len(examples) == 1
    assert (deadline, priority) == (None, -1)


def respond(result: ExamplesResult, *, signature_name: str = "s") -> ExamplesResponse[Any]:
    return ExamplesResponse(result, ServableId(M, VERSION), signature_name)


def spec_of(signature_name: str) -> model_pb2.ModelSpec:
    spec = model_pb2.ModelSpec(name="m", signature_name=signature_name)
    spec.version.value = 3
    return spec


CLASSIFICATIONS = Classifications(strings([b"cat", b"\xff"], [b"", b"dog"]), floats([1, 2], [0, 4]))
CLASSIFICATION_RESULT = classification_pb2.ClassificationResult(
    classifications=[
        classification_pb2.Classifications(
            classes=[
                classification_pb2.Class(label="cat", score=1),
                # A client could not parse what is not UTF-8.
                classification_pb2.Class(label="\ufffd", score=2),
            ]
        ),
        classification_pb2.Classifications(
            classes=[classification_pb2.Class(), classification_pb2.Class(label="dog", score=4)]
        ),
    ]
)
REGRESSIONS = Regressions(floats(2.5, 0))
REGRESSION_RESULT = regression_pb2.RegressionResult(
    regressions=[regression_pb2.Regression(value=2.5), regression_pb2.Regression()]
)


def test_classifications() -> None:
    message = classification_pb2.ClassificationResponse()
    encode_examples_response(respond(CLASSIFICATIONS), into=message)
    assert message == classification_pb2.ClassificationResponse(
        model_spec=spec_of("s"), result=CLASSIFICATION_RESULT
    )


def test_examples_without_classes() -> None:
    message = classification_pb2.ClassificationResponse()
    none = Classifications(np.zeros((2, 0), object), np.zeros((2, 0), np.float32))
    encode_examples_response(respond(none), into=message)
    assert [len(one.classes) for one in message.result.classifications] == [0, 0]


def test_regressions() -> None:
    message = regression_pb2.RegressionResponse()
    encode_examples_response(respond(REGRESSIONS), into=message)
    assert message == regression_pb2.RegressionResponse(
        model_spec=spec_of("s"), result=REGRESSION_RESULT
    )


def test_several_results() -> None:
    message = inference_pb2.MultiInferenceResponse()
    responses = [respond(REGRESSIONS), respond(CLASSIFICATIONS, signature_name="t")]
    encode_multi_inference_response(responses, into=message)
    assert message == inference_pb2.MultiInferenceResponse(
        results=[
            inference_pb2.InferenceResult(
                model_spec=spec_of("s"), regression_result=REGRESSION_RESULT
            ),
            inference_pb2.InferenceResult(
                model_spec=spec_of("t"), classification_result=CLASSIFICATION_RESULT
            ),
        ]
    )
