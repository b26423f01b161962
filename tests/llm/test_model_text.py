"""The text side of SmolLM2: prompts to tokens and back."""

import pytest

from aspira.contracts.errors import FailedPrecondition
from aspira.llm.model_files import find_model_files
from aspira.llm.model_text import ChatPrompt, TextPrompt, TokenizerText, load_text
from language_models import smollm2_directory


@pytest.fixture(scope="module")
def smollm2() -> TokenizerText:
    files = find_model_files(smollm2_directory())
    assert files is not None
    return load_text(files, max_tokens=8192)


def test_messages_go_through_the_template(smollm2: TokenizerText) -> None:
    tokens = smollm2.encode(ChatPrompt([{"role": "user", "content": "hi"}]))
    assert smollm2.decode(tokens).endswith(
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "<|im_start|>" not in smollm2.vocabulary.decode(tokens)


def test_text_and_tokens_go_round(smollm2: TokenizerText) -> None:
    tokens = smollm2.encode(TextPrompt("Hello there"))
    assert smollm2.decode(tokens) == "Hello there"
    assert smollm2.encode(tokens) == tokens


def test_without_a_template_there_is_no_chat(smollm2: TokenizerText) -> None:
    text = TokenizerText(smollm2._tokenizer, template=None)
    with pytest.raises(FailedPrecondition, match="/v1/completions"):
        text.encode(ChatPrompt([{"role": "user", "content": "hi"}]))
