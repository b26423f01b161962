"""Writes the text side of a language model as the files that Hugging Face has for it."""

import shutil
from pathlib import Path

import orjson

from aspira.llm.chat_template import TEMPLATE_FILE
from aspira.llm.gguf_tokenizer import build_tokenizer
from aspira.llm.model_files import CONFIG_FILE, ModelFiles, ModelKind
from aspira.llm.special_tokens import (
    GENERATION_CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
    read_special_tokens,
)
from aspira.llm.tokenizer import TOKENIZER_FILE
from aspira.llm.weights.gguf_file import GgufFile

_FILES = (
    CONFIG_FILE,
    TOKENIZER_FILE,
    TOKENIZER_CONFIG_FILE,
    GENERATION_CONFIG_FILE,
    TEMPLATE_FILE,
)


def write_text_files(files: ModelFiles, *, directory: Path) -> None:
    """Tokenizer, special tokens and chat template, copied or made from a GGUF file's own.

    Raises:
        ServingError: a GGUF file's tokenizer cannot be rebuilt.
    """
    if files.kind is ModelKind.GGUF:
        _write_from_gguf(files, directory=directory)
    for name in _FILES:
        path = files.find(name)
        if path is not None:
            shutil.copyfile(path, directory / name)


def _write_from_gguf(files: ModelFiles, *, directory: Path) -> None:
    file = GgufFile(files.weights)
    special = read_special_tokens(files)
    template = file.metadata.get("tokenizer.chat_template")
    tokenizer_config = {"bos_token": special.bos, "eos_token": special.eos}
    if template is not None:
        tokenizer_config["chat_template"] = template
    _write_json(directory / TOKENIZER_CONFIG_FILE, value=tokenizer_config)
    _write_json(
        directory / GENERATION_CONFIG_FILE, value={"eos_token_id": sorted(special.stop_ids)}
    )
    if files.find(TOKENIZER_FILE) is None:
        build_tokenizer(file).save(str(directory / TOKENIZER_FILE))


def _write_json(path: Path, *, value: object) -> None:
    path.write_bytes(orjson.dumps(value))
