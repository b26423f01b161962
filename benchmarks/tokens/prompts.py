"""Prompts of any number of tokens: the same in each run, none like another where it begins.

They are made of words that are one token each, with the space before them, so that a prompt is the
same number of tokens whether it travels as text or as token ids.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_WORD_BEGIN = "Ġ"
_MIN_LETTERS = 4


class Prompt(NamedTuple):
    """The same as tokens and as text."""

    token_ids: tuple[int, ...]
    text: str


class PromptMaker:
    """Draws words of one model's vocabulary."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._words = sorted(
            (token.removeprefix(_WORD_BEGIN), index)
            for token, index in vocabulary.items()
            if token.startswith(_WORD_BEGIN) and _is_word(token.removeprefix(_WORD_BEGIN))
        )

    def make(
        self, count: int, *, num_tokens: int, seed: int, shared: Sequence[int] = ()
    ) -> list[Prompt]:
        """Prompts that begin with the words of these places, and have nothing else in common."""
        rng = np.random.default_rng(seed)
        own = rng.integers(0, len(self._words), (count, num_tokens - len(shared)))
        return [self._join([*shared, *row]) for row in own.tolist()]

    def places(self, count: int, *, seed: int) -> list[int]:
        """Words, by their places in the list, for prompts to share."""
        rng = np.random.default_rng(seed)
        places: list[int] = rng.integers(0, len(self._words), count).tolist()
        return places

    def _join(self, places: Sequence[int]) -> Prompt:
        words = [self._words[place] for place in places]
        text = "".join(f" {word}" for word, _ in words)
        return Prompt(tuple(index for _, index in words), text)


def _is_word(text: str) -> bool:
    return len(text) >= _MIN_LETTERS and text.isascii() and text.isalpha() and text.islower()
