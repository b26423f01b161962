"""The tokenizer rebuilt from a GGUF file, against transformers' reading of the same file.

`smollm2_golden.json` holds what it encodes (see `test_openvino_runner.py`). transformers does not
heed `tokenizer.ggml.pre`, so digits that follow white space or each other in ways that the model's
own tokenizer cuts differently are tested apart, against what that one is documented to do.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter

from aspira.contracts.errors import DataLoss, InvalidArgument, NotFound, Unimplemented
from aspira.llm.detokenizer import Detokenizer
from aspira.llm.model_files import ModelFiles, ModelKind, find_model_files
from aspira.llm.special_tokens import read_special_tokens
from aspira.llm.tokenizer import Tokenizer, load_tokenizer
from aspira.llm.vocabulary import Vocabulary
from language_models import smollm2_directory

GOLDEN = json.loads((Path(__file__).parent / "smollm2_golden.json").read_text())


def load(files: ModelFiles | None, *, max_tokens: int = 8192) -> Tokenizer:
    assert files is not None
    return load_tokenizer(files, special_tokens=read_special_tokens(files), max_tokens=max_tokens)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load(find_model_files(smollm2_directory()))


@pytest.mark.parametrize(("text", "ids"), GOLDEN["texts"])
def test_text_becomes_the_ids_of_transformers(
    tokenizer: Tokenizer, text: str, ids: list[int]
) -> None:
    assert tokenizer.encode(text, adds_special=False) == ids
    assert tokenizer.decode(ids, skips_special=False) == text


def test_every_digit_stands_alone(tokenizer: Tokenizer) -> None:
    pieces = [
        tokenizer.decode([token], skips_special=False)
        for token in tokenizer.encode("a 2024\n\n7 x", adds_special=False)
    ]
    assert pieces == ["a", " ", "2", "0", "2", "4", "\n\n", "7", " x"]


def test_special_tokens_are_skipped_on_request(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>user<|im_end|>", adds_special=False)
    assert (ids[0], ids[-1]) == (1, 2)
    assert tokenizer.decode(ids, skips_special=True) == "user"
    assert tokenizer.decode(ids, skips_special=False) == "<|im_start|>user<|im_end|>"


def test_half_a_character_is_marked(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("🦆", adds_special=False)
    assert len(ids) > 1
    assert tokenizer.decode(ids[:-1], skips_special=False).endswith("\N{REPLACEMENT CHARACTER}")
    assert tokenizer.decode(ids, skips_special=False) == "🦆"


@pytest.mark.parametrize("text", [text for text, _ in GOLDEN["texts"]])
def test_the_bytes_of_tokens_are_those_of_the_text(tokenizer: Tokenizer, text: str) -> None:
    pieces = [tokenizer.token_bytes(token) for token in tokenizer.encode(text)]
    plain = text.replace("<|im_start|>", "").replace("<|im_end|>", "").replace("<|endoftext|>", "")
    assert b"".join(piece or b"" for piece in pieces) == plain.encode()


def test_only_special_tokens_and_none_have_no_bytes(tokenizer: Tokenizer) -> None:
    without = [token for token in range(49160) if tokenizer.token_bytes(token) is None]
    assert without == [*range(17), *range(49152, 49160)]


def test_it_is_the_vocabulary_of_an_engine(tokenizer: Tokenizer) -> None:
    vocabulary: Vocabulary = tokenizer
    assert vocabulary.eos_token_ids == {2}
    detokenizer = Detokenizer(vocabulary)
    text = "Ducks 🦆 are naïve 日本 <|im_end|>"
    pieces = [detokenizer.push(token) for token in vocabulary.encode(text)]
    assert "".join(pieces) + detokenizer.flush() == "Ducks 🦆 are naïve 日本 "


def test_tokens_by_name(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 49152
    assert tokenizer.token_id("<|im_end|>") == 2
    assert tokenizer.token_id("<|no such|>") is None


def test_text_that_cannot_fit_is_refused_before_it_is_encoded() -> None:
    short = load(find_model_files(smollm2_directory()), max_tokens=2)
    short.encode("x" * short.max_characters, adds_special=False)
    with pytest.raises(InvalidArgument, match="cannot fit into the model's context of 2 tokens"):
        short.encode("x" * (short.max_characters + 1), adds_special=False)


def test_lone_surrogates_are_no_text(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidArgument, match="surrogates"):
        tokenizer.encode("\ud800", adds_special=False)


BYTES = [chr(33 + index) for index in range(94)] + ["Ġ", "Ċ"]


def write_tokenizer(path: Path, **fields: Any) -> ModelFiles:
    values: dict[str, Any] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*BYTES, "Ġt", "1", "12", "123", "<s>", "<user>"],
        "merges": ["Ġ t", "1 2", "12 3"],
        "token_type": [1] * (len(BYTES) + 4) + [3, 4],
        "bos_token_id": len(BYTES) + 4,
        **fields,
    }
    writer = GGUFWriter(path, "llama")
    adders = {str: writer.add_string, int: writer.add_uint32, bool: writer.add_bool}
    for name, value in values.items():
        adder: Any = adders.get(type(value), writer.add_array)
        adder(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelFiles(path.parent, ModelKind.GGUF, path)


def pieces_of(files: ModelFiles, text: str, *, adds_special: bool = False) -> list[str]:
    tokenizer = load(files)
    ids = tokenizer.encode(text, adds_special=adds_special)
    return [tokenizer.decode([token], skips_special=False) for token in ids]


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", [" ", "123", "4"]),
        ("smollm", [" ", "1", "2", "3", "4"]),
        ("llama-bpe", [" ", "123", "4"]),
        ("qwen2", [" ", "1", "2", "3", "4"]),
    ],
)
def test_families_cut_digits_their_own_way(tmp_path: Path, pre: str, pieces: list[str]) -> None:
    assert pieces_of(write_tokenizer(tmp_path / "m.gguf", pre=pre), " 1234") == pieces


def test_a_llama_text_begins_with_its_token(tmp_path: Path) -> None:
    files = write_tokenizer(tmp_path / "m.gguf", pre="llama-bpe")
    assert pieces_of(files, "a", adds_special=True) == ["<s>", "a"]
    assert pieces_of(files, "a") == ["a"]


@pytest.mark.parametrize(("adds_bos", "pieces"), [(True, ["<s>", "a"]), (False, ["a"])])
def test_the_file_says_whether_texts_begin_so(
    tmp_path: Path, *, adds_bos: bool, pieces: list[str]
) -> None:
    files = write_tokenizer(tmp_path / "m.gguf", add_bos_token=adds_bos)
    assert pieces_of(files, "a", adds_special=True) == pieces


def test_tokens_of_a_user_are_whole_but_not_special(tmp_path: Path) -> None:
    tokenizer = load(write_tokenizer(tmp_path / "m.gguf"))
    ids = tokenizer.encode("<user>a<s>", adds_special=False)
    assert tokenizer.decode(ids, skips_special=True) == "<user>a"


def test_composed_and_decomposed_text_is_one_to_qwen(tmp_path: Path) -> None:
    tokens = [*BYTES, "Ã", "©", "Ã©", "Ì", "ģ"]
    files = write_tokenizer(
        tmp_path / "m.gguf",
        pre="qwen2",
        tokens=tokens,
        merges=["Ã ©"],
        token_type=[1] * len(tokens),
    )
    tokenizer = load(files)
    composed = tokenizer.encode("é", adds_special=False)
    assert tokenizer.encode("e\u0301", adds_special=False) == composed == [tokens.index("Ã©")]


@pytest.mark.parametrize("fields", [{"model": "llama"}, {"model": "bert"}, {"pre": "tekken"}])
def test_other_tokenizers_need_their_json(tmp_path: Path, fields: dict[str, str]) -> None:
    with pytest.raises(Unimplemented, match=r"put the model's tokenizer\.json beside the file"):
        load(write_tokenizer(tmp_path / "m.gguf", **fields))


@pytest.mark.parametrize(
    "fields", [{"merges": ["zz yy"]}, {"bos_token_id": 9999, "add_bos_token": True}]
)
def test_a_damaged_vocabulary(tmp_path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(DataLoss):
        load(write_tokenizer(tmp_path / "m.gguf", **fields))


def test_a_json_beside_the_file_comes_first(tmp_path: Path) -> None:
    files = write_tokenizer(tmp_path / "m.gguf", model="llama")
    words = {"type": "WordLevel", "vocab": {"hello": 0, "?": 1}, "unk_token": "?"}
    whole = {
        "model": words,
        "truncation": {
            "max_length": 1,
            "strategy": "LongestFirst",
            "stride": 0,
            "direction": "Right",
        },
        "pre_tokenizer": {"type": "Whitespace"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    assert load(files).encode("hello you hello", adds_special=False) == [0, 1, 0]


def test_pieces_of_bytes_and_spaces(tmp_path: Path) -> None:
    files = write_tokenizer(tmp_path / "m.gguf", model="llama")
    pieces = {"▁a": 0, "<0xE2>": 1, "ü": 2, "<s>": 3}
    special = {"id": 3, "content": "<s>", "special": True, "normalized": False}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    whole = {
        "added_tokens": [special | flags],
        "model": {"type": "BPE", "vocab": pieces, "merges": [], "byte_fallback": True},
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    tokenizer = load(files)
    found = [tokenizer.token_bytes(token) for token in range(5)]
    assert found == [b" a", b"\xe2", "ü".encode(), None, None]


def test_a_json_that_is_no_tokenizer(tmp_path: Path) -> None:
    files = ModelFiles(tmp_path, ModelKind.HUGGING_FACE, tmp_path)
    with pytest.raises(NotFound, match=r"tokenizer\.json"):
        load(files)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataLoss, match="not a tokenizer"):
        load(files)
