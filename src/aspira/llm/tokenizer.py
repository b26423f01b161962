"""Text to token ids and back, by Hugging Face's tokenizers."""

from collections.abc import Sequence
from typing import Any

from aspira.contracts.errors import DataLoss, InvalidArgument, Unimplemented
from aspira.llm.gguf_tokenizer import build_tokenizer
from aspira.llm.model_files import ModelFiles, ModelKind
from aspira.llm.special_tokens import SpecialTokens
from aspira.llm.token_bytes import TokenBytes
from aspira.llm.weights.bounded_files import read_bytes
from aspira.llm.weights.gguf_file import GgufFile

TOKENIZER_FILE = "tokenizer.json"

# The library is made without types.
TokenizersBackend = Any


class Tokenizer:
    """`Vocabulary` of one model. May be used by several threads; long texts belong on a pool's."""

    def __init__(
        self, backend: TokenizersBackend, *, eos_token_ids: frozenset[int], max_tokens: int
    ) -> None:
        """`max_tokens` is the model's context: text that cannot fit into it is not encoded."""
        self._backend = backend
        # Files may ask for both, which are for training.
        backend.no_truncation()
        backend.no_padding()
        self._bytes = TokenBytes(backend)
        tokens = backend.get_vocab()
        self._vocab_size = max(tokens.values(), default=-1) + 1
        self._eos_token_ids = eos_token_ids
        self._max_tokens = max_tokens
        self.max_characters = max_tokens * max(map(len, tokens), default=1)

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self._eos_token_ids

    def encode(self, text: str, *, adds_special: bool = False) -> list[int]:
        """Token ids. `adds_special`: begin as the model's texts do; a chat template did so itself.

        Raises:
            InvalidArgument: it is so long that it cannot fit into the context, or not Unicode.
        """
        if len(text) > self.max_characters:
            raise InvalidArgument(
                f"The prompt has {len(text)} characters, which cannot fit into the model's context "
                f"of {self._max_tokens} tokens; send a shorter one"
            )
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=adds_special).ids
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidArgument(
                "The prompt is not Unicode text: it has lone surrogates"
            ) from error
        return ids

    def decode(self, token_ids: Sequence[int], *, skips_special: bool = True) -> str:
        """The text of tokens. Bytes that are no whole character come out as U+FFFD."""
        text: str = self._backend.decode(token_ids, skip_special_tokens=skips_special)
        return text

    def token_bytes(self, token_id: int) -> bytes | None:
        return self._bytes.find(token_id)

    def token_id(self, token: str) -> int | None:
        """The id of a token, if there is such a token."""
        found: int | None = self._backend.token_to_id(token)
        return found


def load_tokenizer(
    files: ModelFiles, *, special_tokens: SpecialTokens, max_tokens: int
) -> Tokenizer:
    """The tokenizer of a language model.

    Raises:
        ServingError: there is none, or it cannot be read.
    """
    return Tokenizer(
        load_backend(files), eos_token_ids=special_tokens.stop_ids, max_tokens=max_tokens
    )


def load_backend(files: ModelFiles) -> TokenizersBackend:
    """The library's tokenizer of a model's files, with all that they ask for.

    Raises:
        ServingError: there is none, or it cannot be read.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise Unimplemented(
            "Language models need the package tokenizers: pip install 'aspira[llm]'"
        ) from error

    path = files.find(TOKENIZER_FILE)
    if path is None and files.kind is ModelKind.GGUF:
        return build_tokenizer(GgufFile(files.weights))
    data = read_bytes(path or files.directory / TOKENIZER_FILE)
    try:
        return tokenizers.Tokenizer.from_buffer(data)
    except Exception as error:
        # The library raises Exception itself.
        raise DataLoss(f"{path} is not a tokenizer that can be read: {error}") from error
