"""The bytes of tokens: those of a text's tokens are the text's, in both ways of spelling."""

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from aspira.llm.model_files import find_model_files
from aspira.llm.model_text import ChatPrompt, TextPrompt, TokenizerText, load_text
from aspira.llm.token_spelling import (
    byte_of_character,
    spelled_by_characters,
    spelled_by_sentencepiece,
)
from aspira.llm.tokenizer import Tokenizer
from aspira.llm.tokenizer_vocabulary import TokenizerVocabulary
from language_models import smollm2_directory

TEXTS = ["The capital of France is", " def f(x):\n\treturn x ** 2", "naïve 日本語 🙂 \u00ad", ""]


@pytest.fixture(scope="module")
def smollm2() -> TokenizerText:
    files = find_model_files(smollm2_directory())
    assert files is not None
    return load_text(files, max_tokens=8192)


@pytest.mark.parametrize("text", TEXTS)
def test_the_bytes_of_a_texts_tokens_are_its_own(smollm2: TokenizerText, text: str) -> None:
    vocabulary = smollm2.vocabulary
    pieces = [vocabulary.token_bytes(token) for token in vocabulary.encode(text)]
    assert None not in pieces
    assert b"".join(piece for piece in pieces if piece) == text.encode()


def test_special_tokens_are_no_text(smollm2: TokenizerText) -> None:
    tokens = smollm2.encode(ChatPrompt([{"role": "user", "content": "hi"}]))
    vocabulary = smollm2.vocabulary
    assert None in [vocabulary.token_bytes(token) for token in tokens]
    assert "<|im_start|>" in smollm2.decode(tokens)
    assert "<|im_start|>" not in vocabulary.decode(tokens)
    assert vocabulary.token_bytes(vocabulary.vocab_size + 5) is None
    assert vocabulary.eos_token_ids


def test_text_and_tokens_go_round(smollm2: TokenizerText) -> None:
    tokens = smollm2.encode(TextPrompt("Hello there"))
    assert smollm2.decode(tokens) == "Hello there"
    assert smollm2.encode(tokens) == tokens


def test_every_byte_is_spelled_by_one_character() -> None:
    table = byte_of_character()
    assert sorted(table.values()) == list(range(256))
    assert spelled_by_characters("Ġa", table=table) == b" a"


@pytest.mark.parametrize(
    ("token", "spelled"),
    [("<0xE2>", b"\xe2"), ("\u2581the", b" the"), ("<0x1>", b"<0x1>"), ("é", "é".encode())],
)
def test_sentencepieces_spelling(token: str, spelled: bytes) -> None:
    assert spelled_by_sentencepiece(token) == spelled


def test_the_spelling_follows_the_decoder() -> None:
    backend = Backend(models.BPE({"\u2581a": 0, "<0x0A>": 1}, [], unk_token=None))
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback()])
    tokenizer = Tokenizer(backend, max_tokens=8)
    vocabulary = TokenizerVocabulary(tokenizer, eos_token_ids=frozenset())
    assert not tokenizer.is_byte_level
    assert [vocabulary.token_bytes(token) for token in (0, 1, 2)] == [b" a", b"\n", None]
