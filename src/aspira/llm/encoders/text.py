"""Texts to the token ids that an encoder takes, each within bounds that are looked at first."""

from collections.abc import Sequence

from aspira.contracts.embedding import InputTooLong, TextInput
from aspira.contracts.errors import InvalidArgument
from aspira.llm.encoders.config import read_bounds
from aspira.llm.encoders.sentence_files import SentenceRules
from aspira.llm.model_files import CONFIG_FILE, ModelFiles
from aspira.llm.tokenizer import TokenizersBackend, load_backend

TokenIds = tuple[int, ...]

# White space makes no tokens, and a word of any length may make one; what is longer than this for
# each token of the context is no text that could fit.
_CHARACTERS_PER_TOKEN = 64


class EncoderText:
    """May be used by several threads. Long lists belong on one of a pool."""

    def __init__(
        self, backend: TokenizersBackend, *, rules: SentenceRules, max_tokens: int, vocab_size: int
    ) -> None:
        """`max_tokens` is the longest text; `vocab_size` how many ids the model knows."""
        self._backend = backend
        # Files may ask for both, which are for training.
        backend.no_truncation()
        backend.no_padding()
        self._rules = rules
        self.vocab_size = vocab_size
        self.max_tokens = max_tokens

    def encode(self, texts: Sequence[TextInput], *, cut: int | None = None) -> list[TokenIds]:
        """The token ids of each, special ones included. `cut`: longer ones are cut to as many.

        Raises:
            InvalidArgument: one is empty, too long, not Unicode, or has ids that are not known.
        """
        return [self._encode(text, index=index, cut=cut) for index, text in enumerate(texts)]

    def _encode(self, text: TextInput, *, index: int, cut: int | None) -> TokenIds:
        if isinstance(text, tuple):
            ids = self._check_ids(text, index=index)
            if cut is not None:
                ids = ids[:cut]
        else:
            ids = self._tokenize(text, index=index, cut=cut)
        if len(ids) > self.max_tokens:
            raise InputTooLong(index=index, num_tokens=len(ids), limit=self.max_tokens)
        if not ids:
            raise InvalidArgument(f"input {index} is empty; every text needs a token at least")
        return ids

    def _tokenize(self, text: str, *, index: int, cut: int | None) -> TokenIds:
        text = self._rules.prompt + text
        most = self.max_tokens * _CHARACTERS_PER_TOKEN
        if len(text) > most:
            if cut is None:
                raise InvalidArgument(
                    f"input {index} has {len(text)} characters, and at most {most} are looked at "
                    f"for this model's context of {self.max_tokens} tokens; send it in parts, or "
                    "have what is too much left out by truncate_prompt_tokens = -1"
                )
            text = text[:most]
        if self._rules.is_lowercased:
            text = text.lower()
        try:
            encoded = self._backend.encode(text)
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidArgument(
                f"input {index} is not Unicode text: it has lone surrogates"
            ) from error
        if cut is not None and len(encoded.ids) > cut:
            return self._cut(encoded.ids, special=encoded.special_tokens_mask, length=cut)
        return tuple(encoded.ids)

    def _cut(self, ids: Sequence[int], *, special: Sequence[int], length: int) -> TokenIds:
        """The special tokens around the text stay: models were trained with them."""
        num_before = next((i for i, flag in enumerate(special) if not flag), len(ids))
        num_after = next((i for i, flag in enumerate(reversed(special)) if not flag), 0)
        if length <= num_before + num_after:
            return tuple(ids[:length])
        return (*ids[: length - num_after], *ids[len(ids) - num_after :])

    def _check_ids(self, ids: TokenIds, *, index: int) -> TokenIds:
        if not all(0 <= token < self.vocab_size for token in ids):
            raise InvalidArgument(
                f"input {index} has token ids outside 0 to {self.vocab_size - 1}, the model's own; "
                "were they made by another model's tokenizer? Send the text itself"
            )
        return ids


def load_encoder_text(files: ModelFiles, *, rules: SentenceRules) -> EncoderText:
    """The text side of an encoder's files.

    Raises:
        ServingError: a file is missing, or cannot be read.
    """
    bounds = read_bounds(files.directory / CONFIG_FILE)
    return EncoderText(
        load_backend(files),
        rules=rules,
        max_tokens=min(bounds.max_tokens, rules.max_tokens or bounds.max_tokens),
        vocab_size=bounds.vocab_size,
    )
