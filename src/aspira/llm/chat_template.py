"""Chat messages to prompt text, by the model's own Jinja template."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from aspira.contracts.errors import DataLoss, FailedPrecondition, InvalidArgument, Unimplemented
from aspira.llm.model_files import ModelFiles, ModelKind
from aspira.llm.special_tokens import TOKENIZER_CONFIG_FILE, SpecialTokens
from aspira.llm.weights.bounded_files import read_bytes, read_json
from aspira.llm.weights.gguf_file import GgufFile

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]

TEMPLATE_FILE = "chat_template.jinja"

_MAX_TEMPLATE_BYTES = 1 << 20
_MAX_RENDER_S = 2.0
_DEFAULT, _WITH_TOOLS = "default", "tool_use"


class ChatTemplate:
    """The templates of one model: one for all chats, maybe another for those with tools.

    May be used by several threads.
    """

    def __init__(
        self,
        sources: Mapping[str, str],
        *,
        special_tokens: SpecialTokens,
        max_characters: int,
        max_render_s: float = _MAX_RENDER_S,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """`sources` has `default` and perhaps `tool_use`; `now` is for templates with a date.

        Raises:
            FailedPrecondition: a template is not Jinja.
            Unimplemented: Jinja is not installed.
        """
        try:
            from jinja2 import TemplateSyntaxError

            from aspira.llm.template_sandbox import TemplateSandbox
        except ImportError as error:
            raise Unimplemented(
                "Chat templates need the package jinja2: pip install 'aspira[llm]'"
            ) from error
        self._special_tokens = special_tokens
        self._max_render_s = max_render_s
        self._sandbox = TemplateSandbox(now=now, max_characters=max_characters)
        try:
            self._templates = MappingProxyType(
                {name: self._sandbox.from_string(source) for name, source in sources.items()}
            )
        except TemplateSyntaxError as error:
            raise FailedPrecondition(
                f"The model's chat template is not valid, at line {error.lineno}: {error.message}"
            ) from error

    def render(
        self,
        messages: Messages,
        *,
        tools: Tools = (),
        adds_prompt: bool = True,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """The prompt's text. `adds_prompt`: it ends where the assistant's answer begins.

        `variables` are those that a model's template knows beyond the usual (`enable_thinking`).

        Raises:
            InvalidArgument: the template refuses the messages, or goes over a limit.
        """
        from jinja2 import TemplateError

        from aspira.llm.template_sandbox import OverLimit, Refused

        name = _WITH_TOOLS if tools and _WITH_TOOLS in self._templates else _DEFAULT
        known = {
            **variables,
            "messages": messages,
            "tools": tools or None,
            "documents": None,
            "add_generation_prompt": adds_prompt,
            "bos_token": self._special_tokens.bos,
            "eos_token": self._special_tokens.eos,
        }
        try:
            with self._sandbox.limited(self._max_render_s):
                return self._join(self._templates[name].generate(known))
        except Refused as error:
            raise InvalidArgument(f"The model's chat template refuses: {error}") from error
        except OverLimit as error:
            raise InvalidArgument(f"The model's chat template {error}; send less") from error
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"The model's chat template cannot render these messages: {error}"
            ) from error
        except (AttributeError, RecursionError) as error:
            raise InvalidArgument(
                f"The model's chat template failed on these messages: {error!r}"
            ) from error

    def _join(self, pieces: Iterable[str]) -> str:
        parts = []
        num_characters = 0
        for piece in pieces:
            num_characters += len(piece)
            self._sandbox.check_time()
            self._sandbox.check_length(num_characters)
            parts.append(piece)
        return "".join(parts)


def read_chat_template(
    files: ModelFiles, *, special_tokens: SpecialTokens, max_characters: int
) -> ChatTemplate | None:
    """The chat template of a language model; None for one that only completes text.

    Raises:
        ServingError: a file cannot be read, or the template is not valid.
    """
    sources = _read_sources(files)
    if not sources:
        return None
    if _DEFAULT not in sources:
        raise DataLoss(f"{files.directory} has chat templates, but none of them is the default")
    return ChatTemplate(sources, special_tokens=special_tokens, max_characters=max_characters)


def _read_sources(files: ModelFiles) -> Mapping[str, str]:
    path = files.find(TEMPLATE_FILE)
    if path is not None:
        try:
            text = read_bytes(path, max_bytes=_MAX_TEMPLATE_BYTES).decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataLoss(f"{path} is not UTF-8 text") from error
        return {_DEFAULT: text}
    if files.kind is ModelKind.GGUF:
        return _named(GgufFile(files.weights).metadata.get("tokenizer.chat_template"))
    config = files.find(TOKENIZER_CONFIG_FILE)
    return _named(read_json(config).get("chat_template")) if config else {}


def _named(value: object) -> Mapping[str, str]:
    """One template, or a list of objects with `name` and `template`."""
    if isinstance(value, str):
        return {_DEFAULT: value}
    if not isinstance(value, list):
        return {}
    return {str(entry["name"]): str(entry["template"]) for entry in value if "template" in entry}
