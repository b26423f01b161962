"""What the engine needs to know of a model's tokens; the text side of a model implements it."""

from collections.abc import Sequence
from typing import Protocol


class Vocabulary(Protocol):
    """Used from several threads at once. Ids that it does not know have no text."""

    @property
    def vocab_size(self) -> int:
        """Ids are below this; the model's logits may have more."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens by which the model says that it is done."""
        ...

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, nothing added. Only grammars ask for it."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of tokens without the special ones; U+FFFD for bytes that are no character."""
        ...

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes that a token stands for inside a text; None for a special token."""
        ...
