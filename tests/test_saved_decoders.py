"""One version of an exported decoder: a language model, and plain predictions, by one server."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models

from asgi_exchange import Answer, Request
from aspira.cli import main
from aspira.contracts.errors import InvalidArgument
from aspira.llm.model_files import OPTIONS_FILE
from aspira.llm.saved_decoders.next_token import NextTokenServable
from aspira.llm.saved_decoders.shared_session import SharedSession
from aspira.version_loaders import make_runtime_loader
from language_models import tiny_weights, write_hugging_face
from serving_toys import ask, single_model

PROMPT = [3, 14, 15, 9, 26]
NUM_TOKENS = 40


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was exported by the command; token `i` is the character 33 + `i`."""
    directory = tmp_path_factory.mktemp("models")
    weights = tiny_weights(has_head=True, has_bias=True, has_head_norms=False)
    write_hugging_face(directory / "source", architecture="Qwen2ForCausalLM", weights=weights)
    backend = tokenizers.Tokenizer(models.BPE({chr(33 + i): i for i in range(61)}, []))
    backend.decoder = decoders.ByteLevel()
    backend.save(str(directory / "source" / "tokenizer.json"))
    base = directory / "m"
    source, destination = str(directory / "source"), str(base / "1")
    assert main.run(["export", "--to", "savedmodel", source, destination]) == 0
    (base / "1" / OPTIONS_FILE).write_text("[decoder]\ncache_mib = 1\n")
    return base


@pytest.fixture(scope="module")
def next_token(base_path: Path) -> Iterator[NextTokenServable]:
    servable = NextTokenServable(SharedSession(base_path / "1"))
    yield servable
    servable.unload()


def run_next_token(servable: NextTokenServable, rows: Any) -> Any:
    inputs = {"input_ids": np.asarray(rows, np.int64)}
    return servable.run("generate_step", inputs=inputs, outputs=("predicted_id",))["predicted_id"]


def post(path: str, body: Any) -> Request:
    return Request("POST", path, chunks=(json.dumps(body).encode(),))


def complete(prompt: list[int], num_tokens: int) -> Request:
    order = {"prompt": prompt, "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
    return post("/v1/completions", {"model": "m", **order})


def predict(rows: list[list[int]], **fields: Any) -> Request:
    return post("/v1/models/m:predict", {"inputs": {"input_ids": rows}, **fields})


def text_of(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    return str(json.loads(answer.body)["choices"][0]["text"])


def test_token_by_token_predictions_spell_what_the_engine_generates(base_path: Path) -> None:
    generated, listed = ask(
        single_model(base_path), complete(PROMPT, NUM_TOKENS), Request("GET", "/v1/models")
    )
    tokens = [ord(character) - 33 for character in text_of(generated)]
    assert len(tokens) == NUM_TOKENS
    assert [one["id"] for one in json.loads(listed.body)["data"]] == ["m"]
    prefixes = [[*PROMPT, *tokens[:length]] for length in range(NUM_TOKENS)]
    longest = len(prefixes[-1])
    rows = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
    [named, default] = ask(
        single_model(base_path), predict(rows, signature_name="generate_step"), predict(rows)
    )
    assert json.loads(named.body) == {"outputs": tokens}
    assert json.loads(default.body) == {"outputs": tokens}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[3, 61]], "the token 61; the model's tokens are 0 to 60"),
        ([[3, -2]], "the token -2; the model's tokens are 0 to 60"),
        ([[3, 4], [-1, -1]], "a row without tokens"),
        ([[-1, 3]], "a row without tokens"),
        ([[3, -1, 4]], "-1 before a token"),
        ([[]], "a row without tokens"),
        ([3], "two dimensions"),
    ],
)
def test_what_are_no_rows_of_tokens_is_refused_in_words(
    next_token: Any, rows: Any, said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        run_next_token(next_token, rows)


def test_rows_are_filled_up_at_their_end(next_token: Any) -> None:
    [alone] = run_next_token(next_token, [PROMPT])
    assert run_next_token(next_token, [[*PROMPT, -1], [*PROMPT, 7]])[0] == alone
    assert run_next_token(next_token, np.zeros((0, 3), np.int64)).shape == (0,)


def test_only_predictions_are_signatures(base_path: Path) -> None:
    metadata, step = ask(
        single_model(base_path),
        Request("GET", "/v1/models/m/metadata"),
        predict([[1]], signature_name="init_cache"),
    )
    defined = json.loads(metadata.body)["metadata"]["signature_def"]["signature_def"]
    assert defined.keys() == {"generate_step", "serving_default"}
    assert (step.status, b"init_cache" in step.body) == (400, True)


def test_predictions_are_batched_and_seen_in_the_metrics(base_path: Path) -> None:
    settings = single_model(base_path)
    settings = replace(settings, batching=replace(settings.batching, is_enabled=True))
    alone, together, page = ask(
        settings,
        predict([PROMPT]),
        predict([PROMPT[::-1], PROMPT]),
        Request("GET", "/monitoring/prometheus/metrics"),
    )
    assert json.loads(together.body)["outputs"][1:] == json.loads(alone.body)["outputs"]
    page_text = page.body.decode()
    assert ':aspira:requests_waiting{model_name="m"' in page_text
    assert 'aspira:requests_accepted_total{model_name="m"' in page_text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to=savedmodel", "nowhere"], "two directories are wanted"),
        (["--to=onnx", "a", "b"], "'onnx'; name one of openvino, savedmodel"),
        (["a", "b"], "name one of openvino, savedmodel"),
        (["--to=savedmodel", "--precision=int4", "a", "b"], "'int4'; a SavedModel has one of"),
        (["--to=savedmodel", "a", "b"], "a holds no GGUF file"),
        (["--to=savedmodel", "--bits=4", "a", "b"], "unknown argument: --bits=4"),
    ],
)
def test_what_cannot_be_exported(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["export", *arguments]) == 255
    assert said in capsys.readouterr().err


def test_nothing_is_overwritten(base_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = base_path.parent / "source"
    assert main.run(["export", "--to=savedmodel", str(source), str(base_path / "1")]) == 255
    assert "is there already" in capsys.readouterr().err
    assert sorted(path.name for path in base_path.iterdir()) == ["1"]


def test_help_tells_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["export", "--help"]) == 0
    assert "--precision" in capsys.readouterr().out


def test_tensorflow_alone_serves_its_predictions(base_path: Path, tmp_path: Path) -> None:
    """As a server does that has never heard of language models."""
    plain = tmp_path / "m" / "1"
    shutil.copytree(base_path / "1", plain, ignore=shutil.ignore_patterns("assets.extra"))
    [answer] = ask(
        single_model(plain.parent),
        predict([PROMPT], signature_name="generate_step"),
        make_runtime_loader=make_runtime_loader,
    )
    [expected] = ask(single_model(base_path), predict([PROMPT]))
    assert json.loads(answer.body) == json.loads(expected.body)
