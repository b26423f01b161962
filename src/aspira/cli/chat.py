"""`aspira chat`: a chat in the terminal with any server that speaks OpenAI's API."""

import os
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

from aspira.cli.chat_client import ChatClient, ChatFailed
from aspira.cli.flags import PlainFlag, guess_meant, match_flags, parse_value, usage
from aspira.cli.serve import EXIT_FAILED, report
from aspira.contracts.errors import InvalidArgument

_PROGRAM = "aspira chat"
_PROMPT = "> "
_CLEAR = "/clear"
_WELCOME = f"Chatting with {{model}}. {_CLEAR} begins anew, Ctrl-C stops an answer, Ctrl-D ends."


_FLAGS = (
    PlainFlag("url", "http://localhost:8501", "The server, such as http://localhost:8501."),
    PlainFlag("model", "", "The model. Empty means the first one that the server lists."),
    PlainFlag("system", "", "A system message to begin with."),
    PlainFlag("message", "", "Ask this alone, and end with the answer."),
    PlainFlag("temperature", 0.7, "0 takes the most likely token."),
    PlainFlag(
        "max_tokens", 0, "Tokens of an answer at most. 0 means as many as there is room for."
    ),
    PlainFlag("ca_file", "", "Certificates to trust, in PEM, for an https address."),
)


def run_chat(arguments: list[str]) -> int:
    """Run `aspira chat`; returns the exit status. The key is in the variable OPENAI_API_KEY."""
    if {"--help", "-h"} & set(arguments):
        print(usage(_FLAGS, program=_PROGRAM), end="")
        return 0
    try:
        values = _parse(arguments)
        key = os.environ.get("OPENAI_API_KEY", "")
        client = ChatClient(values["url"], api_key=key, ca_file=values["ca_file"])
        model = values["model"] or _first_model(client)
        chat = Chat(client, body=_make_body(values, model=model), system=values["system"])
        if values["message"]:
            chat.ask(values["message"])
        else:
            report(_WELCOME.format(model=model))
            _talk(chat)
    except (ChatFailed, InvalidArgument) as error:
        report(f"{_PROGRAM}: {error.args[0]}")
        return EXIT_FAILED
    return 0


class Chat:
    """One conversation. `write` shows a piece of an answer at once."""

    def __init__(
        self,
        client: ChatClient,
        *,
        body: dict[str, Any],
        system: str,
        write: Callable[[str], None] | None = None,
    ) -> None:
        self._client = client
        self._body = body
        self._beginning = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._beginning)
        self._write = write or _write

    def clear(self) -> None:
        """Forget all but the system message."""
        self._messages = list(self._beginning)

    def ask(self, text: str) -> None:
        """Show the answer as it comes. What fails is not part of the conversation.

        Raises:
            ChatFailed: there was no whole answer; Ctrl-C is none of these.
        """
        asked = [*self._messages, {"role": "user", "content": text}]
        said = ""
        try:
            with closing(self._client.stream({**self._body, "messages": asked})) as pieces:
                for piece in pieces:
                    said += piece
                    self._write(piece)
        except KeyboardInterrupt:
            # Closing the connection has the server stop; what was said, was said.
            pass
        finally:
            self._write("\n")
        self._messages = [*asked, {"role": "assistant", "content": said}]


def _parse(arguments: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {flag.name: flag.default for flag in _FLAGS}
    for argument, flag, text in match_flags(arguments, flags=_FLAGS):
        if flag is None:
            meant = guess_meant(argument, flags=_FLAGS)
            raise ChatFailed(
                f"unknown argument: {argument}{meant} (`{_PROGRAM} --help` lists the flags)"
            )
        values[flag.name] = parse_value(text, flag=flag)
    return values


def _first_model(client: ChatClient) -> str:
    models = client.list_models()
    if not models:
        raise ChatFailed("the server lists no language model; is one loaded? (GET /readyz)")
    return models[0]


def _make_body(values: dict[str, Any], *, model: str) -> dict[str, Any]:
    body = {"model": model, "temperature": values["temperature"]}
    return {**body, "max_tokens": values["max_tokens"]} if values["max_tokens"] else body


def _talk(chat: Chat) -> None:
    """Line by line, until there is no more."""
    while True:
        try:
            text = input(_PROMPT).strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if text == _CLEAR:
            chat.clear()
        elif text:
            _ask_and_go_on(chat, text=text)


def _ask_and_go_on(chat: Chat, *, text: str) -> None:
    try:
        chat.ask(text)
    except ChatFailed as error:
        report(f"{_PROGRAM}: {error.args[0]}")


def _write(piece: str) -> None:
    sys.stdout.write(piece)
    sys.stdout.flush()
