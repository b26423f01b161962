"""The detokenizer over Hugging Face tokenizers, of the two kinds that language models have."""

from collections.abc import Sequence

import pytest

pytest.importorskip("tokenizers")

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from aspira.llm.detokenizer import Detokenizer
from aspira.llm.token_bytes import TokenBytes

TEXTS = (
    "Hello world, hello again. The quick brown fox.",
    "naïve café — déjà vu, Ünïcödé",
    "日本語のテキスト と 한국어 and русский",
    "emoji 🙂👩‍👩‍👧‍👦🏳️‍🌈 in a row 🇫🇷🇩🇪",
    "  leading and trailing   \n\n\ttabs\r\n",
    "",
)


class Wrapped:
    """As the engine wants it."""

    eos_token_ids: frozenset[int] = frozenset()

    def __init__(self, tokenizer: HuggingFaceTokenizer) -> None:
        self._tokenizer = tokenizer
        self.vocab_size = tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids)))

    def token_bytes(self, token_id: int) -> bytes | None:
        return TokenBytes(self._tokenizer).find(token_id)


def byte_level() -> Wrapped:
    """As GPT-2, Llama 3 and SmolLM have it. Rare characters are several tokens."""
    tokenizer = HuggingFaceTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return Wrapped(tokenizer)


def byte_fallback() -> Wrapped:
    """As Llama 2 and Mistral have it: characters out of the vocabulary are bytes, `▁` is a space
    that is stripped from the beginning of whatever is decoded."""
    alphabet = sorted(set("Helo wrdaginThquckbfx.,▁"))
    pieces = [f"<0x{byte:02X}>" for byte in range(256)] + alphabet
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = HuggingFaceTokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return Wrapped(tokenizer)


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback()], ids=["level", "fallback"])
@pytest.mark.parametrize("text", TEXTS)
def test_the_stream_adds_up_and_has_no_half_characters(tokenizer: Wrapped, text: str) -> None:
    tokens = tokenizer.encode(text)
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(token) for token in tokens]
    assert detokenizer.flush() == ""
    assert "".join(pieces) == tokenizer.decode(tokens)
    assert "\ufffd" not in "".join(pieces)


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback()], ids=["level", "fallback"])
def test_a_continuation_fits_to_its_prompt(tokenizer: Wrapped) -> None:
    for prompt_text in ("Hello world,", "dear 🙂🙂", "日本語é", "👩‍👩‍👧‍👦"):
        for text in (" the quick fox.", "日本語", "🙂 a"):
            tokens = tokenizer.encode(prompt_text)
            prompt, rest = tokens, tokenizer.encode(prompt_text + text)[len(tokens) :]
            detokenizer = Detokenizer(tokenizer, prompt=prompt)
            streamed = "".join(map(detokenizer.push, rest)) + detokenizer.flush()
            assert streamed == text


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback()], ids=["level", "fallback"])
def test_a_continuation_fits_wherever_its_prompt_ends(tokenizer: Wrapped) -> None:
    tokens = tokenizer.encode("Hello world, the quick fox.")
    for cut in range(1, len(tokens)):
        prompt, rest = tokens[:cut], tokens[cut:]
        detokenizer = Detokenizer(tokenizer, prompt=prompt)
        streamed = "".join(map(detokenizer.push, rest)) + detokenizer.flush()
        assert tokenizer.decode(prompt) + streamed == tokenizer.decode(tokens)


def test_a_token_out_of_the_alphabet_stands_for_itself() -> None:
    backend = HuggingFaceTokenizer(models.BPE({"é": 0, "日": 1}, []))
    backend.decoder = decoders.ByteLevel()
    spelled = [TokenBytes(backend).find(token_id) for token_id in (0, 1)]
    assert spelled == [b"\xe9", "日".encode()]
    assert [backend.decode([token_id]) for token_id in (0, 1)] == ["\ufffd", "日"]
