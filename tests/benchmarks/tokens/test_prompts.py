"""Prompts have the length they are asked for, as text and as tokens, and begin each in its way."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

VOCABULARY = {f"Ġ{word}": index for index, word in enumerate(("house", "river", "stone", "under"))}
OTHERS = {"Ġof": 10, "house": 11, "ĠHouse": 12, "Ġhaus1": 13, "<|im_end|>": 14, "Ġüber": 15}


@pytest.fixture
def maker(import_benchmark: Callable[[str], ModuleType]) -> Any:
    return import_benchmark("tokens.prompts").PromptMaker(VOCABULARY | OTHERS)


def test_prompts_are_words_of_one_token(maker: Any) -> None:
    (prompt,) = maker.make(1, num_tokens=50, seed=1)
    assert len(prompt.token_ids) == 50
    words = prompt.text.split(" ")[1:]
    assert [VOCABULARY[f"Ġ{word}"] for word in words] == list(prompt.token_ids)


def test_seeds_make_the_same_prompts_and_others(maker: Any) -> None:
    assert maker.make(3, num_tokens=20, seed=1) == maker.make(3, num_tokens=20, seed=1)
    prompts = maker.make(3, num_tokens=20, seed=1) + maker.make(3, num_tokens=20, seed=2)
    assert len(set(prompts)) == 6


def test_what_is_shared_comes_first(maker: Any) -> None:
    shared = maker.places(15, seed=3)
    prompts = maker.make(4, num_tokens=30, seed=4, shared=shared)
    assert len({prompt.token_ids[:15] for prompt in prompts}) == 1
    assert len({prompt.token_ids[15:] for prompt in prompts}) == 4
    assert {len(prompt.token_ids) for prompt in prompts} == {30}
