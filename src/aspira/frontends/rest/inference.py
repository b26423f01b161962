"""The inference verbs of REST, each with what answers it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from aspira.contracts.identity import ModelSpec
from aspira.frontends.rest.examples import answer_classify, answer_regress
from aspira.frontends.rest.messages import HttpRequest, InferenceAnswer
from aspira.frontends.rest.predict import answer_predict
from aspira.service.inference import InferenceService


class AnswerInference(Protocol):
    """Decodes a body, calls the service once, encodes. Raises ServingError."""

    async def __call__(
        self, inference: InferenceService, *, spec: ModelSpec, request: HttpRequest
    ) -> InferenceAnswer: ...


INFERENCE_VERBS: Mapping[str, AnswerInference] = MappingProxyType(
    {"predict": answer_predict, "classify": answer_classify, "regress": answer_regress}
)
