"""A model's tokenizer as the engine's vocabulary."""

from collections.abc import Sequence

from aspira.llm.token_spelling import (
    byte_of_character,
    spelled_by_characters,
    spelled_by_sentencepiece,
)
from aspira.llm.tokenizer import Tokenizer


class TokenizerVocabulary:
    """See `Vocabulary`."""

    def __init__(self, tokenizer: Tokenizer, *, eos_token_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._eos_token_ids = eos_token_ids
        self._added = tokenizer.added_tokens()
        self._table = byte_of_character() if tokenizer.is_byte_level else None

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.vocab_size

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self._eos_token_ids

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, adds_special=False)

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skips_special=True)

    def token_bytes(self, token_id: int) -> bytes | None:
        if self._added.get(token_id, False) or token_id in self._eos_token_ids:
            return None
        token = self._tokenizer.token(token_id)
        if token is None:
            return None
        if token_id in self._added:
            return token.encode()
        if self._table is None:
            return spelled_by_sentencepiece(token)
        return spelled_by_characters(token, table=self._table)
