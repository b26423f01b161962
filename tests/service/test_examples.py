from typing import Any

import numpy as np
import pytest

from aspira.contracts.errors import (
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    OutOfRange,
    ServingError,
    Unimplemented,
)
from aspira.contracts.examples import (
    Classifications,
    ExamplesRequest,
    InferenceTask,
    MultiInferenceRequest,
    Regressions,
)
from aspira.contracts.identity import ModelName, ModelSpec, ServableId, Version
from aspira.contracts.signatures import (
    CLASSIFY_METHOD,
    PREDICT_METHOD,
    REGRESS_METHOD,
    Signature,
    SignatureTable,
)
from aspira.contracts.tensors import Tensor, Tensors
from aspira.service.examples import classify, multi_inference, regress
from aspira.service.inference import InferenceService
from example_toys import (
    OUTPUTS,
    SIGNATURES,
    VERSION,
    FixedServable,
    M,
    floats,
    play,
    signature_of,
    strings,
)

EXAMPLES = strings(b"one", b"two")
SERVABLE_ID = ServableId(M, VERSION)
APIS = {"classify": classify, "regress": regress}

INPUTS_TEXT = """inputs {
  key: "%s"
  value {
    name: "%s:0"
    dtype: DT_STRING
    tensor_shape {
      unknown_rank: true
    }
  }
}
"""
OUTPUTS_TEXT = """outputs {
  key: "%s"
  value {
    name: "%s:0"
    dtype: DT_FLOAT
    tensor_shape {
      unknown_rank: true
    }
  }
}
"""


def signature_text(*, inputs: str, outputs: str) -> str:
    return INPUTS_TEXT % (inputs, inputs) + OUTPUTS_TEXT % (outputs, outputs)


def request(signature_name: str = "", *, examples: Tensor = EXAMPLES) -> ExamplesRequest:
    return ExamplesRequest(ModelSpec(M, signature_name=signature_name), examples)


def task(signature_name: str, *, method: str = CLASSIFY_METHOD, name: str = "m") -> InferenceTask:
    return InferenceTask(ModelSpec(ModelName(name), signature_name=signature_name), method)


def tasks(*asked: InferenceTask, examples: Tensor = EXAMPLES) -> MultiInferenceRequest:
    return MultiInferenceRequest(asked, examples)


def result_of(api: str, asked: ExamplesRequest, servable: FixedServable) -> Any:
    found: list[Any] = []

    async def scenario(inference: InferenceService) -> None:
        response = await APIS[api](inference, request=asked)
        assert response.servable_id == SERVABLE_ID
        assert response.signature_name == (asked.spec.signature_name or "serving_default")
        found.append(response.result)

    play(scenario, servable=servable)
    return found[0]


def refusal(
    api: str,
    asked: ExamplesRequest,
    servable: FixedServable,
    *,
    is_method_name_checked: bool = False,
) -> ServingError:
    found: list[ServingError] = []

    async def scenario(inference: InferenceService) -> None:
        with pytest.raises(ServingError) as caught:
            await APIS[api](inference, request=asked)
        found.append(caught.value)

    play(scenario, servable=servable, is_method_name_checked=is_method_name_checked)
    return found[0]


def test_classes_and_scores() -> None:
    servable = FixedServable()
    result = result_of("classify", request(), servable)
    assert result.labels.tolist() == [[b"cat", b"dog"], [b"\xff", b'"']]
    np.testing.assert_array_equal(result.scores, OUTPUTS["scores"], strict=True)
    assert servable.runs == [("serving_default", [b"one", b"two"], ("classes", "scores"))]


def test_classes_alone_have_scores_of_zero() -> None:
    result = result_of("classify", request("labels"), FixedServable())
    assert result.labels.tolist() == [[b"cat", b"dog"], [b"\xff", b'"']]
    np.testing.assert_array_equal(result.scores, floats([0, 0], [0, 0]), strict=True)


