"""Tokenizers small enough to see through: one token a byte, as byte-level vocabularies end up."""

from collections.abc import Sequence

END_TOKEN = 256


class ByteTokenizer:
    """Token i is byte i; token 256 ends a text and has none."""

    @property
    def vocab_size(self) -> int:
        return END_TOKEN + 1

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset({END_TOKEN})

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(t for t in token_ids if t < END_TOKEN).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes | None:
        return bytes([token_id]) if token_id < END_TOKEN else None
