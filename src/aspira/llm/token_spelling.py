"""The bytes that a vocabulary's tokens stand for, by its way of spelling them."""

import re

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"


def byte_of_character() -> dict[str, int]:
    """GPT-2's table: printable characters stand for themselves, the others follow from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in set(printable)]
    shifted = {chr(0x100 + index): byte for index, byte in enumerate(others)}
    return {**{chr(byte): byte for byte in printable}, **shifted}


def spelled_by_characters(token: str, *, table: dict[str, int]) -> bytes:
    """The bytes of a byte-level token. What is not in the table stands for itself."""
    parts = [
        bytes([table[character]]) if character in table else character.encode("utf-8", "replace")
        for character in token
    ]
    return b"".join(parts)


def spelled_by_sentencepiece(token: str) -> bytes:
    """The bytes of a token in SentencePiece's spelling: `<0xE2>` is a byte, U+2581 a space."""
    match = _BYTE_TOKEN.fullmatch(token)
    if match is not None:
        return bytes([int(match[1], 16)])
    return token.replace(_SPACE, " ").encode("utf-8", "replace")
