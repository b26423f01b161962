"""How one language model's engine shares steps, cache and queue among requests."""

from dataclasses import dataclass

from aspira.contracts.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of one engine. Those of the cache's size belong to the runner."""

    max_sequences: int = 32
    """Sequences that take part in one step at most."""

    max_step_tokens: int = 256
    """Tokens of one step: how long a long prompt may hold up everybody's next token."""

    reserved_output_tokens: int = 256
    """Room that a newcomer needs for its output, as far as it may get that long. A sequence that
    was preempted needs room for all it may get, so that it is not preempted again."""

    watermark: float = 0.02
    """Share of the cache blocks that admission leaves for those that are running."""

    max_overtakes: int = 8
    """How many later requests may be admitted before one that does not fit yet."""

    prefix_cache: bool = True
    """Whether sequences use the blocks of earlier ones that begin alike."""

    max_queued_requests: int = 1024
    max_queued_tokens: int = 1_048_576
    """Prompt tokens of the requests in the queue; further ones get RESOURCE_EXHAUSTED."""

    max_choices: int = 128
    """The most continuations of one request."""

    stall_timeout_s: float = 120.0
    """A step never takes longer: past it the process is unhealthy. Its streams end sooner, after 20
    times the slowest step so far, but not within 10 s."""

    def __post_init__(self) -> None:
        if self.max_sequences < 1 or self.max_step_tokens < self.max_sequences:
            raise InvalidArgument(
                f"max_step_tokens ({self.max_step_tokens}) must be at least max_sequences "
                f"({self.max_sequences}), which must be at least 1: each needs one token a step"
            )
        if not 0 <= self.watermark < 1:
            raise InvalidArgument(f"watermark must be in [0, 1), not {self.watermark}")
        for name in ("max_queued_requests", "max_queued_tokens", "max_choices", "stall_timeout_s"):
            # Not a number is not above 0 either.
            if not getattr(self, name) > 0:
                raise InvalidArgument(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("reserved_output_tokens", "max_overtakes"):
            if getattr(self, name) < 0:
                raise InvalidArgument(f"{name} must be 0 or more, not {getattr(self, name)}")
