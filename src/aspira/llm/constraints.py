"""What restricts a choice's next token, token by token; a grammar, for instance."""

from collections.abc import Callable
from typing import Protocol

from aspira.llm.sampler import PackedMask


class TokenConstraint(Protocol):
    """The state of one choice. Used on the engine's thread, so it must be quick."""

    def allowed(self) -> PackedMask:
        """The tokens that may come next, none if it cannot go on. Valid until `accept`."""
        ...

    def accept(self, token_id: int) -> None:
        """A token was drawn.

        Raises:
            ServingError: it does not fit, or the grammar cannot go on.
        """
        ...

    @property
    def is_complete(self) -> bool:
        """Whether nothing but an end token may come next."""
        ...


MakeConstraint = Callable[[], TokenConstraint]
"""Starts a choice: compiled once per request, made once per choice."""
