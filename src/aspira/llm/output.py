"""From a choice's tokens to what its consumer gets: detokenize, find stops, decide the end."""

from collections.abc import Sequence
from typing import NamedTuple

from aspira.contracts.generation import Delta, FinishReason, StopRules, TokenLogprob
from aspira.llm.detokenizer import Detokenizer
from aspira.llm.sampler import DrawnToken
from aspira.llm.stops import StopMatcher
from aspira.llm.vocabulary import Vocabulary


class End(NamedTuple):
    """Why a choice ended, and the stop string or token if it was one that the request gave."""

    reason: FinishReason
    stopped_by: str | int | None = None


class OutputRules(NamedTuple):
    """What one choice's output is subject to."""

    stops: StopRules
    max_tokens: int
    vocabulary: Vocabulary | None
    """None streams token ids without text; there are no end tokens and no stop strings then."""


class ChoiceOutput:
    """One pipeline, the same whether the consumer streams or not."""

    def __init__(self, choice: int, *, rules: OutputRules, prompt: Sequence[int]) -> None:
        vocabulary = rules.vocabulary
        self._choice = choice
        self._rules = rules
        has_eos = vocabulary is not None and not rules.stops.ignore_eos
        self._eos_ids = vocabulary.eos_token_ids if vocabulary and has_eos else frozenset()
        self._detokenizer = Detokenizer(vocabulary, prompt=prompt) if vocabulary else None
        self._stops = StopMatcher(rules.stops.strings, include=rules.stops.include_stop_string)
        self._num_tokens = 0
        self._token_ids: list[int] = []  # not sent yet
        self._logprobs: list[TokenLogprob] = []

    @property
    def banned(self) -> tuple[int, ...]:
        """Tokens that may not be drawn now: those that would end the choice too soon."""
        if self._num_tokens >= self._rules.stops.min_tokens:
            return ()
        return tuple(self._eos_ids | self._rules.stops.token_ids)

    def push(self, drawn: DrawnToken, *, is_complete: bool = False) -> Delta | None:
        """Take the next token; None while there is nothing to send. After a delta with a finish
        reason nothing more is pushed. `is_complete` says that a grammar allows nothing more.
        """
        self._num_tokens += 1
        self._token_ids.append(drawn.token_id)
        if drawn.logprob is not None:
            self._logprobs.append(drawn.logprob)
        end = self._end_by_token(drawn.token_id)
        text, stop_string = ("", None) if end else self._push_text(drawn.token_id)
        if stop_string is not None:
            end = End(FinishReason.STOP, stop_string)
        elif end is None and is_complete:
            end = End(FinishReason.STOP)
        elif end is None and self._num_tokens >= self._rules.max_tokens:
            end = End(FinishReason.LENGTH)
        if end is not None and stop_string is None:
            text, end = self._flush_text(text, end=end)
        return self._take_delta(text, end=end)

    def _end_by_token(self, token_id: int) -> End | None:
        if token_id in self._rules.stops.token_ids:
            return End(FinishReason.STOP, token_id)
        if token_id in self._eos_ids:
            return End(FinishReason.STOP)
        return None

    def _push_text(self, token_id: int) -> tuple[str, str | None]:
        text = self._detokenizer.push(token_id) if self._detokenizer else ""
        if self._num_tokens < self._rules.stops.min_tokens:
            return text, None
        return self._stops.push(text)

    def _flush_text(self, text: str, *, end: End) -> tuple[str, End]:
        """Add what was held back, in which a stop string may still turn up."""
        rest = self._detokenizer.flush() if self._detokenizer else ""
        checked = self._stops.push(rest)
        if checked.stopped_by is not None:
            return text + checked.text, End(FinishReason.STOP, checked.stopped_by)
        return text + checked.text + self._stops.flush(), end

    def _take_delta(self, text: str, *, end: End | None) -> Delta | None:
        if not text and end is None and self._detokenizer is not None:
            return None
        delta = Delta(
            self._choice,
            text,
            tuple(self._token_ids),
            tuple(self._logprobs),
            end.reason if end else None,
            end.stopped_by if end else None,
        )
        self._token_ids.clear()
        self._logprobs.clear()
        return delta
