import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aspira.contracts.errors import DataLoss, FailedPrecondition, InvalidArgument
from aspira.llm.chat_template import ChatTemplate, read_chat_template
from aspira.llm.model_files import ModelFiles, ModelKind, find_model_files
from aspira.llm.special_tokens import SpecialTokens
from language_models import smollm2_directory

GOLDEN = json.loads((Path(__file__).parent / "smollm2_golden.json").read_text())
HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "add", "description": "a < b & 'ü'"}}


def template(source: str, **options: Any) -> ChatTemplate:
    return ChatTemplate(
        {"default": source},
        special_tokens=SpecialTokens("<s>", "</s>"),
        **{"max_characters": 10_000, **options},
    )


def read(files: ModelFiles | None) -> ChatTemplate | None:
    assert files is not None
    return read_chat_template(files, special_tokens=SpecialTokens(), max_characters=10_000)


def test_a_chat_is_rendered_as_by_transformers() -> None:
    found = read(find_model_files(smollm2_directory()))
    assert found is not None
    assert found.render(GOLDEN["chat"]["messages"]) == GOLDEN["chat"]["text"]


def test_what_a_template_is_given() -> None:
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ extra }}{{ tools is none }}"
    assert template(source).render(HELLO, variables={"extra": 7}) == "<s>Hello</s>7True"


@pytest.mark.parametrize(("adds_prompt", "text"), [(True, "go"), (False, "")])
def test_whether_an_answer_is_asked_for(*, adds_prompt: bool, text: str) -> None:
    source = "{% if add_generation_prompt %}go{% endif %}"
    assert template(source).render(HELLO, adds_prompt=adds_prompt) == text


def test_variables_do_not_replace_the_messages() -> None:
    assert (
        template("{{ messages[0].content }}").render(HELLO, variables={"messages": []}) == "Hello"
    )


def test_blocks_are_trimmed_and_loops_controlled() -> None:
    body = "    {% if m == 2 %}{% continue %}{% endif %}\n{{ m }}\n"
    source = "{% for m in [1, 2, 3] %}\n" + body + "{% endfor %}"
    assert template(source).render(HELLO) == "1\n3\n"


def test_tools_are_json_without_escapes() -> None:
    source = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    assert json.loads(template(source).render(HELLO, tools=[TOOL])) == TOOL
    assert "a < b & 'ü'" in template(source).render(HELLO, tools=[TOOL])
    assert template("{{ {'a': 1} | tojson(indent=2) }}").render(HELLO) == '{\n  "a": 1\n}'


def test_the_date_is_the_clocks() -> None:
    made = template("{{ strftime_now('%d %b %Y') }}", now=lambda: datetime(2026, 3, 4, tzinfo=UTC))
    assert made.render(HELLO) == "04 Mar 2026"


def test_generation_marks_are_passed_over() -> None:
    source = "a{% generation %}{{ messages[0].content }}{% endgeneration %}b"
    assert template(source).render(HELLO) == "aHellob"


def test_a_template_may_refuse() -> None:
    source = "{{ raise_exception('Roles must alternate') }}"
    with pytest.raises(InvalidArgument, match="template refuses: Roles must alternate"):
        template(source).render(HELLO)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content.missing.deeper }}",
        "{{ messages[7].content + 'a' }}",
        "{{ 1 / 0 }}",
        "{{ messages | join(5, 6, 7, 8) }}",
        "{{ 'a' + 1 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__['os'] }}",
        "{{ '{0.__class__}'.format(1) }}{{ 1 / 0 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 'x' %}",
        "{{ 2 ** 100000 }}",
    ],
)
def test_what_a_template_cannot_do_is_the_requests_error(source: str) -> None:
    with pytest.raises(InvalidArgument, match="chat template"):
        template(source).render(HELLO)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'ab' * 10000000000 }}",
        "{{ ([1] * 10000000000) | length }}",
        "{% for i in range(9000) %}{{ i }}{% endfor %}",
        "{% for i in range(1000000000) %}{% endfor %}",
    ],
)
def test_a_template_writes_no_more_than_fits(source: str) -> None:
    with pytest.raises(InvalidArgument, match=r"longer than 10000 characters|too big"):
        template(source).render(HELLO)


def test_a_template_that_does_not_end_is_stopped() -> None:
    loop = "{% for i in range(90000) %}"
    loops = loop * 2 + "{% set x = 1 %}" + "{% endfor %}" * 2
    with pytest.raises(InvalidArgument, match=r"takes longer than 0\.05 s"):
        template(loops, max_render_s=0.05).render(HELLO)


def test_a_limit_is_each_renderings_own() -> None:
    made = template("{{ messages[0].content }}", max_render_s=30.0)
    assert [made.render(HELLO) for _ in range(3)] == ["Hello"] * 3


@pytest.mark.parametrize("source", ["{% if %}", "{{ a b }}", "{% endfor %}"])
def test_a_template_that_is_not_jinja(source: str) -> None:
    with pytest.raises(FailedPrecondition, match="not valid, at line 1"):
        template(source)


def write(directory: Path, **files: Any) -> ModelFiles:
    for name, value in files.items():
        (directory / f"{name}.json").write_text(json.dumps(value))
    return ModelFiles(directory, ModelKind.HUGGING_FACE, directory)


def test_templates_of_a_config(tmp_path: Path) -> None:
    found = read(write(tmp_path, tokenizer_config={"chat_template": "one"}))
    assert found is not None
    assert found.render(HELLO) == "one"


def test_one_for_tools_and_one_for_the_rest(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    found = read(write(tmp_path, tokenizer_config={"chat_template": named}))
    assert found is not None
    assert (found.render(HELLO), found.render(HELLO, tools=[TOOL])) == ("plain", "tools")


def test_a_file_of_its_own_comes_first(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("own", encoding="utf-8")
    found = read(write(tmp_path, tokenizer_config={"chat_template": "one"}))
    assert found is not None
    assert found.render(HELLO) == "own"


def test_a_model_without_a_template(tmp_path: Path) -> None:
    assert read(write(tmp_path)) is None
    assert read(write(tmp_path, tokenizer_config={"eos_token": "x"})) is None


def test_templates_that_cannot_be_read(tmp_path: Path) -> None:
    named = [{"name": "rag", "template": "x"}]
    with pytest.raises(DataLoss, match="none of them is the default"):
        read(write(tmp_path, tokenizer_config={"chat_template": named}))
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(DataLoss, match="not UTF-8"):
        read(write(tmp_path))
