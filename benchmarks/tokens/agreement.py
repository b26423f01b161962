"""Whether an engine says what the reference says: transformers in f32, greedy.

The reference is that of the tests, made from the weights before they were rounded to bf16, so a few
texts part where two tokens are nearly as likely. Engines that part far more often are not the same
model any more.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokens.plan import Workload
from tokens.prompts import Prompt

_GREEDY = Path(__file__).parents[2] / "tests" / "llm" / "smollm2_greedy.json"
_NUM_TOKENS = 32

# The library is made without types.
Tokenizer = Any


@dataclass(frozen=True, slots=True)
class Agreement:
    """How much of the reference's texts an engine said before it said something else."""

    num_equal: int
    num_texts: int
    mean_share: float


class ReferenceTexts:
    """Texts to go on with, and how they go on."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        entries = [entry for entry in json.loads(_GREEDY.read_text()) if "text" in entry]
        self.prompts = [
            Prompt(tuple(tokenizer.encode(entry["text"]).ids), entry["text"]) for entry in entries
        ]
        self.workload = Workload(
            "agreement",
            "texts of the reference",
            num_requests=len(entries),
            num_clients=8,
            num_output_tokens=_NUM_TOKENS,
        )
        self._tokenizer = tokenizer
        self._texts = [self.decode(entry["generated"]) for entry in entries]

    def decode(self, token_ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(list(token_ids))
        return text

    def compare(self, said: Sequence[str]) -> Agreement:
        """What an engine said, in the order of the prompts."""
        pairs = zip(self._texts, said, strict=True)
        shares = [common_length(text, other) / len(text) for text, other in pairs]
        num_equal = sum(share == 1 for share in shares)
        return Agreement(num_equal, len(shares), sum(shares) / len(shares))


def common_length(first: str, second: str) -> int:
    """How many characters two texts have in common at their beginning."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
