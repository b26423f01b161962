"""An embedding: texts asked for, one vector each, and what they may not be."""

from dataclasses import dataclass

from aspira.contracts.errors import InvalidArgument

TextInput = str | tuple[int, ...]
"""A text, or the token ids that the model's own tokenizer made of one."""


@dataclass(frozen=True, slots=True)
class EmbeddingLimits:
    """What holds for all texts of a request."""

    max_tokens: int | None = None
    """Longer texts are cut to this many tokens; None refuses those that the model cannot take."""

    dimensions: int | None = None
    """The length of each vector; None is the model's own."""


class InputTooLong(InvalidArgument):
    """A text that does not fit into the model's context."""

    def __init__(self, *, index: int, num_tokens: int, limit: int) -> None:
        super().__init__(
            f"This model's maximum context length is {limit} tokens. However, input {index} has "
            f"{num_tokens} tokens. Please send shorter texts, or have what is too much left out "
            "by truncate_prompt_tokens = -1."
        )
