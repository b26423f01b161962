"""What a language model is asked for, and what it streams back.

A request is tokens in, and one stream of deltas out, which ends exactly once: after a delta with
the last choice's finish reason, or with a `ServingError`. Times are seconds of the server's clock.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from aspira.contracts.errors import InvalidArgument

TokenId = int


class FinishReason(Enum):
    """Why a choice ended; the values are OpenAI's."""

    STOP = "stop"
    LENGTH = "length"


class GrammarKind(Enum):
    """In which language the allowed output is described."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the output has to match. `text` is the schema, or the pattern."""

    kind: GrammarKind
    text: str


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How the next token is drawn. Applied in the order of the fields."""

    repetition_penalty: float = 1.0
    """Divides positive logits of tokens seen in prompt or output, multiplies negative ones."""

    frequency_penalty: float = 0.0
    """Subtracted once for each time the token is in the output."""

    presence_penalty: float = 0.0
    """Subtracted if the token is in the output."""

    logit_bias: tuple[tuple[TokenId, float], ...] = ()
    """Added to these tokens' logits."""

    temperature: float = 1.0
    """0 takes the most likely token; what follows then has no effect."""

    min_p: float = 0.0
    """Drops tokens less likely than this share of the most likely one."""

    top_k: int = 0
    """Keeps the k most likely tokens; 0 keeps all."""

    top_p: float = 1.0
    """Keeps the fewest tokens whose probabilities sum to this."""

    seed: int | None = None
    """Equal seeds draw equal tokens from equal logits, whatever else is in the batch."""

    num_logprobs: int | None = None
    """None reports no log probabilities; k reports the drawn token's and the k largest."""


@dataclass(frozen=True, slots=True)
class StopRules:
    """What ends a choice before its length does."""

    strings: tuple[str, ...] = ()
    token_ids: frozenset[TokenId] = frozenset()
    """Besides the model's own end tokens."""

    min_tokens: int = 0
    """No stop before as many tokens; end tokens are not drawn until then."""

    ignore_eos: bool = False
    """The model's own end tokens are tokens like others."""

    include_stop_string: bool = False
    """The text ends with the stop string rather than before it."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """The longest waits, in seconds; None is no limit. Passing one is DeadlineExceeded."""

    queue_s: float | None = None
    """From arrival until the first computing step that the request takes part in."""

    first_token_s: float | None = None
    """From arrival."""

    gap_s: float | None = None
    """From a choice's token to its next one."""

    total_s: float | None = None
    """From arrival to the end."""


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """Where a request comes from, for traces: nothing that is generated depends on it."""

    operation: str = "text_completion"
    """`chat` or `text_completion`, as OpenTelemetry names them."""

    request_id: str = ""
    traceparent: str = ""
    """W3C's header, as the client sent it; checked where it is used."""

    tracestate: str = ""


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One prompt, `num_choices` continuations."""

    prompt: tuple[TokenId, ...]
    arrival: float
    """When the frontend got it; waits are counted from here."""

    max_tokens: int | None = None
    """Of each choice; None is as many as the context has room for."""

    num_choices: int = 1
    sampling: SamplingParameters = SamplingParameters()
    stops: StopRules = StopRules()
    times: TimeLimits = TimeLimits()
    cache_salt: str = ""
    """Cached prefixes are shared only between requests of equal salt."""

    priority: int = 0
    """Lower goes first, among equals the older."""

    origin: RequestOrigin = RequestOrigin()


class TokenLogprob(NamedTuple):
    """A drawn token, and the most likely ones in its place, most likely first.

    Of the model's own distribution, before penalties, bias and temperature. Always finite: what
    has no probability at all is reported as `MIN_LOGPROB`.
    """

    token_id: TokenId
    logprob: float
    alternatives: tuple[tuple[TokenId, float], ...]


MIN_LOGPROB = -9999.0


class Usage(NamedTuple):
    """Tokens of one request, over all its choices."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    """Prompt tokens whose keys and values were in the cache already."""


class Delta(NamedTuple):
    """What a choice gained. A consumer that is behind gets several in one, never an empty one."""

    choice: int
    text: str
    token_ids: tuple[TokenId, ...]
    """May run ahead of the text: that which could become a stop string is held back."""

    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    stopped_by: str | TokenId | None = None
    """The stop string or the stop token, if one ended the choice; None for the end token."""

    usage: Usage | None = None
    """In the last delta of the stream."""


@dataclass(frozen=True, slots=True)
class ContextLength:
    """The numbers of a prompt that does not fit."""

    limit: int
    prompt_tokens: int
    max_tokens: int


class ContextLengthExceeded(InvalidArgument):
    """Prompt and output together can never fit, in the model's context or in its cache."""

    def __init__(self, length: ContextLength) -> None:
        super().__init__(
            f"This model's maximum context length is {length.limit} tokens. However, you requested "
            f"{length.prompt_tokens + length.max_tokens} tokens ({length.prompt_tokens} in the "
            f"prompt, {length.max_tokens} for the completion). Please shorten the prompt or lower "
            "max_tokens."
        )
        self.length = length


@dataclass(frozen=True, slots=True)
class GenerationStatistics:
    """A language model's state and totals at one moment, named as vLLM names its metrics."""

    num_requests_running: int = 0
    num_requests_waiting: int = 0
    kv_cache_usage: float = 0.0
    """Share of the blocks that sequences hold, 0 to 1."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_cache_queries: int = 0
    """In tokens."""

    prefix_cache_hits: int = 0
    """In tokens."""

    num_preemptions: int = 0
    admission_rejections: int = 0
    corrupted_requests: int = 0
    """Ended by logits that are not numbers."""

    num_steps: int = 0
    num_runner_rebuilds: int = 0
    num_late_compilations: int = 0
    """Steps of the present runner that had to be compiled first: pauses that should not be."""

    requests_accepted: int = 0
    requests_ended: dict[str, int] = field(default_factory=dict)
    """By outcome: `stop`, `length`, or the name of an error's code. Sums to those accepted and
    not in flight; a request with several choices counts by its last one."""