def test_scores_alone_have_empty_labels_and_other_outputs_are_not_computed() -> None:
    servable = FixedServable()
    result = result_of("classify", request("scores"), servable)
    assert result.labels.tolist() == [[b"", b""], [b"", b""]]
    np.testing.assert_array_equal(result.scores, OUTPUTS["scores"], strict=True)
    assert servable.runs == [("scores", [b"one", b"two"], ("scores",))]


@pytest.mark.parametrize("labels", [np.array([["é", "b"]]), np.array([["é".encode(), b"b"]])])
def test_text_arrays_are_labels_too(labels: Tensor) -> None:
    servable = FixedServable(outputs={"classes": labels})
    result = result_of("classify", request("labels", examples=strings(b"one")), servable)
    assert result.labels.tolist() == [["é".encode(), b"b"]]


def test_there_may_be_no_classes() -> None:
    servable = FixedServable(outputs={"scores": np.zeros((2, 0), np.float32)})
    result = result_of("classify", request("scores"), servable)
    assert result.labels.shape == result.scores.shape == (2, 0)


@pytest.mark.parametrize("values", [floats(2.5, 3), floats([2.5], [3])])
def test_values(values: Tensor) -> None:
    servable = FixedServable(outputs={"outputs": values})
    result = result_of("regress", request("regress"), servable)
    np.testing.assert_array_equal(result.values, floats(2.5, 3), strict=True)
    assert servable.runs == [("regress", [b"one", b"two"], ("outputs",))]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        (
            ExamplesRequest(ModelSpec(ModelName("x")), strings()),
            NotFound,
            "Servable not found for request: Latest(x)",
        ),
        (
            ExamplesRequest(ModelSpec(M, version=Version(1)), strings()),
            NotFound,
            "Servable not found for request: Specific(m, 1)",
        ),
        (
            request("s", examples=strings()),
            InvalidArgument,
            "No signature was found with the name: s",
        ),
        (request("both", examples=strings()), InvalidArgument, "Input is empty."),
        (
            request("both")._replace(deadline=0.0),
            DeadlineExceeded,
            "Timed out waiting for notification",
        ),
        (request("both"), OutOfRange, "the model's own"),
    ],
)
def test_refusals(api: str, asked: ExamplesRequest, error: type[ServingError], text: str) -> None:
    outputs = {"classify": "scores", "regress": "outputs"}[api]
    servable = FixedServable({"both": signature_of(outputs)}, error=OutOfRange("the model's own"))
    found = refusal(api, asked, servable)
    assert type(found) is error
    assert found.message == text


