"""What a language model's files say of text survives being written as other files."""

import json
from pathlib import Path

from aspira.llm.model_files import ModelFiles, ModelKind, find_model_files
from aspira.llm.model_text import ChatPrompt, TextPrompt, load_text
from aspira.llm.special_tokens import read_special_tokens
from aspira.llm.text_files import write_text_files
from language_models import smollm2_directory

CHAT = ChatPrompt([{"role": "user", "content": "Wie geht's, 12 + 3 = 15? ½"}])


def test_a_gguf_files_tokenizer_and_template(tmp_path: Path) -> None:
    files = find_model_files(smollm2_directory())
    assert files is not None
    write_text_files(files, directory=tmp_path)
    written = ModelFiles(tmp_path, ModelKind.HUGGING_FACE, tmp_path)
    assert read_special_tokens(written) == read_special_tokens(files)
    before, after = (load_text(one, max_tokens=100) for one in (files, written))
    for prompt in (CHAT, TextPrompt("  Two words\n\tand 1234.")):
        assert after.encode(prompt) == before.encode(prompt)
    assert after.vocabulary.eos_token_ids == before.vocabulary.eos_token_ids


def test_files_are_copied_and_those_beside_a_gguf_file_win(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for path in smollm2_directory().glob("*.gguf"):
        (source / "m.gguf").symlink_to(path)
    (source / "chat_template.jinja").write_text("mine")
    (source / "generation_config.json").write_text(json.dumps({"eos_token_id": 7}))
    files = find_model_files(source)
    assert files is not None
    write_text_files(files, directory=tmp_path)
    assert (tmp_path / "chat_template.jinja").read_text() == "mine"
    assert json.loads((tmp_path / "generation_config.json").read_text()) == {"eos_token_id": 7}
