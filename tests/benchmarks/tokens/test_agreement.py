"""How much of the reference's text an engine said before it said something else."""

from collections.abc import Callable
from types import ModuleType

import pytest


class Spelling:
    """A tokenizer whose tokens are characters."""

    def encode(self, text: str) -> "Spelling":
        self.ids = [ord(letter) for letter in text]
        return self

    def decode(self, token_ids: list[int]) -> str:
        return "".join(chr(65 + token_id % 26) for token_id in token_ids)


def test_shares_of_the_references(import_benchmark: Callable[[str], ModuleType]) -> None:
    texts = import_benchmark("tokens.agreement").ReferenceTexts(Spelling())
    said = [text + "more" for text in texts._texts]
    found = texts.compare(said)
    assert (found.num_equal, found.num_texts, found.mean_share) == (15, 15, 1.0)
    said[0] = said[0][:16] + "?" + said[0][17:]
    found = texts.compare(said)
    assert (found.num_equal, found.mean_share) == (14, pytest.approx(14.5 / 15))
