"""Where chat templates run: Jinja's immutable sandbox, with limits on time and text.

Templates come with models and are code of strangers. They see only what they are given and cannot
change it; loops, calls and look-ups stop when their time is over, and operators make no
huge texts. A filter (`center`) may: whoever serves a model trusts its template that far.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import local
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Refused(Exception):
    """A template called `raise_exception`."""


class OverLimit(Exception):
    """A template takes too long or writes too much."""


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """As transformers sets Jinja up. Threads render at once, each with its own limit."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, *, now: Callable[[], datetime], max_characters: int) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
        )
        self._limits = local()
        self._max_characters = max_characters
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda layout: now().strftime(layout)

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """What this thread renders within is stopped after so long, at the next look-up."""
        self._limits.seconds = seconds
        self._limits.end = time.monotonic() + seconds
        try:
            yield
        finally:
            del self._limits.end

    def check_time(self) -> None:
        """Called as text comes out."""
        if time.monotonic() > getattr(self._limits, "end", float("inf")):
            raise OverLimit(f"takes longer than {self._limits.seconds} s")

    def check_length(self, num_characters: int) -> None:
        if num_characters > self._max_characters:
            raise OverLimit(f"makes a text longer than {self._max_characters} characters")

    def getattr(self, obj: Any, attribute: str) -> Any:
        self.check_time()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.check_time()
        return super().getitem(obj, argument)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.check_time()
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Multiplication of texts and lists, and powers, take any amount of memory in one step."""
        if operator == "**" and abs(right) > 64:
            raise TemplateError(f"the power {right} is too large")
        if operator == "*":
            for text, times in ((left, right), (right, left)):
                if isinstance(text, (str, list, tuple)) and isinstance(times, int):
                    self.check_length(len(text) * times)
        return super().call_binop(context, operator, left, right)


class _GenerationTag(Extension):
    """`{% generation %}` marks, for training, what the assistant said. Here it does nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, **options: Any) -> str:
    # Jinja's own escapes for HTML, which a prompt is not.
    return json.dumps(value, **{"ensure_ascii": False, **options})


def _raise_exception(message: str) -> NoReturn:
    raise Refused(message)
