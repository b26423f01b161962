"""`/tokenize` and `/detokenize`, as vLLM has them: what a text is to a model, and back."""

from collections.abc import Sequence

import orjson

from aspira.contracts.generation import TokenId
from aspira.contracts.identity import ModelSpec
from aspira.frontends.generation.fields import BadField, Fields
from aspira.frontends.generation.messages import decode_messages, decode_tools
from aspira.frontends.generation.options import decode_tokens
from aspira.frontends.openai.requests import decode_model
from aspira.llm.model_text import ChatPrompt, Prompt, TextPrompt
from aspira.service.generation import GenerationSession


def decode_tokenize(fields: Fields) -> tuple[ModelSpec, Prompt]:
    """The model, and the text or the messages.

    Raises:
        BadField: a field is missing, or wrong.
    """
    _, spec = decode_model(fields)
    if fields.has("messages"):
        tools = decode_tools(fields.list("tools"))
        adds_answer = fields.flag("add_generation_prompt", default=True)
        messages = decode_messages(fields.list("messages"))
        return spec, ChatPrompt(messages, tools, adds_answer=adds_answer)
    text = fields.text("prompt")
    if text is None:
        raise BadField("prompt or messages is missing.", param="prompt")
    return spec, TextPrompt(text, fields.flag("add_special_tokens", default=True))


async def tokenize(session: GenerationSession, *, prompt: Prompt) -> bytes:
    """The body that answers."""
    tokens = await session.model.encode(prompt)
    return orjson.dumps(
        {"count": len(tokens), "max_model_len": session.model.max_context, "tokens": tokens}
    )


def decode_detokenize(fields: Fields) -> tuple[ModelSpec, tuple[TokenId, ...]]:
    """The model, and the tokens.

    Raises:
        BadField: a field is missing, or wrong.
    """
    _, spec = decode_model(fields)
    tokens = decode_tokens(fields.list("tokens"), param="tokens")
    if not 0 <= min(tokens, default=0) <= max(tokens, default=0) < 2**31:
        raise BadField("tokens must have token ids, which are integers from 0.", param="tokens")
    return spec, tokens


async def detokenize(session: GenerationSession, *, tokens: Sequence[TokenId]) -> bytes:
    """The body that answers. Ids that the model does not have are no text."""
    return orjson.dumps({"prompt": await session.model.decode(tokens)})
