"""How language models are served: what all share, and the time limits of one model's requests."""

from dataclasses import dataclass

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.generation import TimeLimits


@dataclass(frozen=True, slots=True)
class LanguageModelOptions:
    """For all models; one field, one flag."""

    cache_budget_mib: int = 4096
    """Memory for the KV caches of all loaded versions together; 0 is no limit."""

    stream_drain_s: float = 60.0
    """How long streams of a version that is replaced may go on; then they end with an error."""

    keep_alive_s: float = 10.0
    """Silence in a stream after which a comment tells proxies and clients that it goes on; 0 or
    less means never."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The longest waits of a model's requests, in seconds; 0 is no limit.

    One field, one entry of `[limits]` in the options file.
    """

    queue_s: float = 300.0
    first_token_s: float = 600.0
    gap_s: float = 120.0
    total_s: float = 0.0

    def __post_init__(self) -> None:
        if min(self.queue_s, self.first_token_s, self.gap_s, self.total_s) < 0:
            raise InvalidArgument("[limits]: a time limit cannot be less than 0, which is none")

    def as_time_limits(self) -> TimeLimits:
        """As a request carries them."""
        return TimeLimits(
            self.queue_s or None,
            self.first_token_s or None,
            self.gap_s or None,
            self.total_s or None,
        )
