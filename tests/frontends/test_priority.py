import pytest

from aspira.frontends.priority import parse_priority


@pytest.mark.parametrize(
    ("value", "priority"),
    [
        (b"u=0", 3),
        (b"u=3", 0),
        (b"u=7", -4),
        (b"i, u=1", 2),
        (b"u=5, i", -2),
        (b"u = 2", 1),
        (b"u=6;x=1", -3),
        (b"", 0),
        (b"i", 0),
        (b"u=8", 0),
        (b"u=12", 0),
        (b"u=-1", 0),
        (b"xu=1", 0),
        (b"high", 0),
        (b"," * 100_000 + b"u=1", 0),
    ],
)
def test_urgency_is_steps_from_the_default(value: bytes, priority: int) -> None:
    assert parse_priority(value) == priority
