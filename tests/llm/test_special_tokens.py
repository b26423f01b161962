import json
from pathlib import Path
from typing import Any

import pytest

from aspira.llm.model_files import ModelFiles, ModelKind, find_model_files
from aspira.llm.special_tokens import SpecialTokens, read_special_tokens
from language_models import smollm2_directory


def test_those_of_a_gguf_file() -> None:
    files = find_model_files(smollm2_directory())
    assert files is not None
    assert read_special_tokens(files) == SpecialTokens("<|im_start|>", "<|im_end|>", frozenset({2}))


@pytest.mark.parametrize(
    ("config", "generation", "stop_ids"),
    [
        ({"eos_token_id": 5}, {}, {5}),
        ({"eos_token_id": 5}, {"eos_token_id": [7, 8]}, {7, 8}),
        ({"eos_token_id": [1, 2]}, {"eos_token_id": 3}, {3}),
        ({}, {}, set()),
        ({"eos_token_id": None}, {}, set()),
    ],
)
def test_those_of_a_hugging_face_directory(
    tmp_path: Path, config: Any, generation: Any, stop_ids: set[int]
) -> None:
    tokenizer = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>"}
    texts = {"config": config, "generation_config": generation, "tokenizer_config": tokenizer}
    for name, value in texts.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    files = ModelFiles(tmp_path, ModelKind.HUGGING_FACE, tmp_path)
    assert read_special_tokens(files) == SpecialTokens("<s>", "</s>", frozenset(stop_ids))


def test_files_that_are_not_there_name_nothing(tmp_path: Path) -> None:
    files = ModelFiles(tmp_path, ModelKind.HUGGING_FACE, tmp_path)
    assert read_special_tokens(files) == SpecialTokens()
