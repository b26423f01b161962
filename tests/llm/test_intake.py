"""What a request costs before it starts, and what its choices share."""

from dataclasses import replace

import pytest

from generation_toys import OPTIONS, SteppedEngine, make_request


@pytest.mark.parametrize(
    ("has_prefix_cache", "num_choices", "num_tokens"),
    [(True, 1, 17), (True, 5, 16 + 5), (False, 1, 17), (False, 5, 5 * 17)],
)
def test_the_queue_counts_what_is_to_be_computed(
    has_prefix_cache: bool, num_choices: int, num_tokens: int
) -> None:
    engine = SteppedEngine(options=replace(OPTIONS, prefix_cache=has_prefix_cache))
    engine.submit(make_request(list(range(17)), num_choices=num_choices))
    assert engine.gate.num_tokens == num_tokens
    engine.run()
    engine.check_idle()


def test_choices_share_their_prompt_and_what_follows_from_it() -> None:
    engine = SteppedEngine()
    received = engine.submit(make_request(list(range(17)), num_choices=3))
    choices = engine.generations[id(received)].choices
    engine.run()
    first, *others = (choice.sequence for choice in choices)
    for other in others:
        assert other.prompt is first.prompt
        assert other.keys[0] is first.keys[0]
