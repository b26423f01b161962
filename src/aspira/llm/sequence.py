"""One continuation of one prompt: which tokens it has, and how far the cache has caught up."""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from aspira.llm.kv_blocks import BlockKey, child_key, root_of


class SequenceState(Enum):
    """Where a sequence stands. A preempted one waits again, perhaps with its first blocks."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    ENDED = "ended"


class Rank(NamedTuple):
    """The order in which sequences are served: smaller first."""

    priority: int
    arrival_number: int
    choice: int


@dataclass(slots=True, eq=False)
class Sequence:
    """There is no prefill or decode phase: what counts is how many known tokens are computed."""

    rank: Rank
    prompt: tuple[int, ...]
    """One for all choices of a request: it may be long, and they many."""

    max_total_tokens: int
    salt: str = ""
    leader: "Sequence | None" = None
    """Of the same prompt; its blocks are waited for, to share them."""

    drawn: list[int] = field(default_factory=list)
    """The tokens that follow the prompt."""

    num_prompt_tokens: int = field(init=False)
    state: SequenceState = SequenceState.WAITING
    num_computed: int = 0
    """Tokens whose keys and values are in `block_ids`."""

    block_ids: list[int] = field(default_factory=list)
    num_registered: int = 0
    """Of `block_ids`, those that the prefix cache was told of."""

    num_cached_tokens: int = 0
    """Found in the prefix cache at first admission."""

    was_admitted: bool = False
    was_preempted: bool = False
    num_times_overtaken: int = 0
    keys: list[BlockKey] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.num_prompt_tokens = len(self.prompt)

    @property
    def num_tokens(self) -> int:
        """Known tokens: the prompt, then those that were drawn."""
        return self.num_prompt_tokens + len(self.drawn)

    @property
    def num_missing(self) -> int:
        """Known tokens that are not computed; at least the last, until it has given logits."""
        return self.num_tokens - self.num_computed

    @property
    def is_ended(self) -> bool:
        return self.state is SequenceState.ENDED

    @property
    def num_drawn(self) -> int:
        return len(self.drawn)

    @property
    def is_prompt_computed(self) -> bool:
        return self.num_computed >= self.num_prompt_tokens

    @property
    def waits_for_leader(self) -> bool:
        """Whether a sequence of the same prompt is about to fill blocks that this one can use."""
        leader = self.leader
        return leader is not None and not leader.is_ended and not leader.is_prompt_computed

    def tokens(self, begin: int, *, end: int) -> list[int]:
        """Those of the known tokens."""
        num_prompt = self.num_prompt_tokens
        if begin >= num_prompt:
            return self.drawn[begin - num_prompt : end - num_prompt]
        return [*self.prompt[begin:end], *self.drawn[: max(end - num_prompt, 0)]]

    def extend_keys(self, num_full_blocks: int, *, block_size: int) -> list[BlockKey]:
        """The keys of the first `num_full_blocks` blocks, all of whose tokens are known."""
        if not self.keys and self.leader is not None and self.leader.prompt is self.prompt:
            self.keys = self.leader.keys[: self.num_prompt_tokens // block_size]
        while len(self.keys) < num_full_blocks:
            begin = len(self.keys) * block_size
            parent = self.keys[-1].digest if self.keys else root_of(self.salt)
            tokens = tuple(self.tokens(begin, end=begin + block_size))
            self.keys.append(child_key(parent, tokens=tokens))
        return self.keys[:num_full_blocks]

    def keep_blocks(self, count: int, *, block_size: int) -> list[int]:
        """Give up all but the first `count` blocks; returns those given up."""
        dropped = self.block_ids[count:]
        del self.block_ids[count:]
        self.num_computed = min(self.num_computed, count * block_size)
        return dropped
