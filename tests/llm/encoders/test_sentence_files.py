import json
from pathlib import Path
from typing import Any

import pytest

from aspira.contracts.errors import DataLoss, InvalidArgument, ServingError, Unimplemented
from aspira.llm.encoders.sentence_files import SentenceRules, read_sentence_rules
from encoder_models import minilm_directory, write_encoder, write_sentence_files


def test_those_of_the_package() -> None:
    assert read_sentence_rules(minilm_directory()) == SentenceRules(
        "mean", is_normalized=True, max_tokens=256
    )


def test_a_plain_hugging_face_directory_has_the_mean(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    assert read_sentence_rules(tmp_path) == SentenceRules("mean", is_normalized=False)


def test_what_files_say_of_texts(tmp_path: Path) -> None:
    write_encoder(tmp_path, matryoshka_dimensions=[4, 8], is_matryoshka=True)
    write_sentence_files(tmp_path, pooling="cls_token")
    for name, fields in {
        "sentence_bert_config.json": {"max_seq_length": 20, "do_lower_case": True},
        "tokenizer_config.json": {"model_max_length": 30},
        "config_sentence_transformers.json": {
            "prompts": {"query": "query: "}, "default_prompt_name": "query",
        },
    }.items():  # fmt: skip
        (tmp_path / name).write_text(json.dumps(fields))
    assert read_sentence_rules(tmp_path) == SentenceRules(
        "cls",
        is_normalized=True,
        max_tokens=20,
        is_lowercased=True,
        prompt="query: ",
        dimensions=(4, 8),
        has_any_dimension=True,
    )


def test_a_pooling_that_is_named(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    write_sentence_files(tmp_path)
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    assert read_sentence_rules(tmp_path).pooling == "cls"


def module(kind: str, path: str) -> dict[str, str]:
    return {"type": f"sentence_transformers.models.{kind}", "path": path}


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("modules.json", [module("Dense", "2_Dense")], Unimplemented, "type Dense is not served"),
        ("modules.json", [module("Pooling", "../x")], InvalidArgument, "not the name of a folder"),
        ("modules.json", [module("Pooling", "a")] * 2, Unimplemented, "several parts of one type"),
        ("modules.json", [{"type": "x"}], DataLoss, "does not list the parts"),
        ("modules.json", {"type": "x"}, DataLoss, "does not list the parts"),
        ("1_Pooling/config.json", {}, Unimplemented, "pooling none is not served"),
        (
            "1_Pooling/config.json",
            {"pooling_mode_lasttoken": True, "pooling_mode_cls_token": True},
            Unimplemented,
            "pooling lasttoken and cls is not served",
        ),
        (
            "1_Pooling/config.json",
            {"pooling_mode": "mean", "include_prompt": False},
            Unimplemented,
            "include_prompt",
        ),
        (
            "config_sentence_transformers.json",
            {"default_prompt_name": "query"},
            InvalidArgument,
            "no text for default_prompt_name = 'query'",
        ),
    ],
)
def test_what_is_not_served(
    tmp_path: Path, name: str, content: Any, error: type[ServingError], message: str
) -> None:
    write_encoder(tmp_path)
    write_sentence_files(tmp_path)
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(error, match=message):
        read_sentence_rules(tmp_path)
