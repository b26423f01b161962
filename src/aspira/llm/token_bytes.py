"""The bytes that a token stands for, in each of the two ways that vocabularies write them."""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


def _byte_of_character() -> Mapping[str, int]:
    """GPT-2's alphabet: printable Latin-1 characters are themselves, the rest begin at U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    shifted = {chr(0x100 + index): byte for index, byte in enumerate(others)}
    return MappingProxyType({chr(byte): byte for byte in printable} | shifted)


_BYTE_OF_CHARACTER = _byte_of_character()


class TokenBytes:
    """Of one tokenizer of the library `tokenizers`."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._added = backend.get_added_tokens_decoder()
        state = json.loads(backend.decoder.__getstate__()) if backend.decoder else {}
        kinds = {part.get("type") for part in [state, *state.get("decoders", ())]}
        self._is_byte_level = "ByteLevel" in kinds

    def find(self, token_id: int) -> bytes | None:
        """None for a special token, and for an id that is none."""
        added = self._added.get(token_id)
        if added is not None:
            return None if added.special else str(added.content).encode()
        piece = self._backend.id_to_token(token_id)
        return None if piece is None else self._decode(piece)

    def _decode(self, piece: str) -> bytes:
        if self._is_byte_level:
            try:
                return bytes(_BYTE_OF_CHARACTER[character] for character in piece)
            except KeyError:
                # As the library decodes: what is not of that alphabet stands for itself.
                return piece.encode()
        byte = _BYTE_PIECE.fullmatch(piece)
        return bytes([int(byte[1], 16)]) if byte else piece.replace(_SPACE, " ").encode()
