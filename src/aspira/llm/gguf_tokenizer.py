"""Rebuilds a byte-level BPE tokenizer from the metadata of a GGUF file."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from aspira.contracts.errors import DataLoss, Unimplemented
from aspira.llm.weights.gguf_file import GgufFile

# The library is made without types.
TokenizersBackend = Any

_CONTROL, _USER_DEFINED = 3, 4


@dataclass(frozen=True, slots=True)
class _Splitting:
    """How text is cut before merges apply. llama.cpp names these, `tokenizer.ggml.pre`."""

    pattern: str = ""
    """Empty: GPT-2's."""

    splits_digits: bool = False
    """Every digit stands alone."""

    ignores_merges: bool = False
    """A piece that is a token as a whole is not put together from merges."""

    is_nfc: bool = False
    """Text is composed first."""


def _cl100k(numbers: str) -> str:
    """OpenAI's pattern of that name, as Llama 3 and Qwen use it."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + numbers +
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )  # fmt: skip


_SPLITTINGS: Mapping[str, _Splitting] = MappingProxyType(
    {
        "gpt-2": _Splitting(),
        "default": _Splitting(),
        "smollm": _Splitting(splits_digits=True),
        "llama-bpe": _Splitting(_cl100k(r"\p{N}{1,3}"), ignores_merges=True),
        "smaug-bpe": _Splitting(_cl100k(r"\p{N}{1,3}")),
        "qwen2": _Splitting(_cl100k(r"\p{N}"), is_nfc=True),
        "deepseek-r1-qwen": _Splitting(_cl100k(r"\p{N}")),
    }
)


def build_tokenizer(file: GgufFile) -> TokenizersBackend:
    """A tokenizer of the library `tokenizers`.

    Raises:
        Unimplemented: the file has another kind of tokenizer.
        DataLoss: its vocabulary is damaged.
    """
    import tokenizers
    from tokenizers import decoders, models, normalizers

    fields = file.metadata
    splitting = _find_splitting(file)
    try:
        tokens: list[str] = fields["tokenizer.ggml.tokens"]
        vocabulary = {token: index for index, token in enumerate(tokens)}
        merges = [_pair(merge) for merge in fields["tokenizer.ggml.merges"]]
        model = models.BPE(vocabulary, merges, ignore_merges=splitting.ignores_merges)
    except Exception as error:
        raise DataLoss(f"{file.path}: its tokenizer cannot be rebuilt: {error!r}") from error
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = _make_pre_tokenizer(splitting)
    backend.decoder = decoders.ByteLevel()
    if splitting.is_nfc:
        backend.normalizer = normalizers.NFC()
    _add_tokens(backend, tokens=tokens, kinds=fields.get("tokenizer.ggml.token_type", []))
    _add_beginning(backend, tokens=tokens, file=file)
    return backend


def _find_splitting(file: GgufFile) -> _Splitting:
    model = file.metadata.get("tokenizer.ggml.model")
    name = file.metadata.get("tokenizer.ggml.pre", "default")
    if model != "gpt2" or name not in _SPLITTINGS:
        raise Unimplemented(
            f"{file.path} has the tokenizer {model!r} ({name}), and only byte-level BPE "
            f"({', '.join(_SPLITTINGS)}) is rebuilt from a GGUF file; put the model's "
            "tokenizer.json beside the file"
        )
    return _SPLITTINGS[name]


def _pair(merge: str) -> tuple[str, str]:
    first, _, second = merge.partition(" ")
    return first, second


def _make_pre_tokenizer(splitting: _Splitting) -> Any:
    from tokenizers import Regex, pre_tokenizers

    steps: list[Any] = []
    if splitting.splits_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if splitting.pattern:
        steps.append(pre_tokenizers.Split(Regex(splitting.pattern), "isolated"))
    has_own_pattern = not splitting.pattern
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=has_own_pattern))
    return pre_tokenizers.Sequence(steps)


def _add_tokens(backend: TokenizersBackend, *, tokens: list[str], kinds: list[int]) -> None:
    from tokenizers import AddedToken

    by_kind: dict[int, list[Any]] = {_CONTROL: [], _USER_DEFINED: []}
    for token, kind in zip(tokens, kinds, strict=False):
        if kind in by_kind and token:
            by_kind[kind].append(AddedToken(token, normalized=False, special=kind == _CONTROL))
    backend.add_special_tokens(by_kind[_CONTROL])
    backend.add_tokens(by_kind[_USER_DEFINED])


def _add_beginning(backend: TokenizersBackend, *, tokens: list[str], file: GgufFile) -> None:
    from tokenizers import processors

    # Files of Llama 3 from before the flag existed begin texts all the same.
    is_llama3 = file.metadata.get("tokenizer.ggml.pre") == "llama-bpe"
    if not file.metadata.get("tokenizer.ggml.add_bos_token", is_llama3):
        return
    index = file.metadata.get("tokenizer.ggml.bos_token_id", -1)
    if not 0 <= index < len(tokens):
        raise DataLoss(f"{file.path}: texts begin with token {index}, which is not in it")
    token = tokens[index]
    backend.post_processor = processors.TemplateProcessing(
        single=[token, "$A"], special_tokens=[(token, index)]
    )