@pytest.mark.parametrize(
    ("api", "signature", "text"),
    [
        ("classify", signature_of("scores", inputs=()), "Expected one input Tensor."),
        (
            "classify",
            signature_of("scores", inputs=("inputs", "more")),
            "Expected one input Tensor.",
        ),
        ("classify", signature_of(), "Expected one or two output Tensors, found 0"),
        ("classify", signature_of(*"abc"), "Expected one or two output Tensors, found 3"),
        (
            "classify",
            signature_of("scores", inputs=("x",)),
            "No classification inputs found in SignatureDef: "
            + signature_text(inputs="x", outputs="scores"),
        ),
        (
            "classify",
            signature_of("outputs"),
            'Expected classification signature outputs to contain at least one of "classes" or '
            '"scores". Signature was: ' + signature_text(inputs="inputs", outputs="outputs"),
        ),
        ("regress", signature_of("outputs", inputs=()), "Expected one input Tensor."),
        ("regress", signature_of(), "Expected one output Tensor."),
        ("regress", signature_of("outputs", "more"), "Expected one output Tensor."),
        (
            "regress",
            signature_of("outputs", inputs=("x",)),
            "No regression inputs found in SignatureDef: "
            + signature_text(inputs="x", outputs="outputs"),
        ),
        (
            "regress",
            signature_of("scores"),
            "No regression outputs found in SignatureDef: "
            + signature_text(inputs="inputs", outputs="scores"),
        ),
    ],
)
def test_signatures_that_do_not_fit(api: str, signature: Signature, text: str) -> None:
    servable = FixedServable({"serving_default": signature})
    # The signature is looked at before the input.
    found = refusal(api, request(examples=strings()), servable)
    assert type(found) is InvalidArgument
    assert found.message == text
    assert servable.runs == []


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        (
            {"classes": strings(b"a", b"b")},
            "Expected Tensor shape: [batch_size num_classes] but got [2]",
        ),
        (
            {"scores": np.zeros((2, 1, 3), np.float32)},
            "Expected Tensor shape: [batch_size num_classes] but got [2,1,3]",
        ),
        (
            {"scores": np.float32(1).reshape(())},
            "Expected Tensor shape: [batch_size num_classes] but got []",
        ),
        ({"classes": floats([1], [2])}, "Expected classes Tensor of DT_STRING. Got: DT_FLOAT"),
        ({"scores": np.zeros((2, 1))}, "Expected scores Tensor of DT_FLOAT. Got: DT_DOUBLE"),
        ({"classes": strings([b"a"])}, "Expected classes output batch size of 2. Got: 1"),
        (
            {"scores": floats([1], [2], [3])},
            "Expected scores output batch size of 2. Got: 3",
        ),
        (
            {"classes": strings([b"a"], [b"b"]), "scores": floats([1, 2], [3, 4])},
            "Tensors class and score should match in dim_size(1). Got 1 vs. 2",
        ),
    ],
)
def test_outputs_that_are_no_classification(outputs: Tensors, text: str) -> None:
    servable = FixedServable({"serving_default": signature_of(*outputs)}, outputs=outputs)
    found = refusal("classify", request(), servable)
    assert type(found) is InvalidArgument
    assert found.message == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            np.float32(1).reshape(()),
            (
                "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
                "[]"
            ),
        ),
        (
            floats([1, 2], [3, 4]),
            (
                "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
                "[2,2]"
            ),
        ),
        (
            floats([[1]], [[2]]),
            (
                "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
                "[2,1,1]"
            ),
        ),
        (floats(1, 2, 3), "Input batch size did not match output batch size: 2 vs. 3"),
        (np.array([1, 2]), "Expected output Tensor of DT_FLOAT.  Got: DT_INT64"),
    ],
)
def test_outputs_that_are_no_regression(values: Tensor, text: str) -> None:
    found = refusal("regress", request("regress"), FixedServable(outputs={"outputs": values}))
    assert type(found) is InvalidArgument
    assert found.message == text


@pytest.mark.parametrize(
    ("api", "text"),
    [
        (
            "classify",
            (
                "Expected classification signature method_name to be tensorflow/serving/classify. "
                "Was: odd"
            ),
        ),
        (
            "regress",
            "Expected regression signature method_name to be tensorflow/serving/regress. Was: odd",
        ),
    ],
)
def test_method_names_are_checked_if_told_so(api: str, text: str) -> None:
    found = refusal(api, request("odd"), FixedServable(), is_method_name_checked=True)
    assert type(found) is InvalidArgument
    assert found.message == text


def test_a_method_name_that_fits_passes_the_check() -> None:
    async def scenario(inference: InferenceService) -> None:
        await classify(inference, request=request())
        await regress(inference, request=request("regress"))
        asked = tasks(task("labels"), task("regress", method=REGRESS_METHOD))
        await multi_inference(inference, request=asked)

    play(scenario, servable=FixedServable(), is_method_name_checked=True)


