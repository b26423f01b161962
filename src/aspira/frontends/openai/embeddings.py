"""`/v1/embeddings`: a body to texts, and vectors to the body that answers."""

from base64 import b64encode
from dataclasses import dataclass
from functools import partial

import numpy as np
import orjson

from aspira.contracts.embedding import EmbeddingLimits, TextInput
from aspira.contracts.identity import ModelSpec
from aspira.frontends.counting import Outcome
from aspira.frontends.generation.fields import BadField, Fields
from aspira.frontends.offload import LARGE_BYTES, on_thread
from aspira.frontends.openai.requests import decode_model
from aspira.llm.encoders.model import Embeddings
from aspira.service.embedding import EmbeddingService

# OpenAI's own bound.
_MAX_INPUTS = 2048
_FORMATS = ("float", "base64")
_ALL_TOKENS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class EmbeddingOrder:
    """What one body asks for. `model` is as the client wrote it."""

    model: str
    spec: ModelSpec
    texts: tuple[TextInput, ...]
    limits: EmbeddingLimits
    is_base64: bool


class EmbeddingAnswers:
    """Answers requests for embeddings. Event loop only."""

    def __init__(self, service: EmbeddingService) -> None:
        self._service = service

    async def answer(self, fields: Fields, *, outcome: Outcome) -> bytes:
        """The body that answers; what is known of the request is told to `outcome`.

        Raises:
            ServingError: a field is wrong, or the texts cannot be embedded.
        """
        order = decode_embedding(fields)
        outcome.model_name = order.spec.name
        with self._service.open(order.spec) as session:
            outcome.version = session.servable_id.version
            found = await session.embed(order.texts, limits=order.limits)
        encode = partial(_encode, found, order=order)
        return encode() if found.vectors.nbytes < LARGE_BYTES else await on_thread(encode)


def decode_embedding(fields: Fields) -> EmbeddingOrder:
    """A body of `/v1/embeddings`.

    Raises:
        BadField: a field is missing, or wrong.
    """
    model, spec = decode_model(fields)
    encoding = fields.text("encoding_format", default="float")
    if encoding not in _FORMATS:
        raise BadField(f"encoding_format must be {' or '.join(_FORMATS)}.", param="encoding_format")
    dimensions = fields.integer("dimensions")
    if dimensions is not None and dimensions < 1:
        raise BadField("dimensions must be at least 1.", param="dimensions")
    order = EmbeddingOrder(
        model,
        spec,
        _decode_texts(fields),
        EmbeddingLimits(_decode_cut(fields), dimensions),
        encoding == "base64",
    )
    fields.ignore("user")
    return order


def _decode_texts(fields: Fields) -> tuple[TextInput, ...]:
    value = fields.value("input")
    if isinstance(value, str):
        value = [value]
    elif not isinstance(value, list) or not value:
        raise BadField(
            "input is missing or empty; it must be text, token ids, or an array of either.",
            param="input",
        )
    elif type(value[0]) is int:
        value = [value]
    if len(value) > _MAX_INPUTS:
        raise BadField(
            f"input has {len(value)} texts; send at most {_MAX_INPUTS} in one request.",
            param="input",
        )
    return tuple(_decode_text(one, index=index) for index, one in enumerate(value))


def _decode_text(value: object, *, index: int) -> TextInput:
    if isinstance(value, str):
        if not value:
            raise BadField(f"input[{index}] is an empty text.", param=f"input[{index}]")
        return value
    # Larger numbers are no token ids of any model, and no int32 either.
    if isinstance(value, list) and all(type(one) is int and abs(one) < 2**31 for one in value):
        if value:
            return tuple(value)
        raise BadField(f"input[{index}] has no token ids.", param=f"input[{index}]")
    raise BadField(
        f"input[{index}] must be text or an array of token ids.", param=f"input[{index}]"
    )


def _decode_cut(fields: Fields) -> int | None:
    """How vLLM is asked for truncation: -1 stands for the model's context."""
    name = "truncate_prompt_tokens"
    value = fields.integer(name)
    if value == -1:
        return _ALL_TOKENS
    if value is not None and value < 1:
        raise BadField(f"{name} must be at least 1, or -1 for the model's context.", param=name)
    return value


def _encode(found: Embeddings, *, order: EmbeddingOrder) -> bytes:
    vectors = np.ascontiguousarray(found.vectors, "<f4")
    encoded = [b64encode(one).decode() for one in vectors] if order.is_base64 else list(vectors)
    return orjson.dumps(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": one}
                for index, one in enumerate(encoded)
            ],
            "model": order.model,
            "usage": {"prompt_tokens": found.num_tokens, "total_tokens": found.num_tokens},
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )
