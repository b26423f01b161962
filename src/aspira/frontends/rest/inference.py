"""The inference verbs of REST, each with what answers it."""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from aspira.contracts.identity import ModelSpec
from aspira.frontends.rest.examples import answer_classify, answer_regress
from aspira.frontends.rest.json_tensors import decode_inputs
from aspira.frontends.rest.json_wrapping import decode_wrapped_inputs
from aspira.frontends.rest.messages import HttpRequest, InferenceAnswer
from aspira.frontends.rest.options import RestOptions
from aspira.frontends.rest.predict import answer_predict
from aspira.service.inference import InferenceService


class AnswerInference(Protocol):
    """Decodes a body, calls the service once, encodes. Raises ServingError."""

    async def __call__(
        self, inference: InferenceService, *, spec: ModelSpec, request: HttpRequest
    ) -> InferenceAnswer: ...


def inference_verbs(options: RestOptions) -> Mapping[str, AnswerInference]:
    """What answers each verb."""
    decode = decode_inputs if options.is_narrow_integer_checked else decode_wrapped_inputs
    return {
        "predict": partial(answer_predict, decode=decode),
        "classify": answer_classify,
        "regress": answer_regress,
    }
