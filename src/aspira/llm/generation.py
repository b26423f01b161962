"""A request inside the engine: its choices, its times, and the one way in which it ends."""

from dataclasses import dataclass, field

import numpy as np

from aspira.contracts.generation import Delta, GenerateRequest, TimeLimits, Usage
from aspira.llm.constraints import MakeConstraint, TokenConstraint
from aspira.llm.failures import as_serving_error
from aspira.llm.output import ChoiceOutput, OutputRules
from aspira.llm.sampler import DrawnToken, SamplingRow
from aspira.llm.sequence import Rank
from aspira.llm.sequence import Sequence as TokenSequence
from aspira.llm.streams import Item, StreamOutlet
from aspira.llm.token_history import TokenHistory, needs_history
from aspira.llm.vocabulary import Vocabulary


@dataclass(slots=True, eq=False)
class Choice:
    """One continuation: its tokens, how they are drawn, and what becomes of them."""

    generation: "Generation"
    sequence: TokenSequence
    output: ChoiceOutput
    seed: tuple[int, int]
    history: TokenHistory | None
    constraint: TokenConstraint | None
    last_token_at: float | None = None

    def sampling_row(self) -> SamplingRow:
        """How its next token is to be drawn.

        Raises:
            ServingError: its constraint cannot tell.
        """
        try:
            allowed = self.constraint.allowed() if self.constraint else None
        except Exception as error:
            raise as_serving_error(error) from error
        return SamplingRow(
            self.generation.request.sampling,
            self.seed,
            self.sequence.num_drawn,
            self.history,
            self.output.banned,
            allowed,
        )

    def push(self, drawn: DrawnToken) -> Delta | None:
        """Take its next token.

        Raises:
            ServingError: its constraint cannot go on, or its text cannot be decoded.
        """
        if self.history is not None:
            self.history.add(drawn.token_id)
        try:
            return self.output.push(drawn, is_complete=self._is_completed_by(drawn.token_id))
        except Exception as error:
            raise as_serving_error(error) from error

    def _is_completed_by(self, token_id: int) -> bool:
        if self.constraint is None:
            return False
        self.constraint.accept(token_id)
        return self.constraint.is_complete


ChoicesBySequence = dict[TokenSequence, Choice]


@dataclass(slots=True, eq=False)
class Generation:
    """A request that was accepted, or is about to be."""

    request: GenerateRequest
    max_tokens: int
    outlet: StreamOutlet
    num_queued_tokens: int
    """Those to be computed before each choice has its first token."""

    choices: list[Choice] = field(default_factory=list)
    num_open_choices: int = 0
    started_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    is_ended: bool = False
    has_time_limits: bool = field(init=False)

    def __post_init__(self) -> None:
        self.has_time_limits = self.request.times != TimeLimits()

    def send(self, item: Item) -> None:
        """Bring an item to its stream."""
        self.outlet.send(item)

    @property
    def is_abandoned(self) -> bool:
        """Whether the event loop of its consumer is gone."""
        return self.outlet.is_gone

    @property
    def usage(self) -> Usage:
        sequences = [choice.sequence for choice in self.choices]
        return Usage(
            prompt_tokens=len(self.request.prompt),
            completion_tokens=sum(sequence.num_drawn for sequence in sequences),
            cached_tokens=sequences[0].num_cached_tokens if sequences else 0,
        )

    def missed_limit(self, now: float) -> str | None:
        """The time limit that has passed, in words, if one has."""
        times = self.request.times
        if not self.has_time_limits:
            return None
        waited = now - self.request.arrival
        if _is_over(waited, limit=times.total_s):
            return f"The answer was not complete after {times.total_s:g} s"
        if self.started_at is None and _is_over(waited, limit=times.queue_s):
            return f"The request was in the queue for {times.queue_s:g} s"
        if self.first_token_at is None and _is_over(waited, limit=times.first_token_s):
            return f"There was no token after {times.first_token_s:g} s"
        if any(_is_over(gap, limit=times.gap_s) for gap in self._open_gaps(now)):
            return f"There was no further token for {times.gap_s:g} s"
        return None

    def _open_gaps(self, now: float) -> list[float]:
        return [
            now - choice.last_token_at
            for choice in self.choices
            if choice.last_token_at is not None and not choice.sequence.is_ended
        ]


def start_choices(
    generation: Generation,
    *,
    arrival_number: int,
    seed: int,
    vocabulary: Vocabulary | None,
    make_constraint: MakeConstraint | None,
) -> None:
    """Give a generation its choices. The first computes the prompt, the others share its blocks."""
    request = generation.request
    rules = OutputRules(request.stops, generation.max_tokens, vocabulary)
    seen = np.unique(request.prompt) if needs_history(request.sampling) else None
    leader: TokenSequence | None = None
    for index in range(request.num_choices):
        sequence = TokenSequence(
            Rank(request.priority, arrival_number, index),
            request.prompt,
            len(request.prompt) + generation.max_tokens,
            salt=request.cache_salt,
            leader=leader,
        )
        leader = leader or sequence
        generation.choices.append(
            Choice(
                generation,
                sequence,
                ChoiceOutput(index, rules=rules, prompt=request.prompt),
                (seed % 2**64, index),
                None if seen is None else TokenHistory(seen),
                make_constraint() if make_constraint else None,
            )
        )
    generation.num_open_choices = len(generation.choices)


def _is_over(waited: float, *, limit: float | None) -> bool:
    return limit is not None and waited >= limit
