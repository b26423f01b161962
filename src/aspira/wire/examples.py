"""Classify, Regress and MultiInference messages as contracts and back."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from aspira.contracts.examples import (
    Classifications,
    ExamplesRequest,
    ExamplesResponse,
    ExamplesResult,
    InferenceTask,
    MultiInferenceRequest,
    Regressions,
)
from aspira.contracts.tensors import Tensor
from aspira.wire.prediction import decode_model_spec, decode_spec_fields, encode_model_spec

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any


def decode_examples_request(
    message: Message, *, deadline: float | None, priority: int = 0
) -> ExamplesRequest:
    """A ClassificationRequest or RegressionRequest message as a request.

    Raises:
        InvalidArgument: no model.
    """
    spec = decode_model_spec(message)
    return ExamplesRequest(spec, decode_examples(message.input), deadline, priority)


def decode_multi_inference_request(
    message: Message, *, deadline: float | None, priority: int = 0
) -> MultiInferenceRequest:
    """A MultiInferenceRequest message as a request, whether or not its tasks name models."""
    tasks = tuple(
        InferenceTask(decode_spec_fields(task.model_spec), task.method_name)
        for task in message.tasks
    )
    return MultiInferenceRequest(tasks, decode_examples(message.input), deadline, priority)


def decode_examples(message: Message) -> Tensor:
    """An Input message as serialized examples, shape [n]; there may be none."""
    kind = message.WhichOneof("kind")
    if kind is None:
        return serialize_examples(())
    listed = getattr(message, kind)
    context = listed.context if kind == "example_list_with_context" else None
    return serialize_examples(listed.examples, context=context)


def serialize_examples(examples: Sequence[Message], *, context: Message | None = None) -> Tensor:
    """Example messages as one string tensor, shape [n], each with the context put before it."""
    prefix = b"" if context is None else context.SerializeToString()
    serialized = np.empty(len(examples), dtype=object)
    # Protobuf merges what is concatenated, so the example's own features win over the context's.
    serialized[:] = [prefix + example.SerializeToString() for example in examples]
    return serialized


def encode_examples_response(response: ExamplesResponse[ExamplesResult], *, into: Message) -> None:
    """Fill an empty ClassificationResponse or RegressionResponse message."""
    _encode_spec(response, into=into.model_spec)
    _encode_result(response.result, into=into.result)


def encode_multi_inference_response(
    responses: Iterable[ExamplesResponse[ExamplesResult]], *, into: Message
) -> None:
    """Fill an empty MultiInferenceResponse message."""
    for response in responses:
        entry = into.results.add()
        _encode_spec(response, into=entry.model_spec)
        if isinstance(response.result, Classifications):
            _encode_result(response.result, into=entry.classification_result)
        else:
            _encode_result(response.result, into=entry.regression_result)


def _encode_spec(response: ExamplesResponse[ExamplesResult], *, into: Message) -> None:
    encode_model_spec(response.servable_id, into=into)
    into.signature_name = response.signature_name


def _encode_result(result: ExamplesResult, *, into: Message) -> None:
    if isinstance(result, Regressions):
        for value in result.values.tolist():
            into.regressions.add(value=value)
    else:
        _encode_classifications(result, into=into)


def _encode_classifications(result: Classifications, *, into: Message) -> None:
    for labels, scores in zip(result.labels.tolist(), result.scores.tolist(), strict=True):
        classes = into.classifications.add().classes
        for label, score in zip(labels, scores, strict=True):
            # The field is text, and a client could not parse anything else in it.
            classes.add(label=label.decode("utf-8", "replace"), score=score)
