"""The tags between which a model thinks before it answers, if its vocabulary has them."""

from collections.abc import Sequence
from typing import NamedTuple

from aspira.contracts.generation import TokenId
from aspira.llm.vocabulary import Vocabulary

_BEGIN, _END = "<think>", "</think>"


class ReasoningTags(NamedTuple):
    """The tags as text and as tokens."""

    begin: str
    end: str
    begin_id: TokenId
    end_id: TokenId

    def is_open(self, tokens: Sequence[TokenId]) -> bool:
        """Whether a prompt ends within the tags: what comes next are thoughts."""
        for token_id in reversed(tokens):
            if token_id in (self.begin_id, self.end_id):
                return token_id == self.begin_id
        return False


def find_reasoning_tags(vocabulary: Vocabulary) -> ReasoningTags | None:
    """The tags of a model that was taught them: each is one token, and visible in texts."""
    ids = [vocabulary.encode(tag) for tag in (_BEGIN, _END)]
    if any(len(found) != 1 or vocabulary.token_bytes(found[0]) is None for found in ids):
        return None
    (begin_id,), (end_id,) = ids
    return ReasoningTags(_BEGIN, _END, begin_id, end_id)
