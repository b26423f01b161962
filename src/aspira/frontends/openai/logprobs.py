"""Log probabilities as the two APIs write them. Tokens that are no text, as ends are, have none."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aspira.contracts.generation import TokenId, TokenLogprob

DescribeToken = Callable[[TokenId], tuple[str, bytes | None]]
"""A token's text and bytes; None for the bytes of a special token."""


def encode_chat(
    logprobs: Sequence[TokenLogprob], *, describe: DescribeToken
) -> dict[str, Any] | None:
    """The `logprobs` of a chat choice; None if there is nothing to tell."""
    content = [
        {
            **_entry(logprob.token_id, value=logprob.logprob, describe=describe),
            "top_logprobs": [
                _entry(token_id, value=value, describe=describe)
                for token_id, value in logprob.alternatives
            ],
        }
        for logprob in _of_text(logprobs, describe=describe)
    ]
    return {"content": content, "refusal": None} if content else None


def encode_completion(
    logprobs: Sequence[TokenLogprob], *, describe: DescribeToken, offset: int
) -> tuple[dict[str, Any], int]:
    """The `logprobs` of a completion choice whose text goes on at `offset`; and where it ends.

    The token that was drawn is among the top ones, as OpenAI has it: one more if it was unlikely.
    """
    tokens, offsets, tops = [], [], []
    found = list(_of_text(logprobs, describe=describe))
    for logprob in found:
        text, _ = describe(logprob.token_id)
        tokens.append(text)
        offsets.append(offset)
        offset += len(text)
        top = {describe(token_id)[0]: value for token_id, value in logprob.alternatives}
        top.setdefault(text, logprob.logprob)
        tops.append(top)
    encoded = {
        "tokens": tokens,
        "token_logprobs": [logprob.logprob for logprob in found],
        "top_logprobs": tops,
        "text_offset": offsets,
    }
    return encoded, offset


def _of_text(
    logprobs: Iterable[TokenLogprob], *, describe: DescribeToken
) -> Iterable[TokenLogprob]:
    return (logprob for logprob in logprobs if describe(logprob.token_id)[1] is not None)


def _entry(token_id: TokenId, *, value: float, describe: DescribeToken) -> dict[str, Any]:
    text, spelled = describe(token_id)
    return {
        "token": text,
        "logprob": value,
        "bytes": None if spelled is None else list(spelled),
    }
