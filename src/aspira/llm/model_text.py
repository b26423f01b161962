"""The text side of one language model: from messages or text to tokens, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from aspira.contracts.errors import FailedPrecondition
from aspira.llm.chat_template import ChatTemplate, Messages, Tools, read_chat_template
from aspira.llm.model_files import ModelFiles
from aspira.llm.special_tokens import read_special_tokens
from aspira.llm.tokenizer import Tokenizer, load_tokenizer
from aspira.llm.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages for the model's chat template."""

    messages: Messages
    tools: Tools = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    adds_answer: bool = True
    """The prompt ends where the assistant's answer begins."""


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Text as it is. `adds_special`: it begins as the model's texts do."""

    text: str
    adds_special: bool = True


TokenPrompt = tuple[int, ...]
Prompt = ChatPrompt | TextPrompt | TokenPrompt


class ModelText(Protocol):
    """May be used by several threads. What takes long for long texts belongs on one of a pool."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    def encode(self, prompt: Prompt) -> TokenPrompt:
        """The tokens of a prompt, which is refused by its size before it is looked at.

        Raises:
            ServingError: the template refuses it, it cannot fit, or there is no template.
        """
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of tokens, the special ones included."""
        ...


class TokenizerText:
    """The tokenizer and the template of a model's files."""

    def __init__(self, tokenizer: Tokenizer, *, template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template

    @property
    def vocabulary(self) -> Vocabulary:
        return self._tokenizer

    def encode(self, prompt: Prompt) -> TokenPrompt:
        if isinstance(prompt, tuple):
            return prompt
        if isinstance(prompt, TextPrompt):
            return tuple(self._tokenizer.encode(prompt.text, adds_special=prompt.adds_special))
        if self._template is None:
            raise FailedPrecondition(
                "The model has no chat template, so it can only continue text: ask "
                "/v1/completions, or put a chat_template.jinja beside the model"
            )
        text = self._template.render(
            prompt.messages,
            tools=prompt.tools,
            adds_prompt=prompt.adds_answer,
            variables=prompt.variables,
        )
        return tuple(self._tokenizer.encode(text, adds_special=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skips_special=False)


def load_text(files: ModelFiles, *, max_tokens: int) -> TokenizerText:
    """The text side of a model's files. `max_tokens` is the longest context.

    Raises:
        ServingError: a file is missing, or cannot be read.
    """
    special = read_special_tokens(files)
    tokenizer = load_tokenizer(files, special_tokens=special, max_tokens=max_tokens)
    return TokenizerText(
        tokenizer,
        template=read_chat_template(
            files, special_tokens=special, max_characters=tokenizer.max_characters
        ),
    )
