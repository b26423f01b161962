"""Commands for the engine's thread, taken between two steps."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from aspira.contracts.errors import Unavailable

_logger = logging.getLogger(__name__)

Command = Callable[[], None]


class Inbox:
    """Any thread posts, one takes. After closing nothing gets in, so nothing is forgotten in it."""

    def __init__(self) -> None:
        self._commands: deque[Command] = deque()
        self._changed = threading.Condition()
        self._is_closed = False

    def post(self, command: Command) -> None:
        """Have `command` run before the next step.

        Raises:
            Unavailable: the thread has ended.
        """
        if not self.try_post(command):
            raise Unavailable("The model is not running any more; retry the request")

    def try_post(self, command: Command) -> bool:
        """The same, where it makes no difference that the thread has ended."""
        with self._changed:
            if not self._is_closed:
                self._commands.append(command)
                self._changed.notify()
            return not self._is_closed

    def take(self, *, wait: bool) -> list[Command]:
        """What was posted; with `wait` there is something, or it was closed."""
        with self._changed:
            while wait and not self._commands and not self._is_closed:
                self._changed.wait()
            commands = list(self._commands)
            self._commands.clear()
            return commands

    def close(self) -> list[Command]:
        """Let nothing in any more; returns what is left."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            commands = list(self._commands)
            self._commands.clear()
            return commands


def run_all(commands: Iterable[Command]) -> None:
    """Run every one, whatever others raise; then raise what the first of them did."""
    raised: Exception | None = None
    for command in commands:
        try:
            command()
        except Exception as error:
            if raised is None:
                raised = error
            else:
                _logger.exception("A further error, after one that is told of")
    if raised is not None:
        raise raised