def test_several_signatures_answer_in_the_order_of_their_tasks() -> None:
    servable = FixedServable()

    async def scenario(inference: InferenceService) -> None:
        asked = tasks(task("regress", method=REGRESS_METHOD), task(""), task("labels"))
        responses = await multi_inference(inference, request=asked)
        assert [type(r.result) for r in responses] == [
            Regressions,
            Classifications,
            Classifications,
        ]
        names = ["regress", "serving_default", "labels"]
        assert [response.signature_name for response in responses] == names
        assert {response.servable_id for response in responses} == {SERVABLE_ID}
        assert responses[0].result[0].tolist() == floats(2.5, 1 / 3).tolist()

    play(scenario, servable=servable)
    assert [(name, examples) for name, examples, _ in servable.runs] == [
        ("regress", [b"one", b"two"]),
        ("serving_default", [b"one", b"two"]),
        ("labels", [b"one", b"two"]),
    ]


class JointServable(FixedServable):
    """A runtime that can run several signatures as one."""

    def __init__(self) -> None:
        super().__init__(SignatureTable(SIGNATURES))

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        self.runs.append((signature_name, [*inputs], outputs))
        return {alias: OUTPUTS[alias.rpartition("/")[2]] for alias in outputs}


def test_several_signatures_are_one_run_where_the_runtime_can() -> None:
    servable = JointServable()

    async def scenario(inference: InferenceService) -> None:
        asked = tasks(task("regress", method=REGRESS_METHOD), task("labels"), task("scores"))
        regressed, labels, scores = await multi_inference(inference, request=asked)
        assert regressed.result[0].tolist() == floats(2.5, 1 / 3).tolist()
        assert labels.result[0].tolist() == OUTPUTS["classes"].tolist()
        assert scores.result[1].tolist() == OUTPUTS["scores"].tolist()
        assert [r.signature_name for r in (regressed, labels, scores)] == [
            "regress",
            "labels",
            "scores",
        ]
        assert regressed.run_s == labels.run_s == scores.run_s > 0

    play(scenario, servable=servable)
    ((_, inputs, outputs),) = servable.runs
    assert inputs == ["regress/inputs", "labels/inputs", "scores/inputs"]
    assert outputs == ("regress/outputs", "labels/classes", "scores/scores")


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        (tasks(), InvalidArgument, "ModelSpec has no name specified."),
        (tasks(task("", name="")), InvalidArgument, "ModelSpec has no name specified."),
        (tasks(task("", name="x")), NotFound, "Servable not found for request: Latest(x)"),
        (
            tasks(task(""), task("labels", name="")),
            InvalidArgument,
            "Found ModelSpec with an empty model name.",
        ),
        (
            tasks(task(""), task("labels", name="x")),
            InvalidArgument,
            "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
        ),
        (
            tasks(task(""), task("serving_default")),
            InvalidArgument,
            "Duplicate evaluation of signature: serving_default",
        ),
        (
            tasks(task(""), task("s")),
            InvalidArgument,
            "Requested signature not found in model graph: s",
        ),
        (
            tasks(task(""), task("labels", method=PREDICT_METHOD)),
            Unimplemented,
            "Unsupported signature method_name: tensorflow/serving/predict",
        ),
        (
            tasks(task(""), task("labels", method=REGRESS_METHOD), examples=strings()),
            InvalidArgument,
            "No regression outputs found in SignatureDef: "
            + signature_text(inputs="inputs", outputs="classes")
            + 'method_name: "tensorflow/serving/classify"\n',
        ),
        (tasks(task(""), examples=strings()), InvalidArgument, "Input is empty."),
    ],
)
def test_tasks_that_do_not_go_together_run_nothing(
    asked: MultiInferenceRequest, error: type[ServingError], text: str
) -> None:
    servable = FixedServable()

    async def scenario(inference: InferenceService) -> None:
        with pytest.raises(error) as caught:
            await multi_inference(inference, request=asked)
        assert caught.value.message == text

    play(scenario, servable=servable)
    assert servable.runs == []


def test_the_method_names_of_tasks_are_checked_if_told_so() -> None:
    async def scenario(inference: InferenceService) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await multi_inference(inference, request=tasks(task("odd")))
        assert caught.value.message == (
            "Expected classification signature method_name to be tensorflow/serving/classify. "
            "Was: odd"
        )

    play(scenario, servable=FixedServable(), is_method_name_checked=True)
