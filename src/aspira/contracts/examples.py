"""Classify and regress: questions put as serialized tf.Examples, answers as classes or values."""

from typing import Generic, NamedTuple, TypeVar

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.identity import ModelSpec, ServableId
from aspira.contracts.tensors import Tensor

CLASSES_OUTPUT = "classes"
SCORES_OUTPUT = "scores"
VALUES_OUTPUT = "outputs"
CLASSIFICATION_OUTPUTS = (CLASSES_OUTPUT, SCORES_OUTPUT)
REGRESSION_OUTPUTS = (VALUES_OUTPUT,)


class ExamplesRequest(NamedTuple):
    """One signature asked about `examples`: a string tensor of shape [n], n possibly 0.

    `deadline` is in seconds of the server's clock; None means none. A higher `priority` waits less.
    """

    spec: ModelSpec
    examples: Tensor
    deadline: float | None = None
    priority: int = 0


class InferenceTask(NamedTuple):
    """One of several questions: a signature, and the method by which it is to be asked."""

    spec: ModelSpec
    method_name: str


class MultiInferenceRequest(NamedTuple):
    """Several signatures of one model asked about the same examples; see `ExamplesRequest`."""

    tasks: tuple[InferenceTask, ...]
    examples: Tensor
    deadline: float | None = None
    priority: int = 0


class Classifications(NamedTuple):
    """Per example its classes: `labels`, an object array of bytes, and `scores`, float32.

    Both are of shape [n, classes]. Where a model tells only one of them, the labels are empty or
    the scores 0.
    """

    labels: Tensor
    scores: Tensor


class Regressions(NamedTuple):
    """Per example its value: float32 of shape [n]."""

    values: Tensor


ExamplesResult = Classifications | Regressions
ResultT_co = TypeVar("ResultT_co", bound=ExamplesResult, covariant=True)


class ExamplesResponse(NamedTuple, Generic[ResultT_co]):
    """The result for each example, who gave it, and how long the run took.

    `run_s` includes the wait in the queue.
    """

    result: ResultT_co
    servable_id: ServableId
    signature_name: str
    run_s: float = 0.0


def check_examples(examples: Tensor) -> None:
    """Refuse to run on nothing.

    Raises:
        InvalidArgument: there are no examples.
    """
    if not len(examples):
        raise InvalidArgument("Input is empty.")
