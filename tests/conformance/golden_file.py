"""Golden exchanges in text files: what is asked, and what must be answered.

    === name of the exchange
    POST /v1/models/m:predict           or the name of a gRPC method
    > origin: http://example.org        a header, if need be
    {"instances": [1.0]}                the body, or a message as text
    --- 200                             the status, then how the answer is compared, if not exactly
    {...}                               the answer: a body, a message as text, or details

An answer is compared byte for byte (messages: field by field) unless the status line says `json`,
for key orders that nobody promises, or `contains`, for texts that are TensorFlow's. The line break
that ends the answer is not part of it. Lines before the first exchange are comments.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "golden"


class Exchange(NamedTuple):
    """One request and its answer."""

    name: str
    target: str
    headers: dict[str, str]
    request: str
    status: str
    comparison: str
    answer: str


def read_exchanges(protocol: str) -> list[Exchange]:
    """All of the files `rest_*.txt` or `grpc_*.txt`."""
    return [
        exchange
        for file in sorted(FOLDER.glob(f"{protocol}_*.txt"))
        for exchange in _parse(file.read_text(), origin=file.stem)
    ]


def _parse(text: str, *, origin: str) -> Iterator[Exchange]:
    for block in f"\n{text}".split("\n=== ")[1:]:
        question, separator, answer = block.partition("\n--- ")
        assert separator, f"{origin}: {block} has no answer"
        name, target, *lines = question.split("\n")
        headers = dict(
            line.removeprefix("> ").split(": ", 1) for line in lines if line.startswith("> ")
        )
        body = "\n".join(line for line in lines if not line.startswith("> "))
        status_line, _, expected = answer.partition("\n")
        status, _, comparison = status_line.partition(" ")
        yield Exchange(
            f"{origin}: {name}",
            target,
            headers,
            body,
            status,
            comparison,
            expected.removesuffix("\n"),
        )
