"""Classify and regress over REST, from the body to the answer, with a toy model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tensorflow.core.example import example_pb2

from asgi_exchange import Answer, get, post
from aspira.contracts.errors import OutOfRange
from aspira.service.options import ServiceOptions
from aspira.settings import DEFAULT_METRICS_PATH, Settings
from example_toys import FixedServable, signature_of
from serving_toys import ask, single_model, write_version

TWO = {"examples": [{"a": 1}, {"a": 2}]}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Version 3 of the model `m`."""
    write_version(tmp_path / "m", version=3)
    return single_model(tmp_path / "m")


def answer(
    settings: Settings, path: str, body: object, *, servable: FixedServable | None = None
) -> Answer:
    loader = (servable or FixedServable()).make_runtime_loader
    (answered,) = ask(settings, post(f"/v1/models/{path}", body=body), make_runtime_loader=loader)
    assert answered.headers["content-type"] == "application/json"
    return answered


@pytest.mark.parametrize("path", ["m", "m/versions/3"])
def test_classify(settings: Settings, path: str) -> None:
    answered = answer(settings, f"{path}:classify", TWO)
    assert answered.status == 200
    assert answered.body == (
        b'{\n    "results": [[["cat", 0.1], ["dog", 2.0]], [["\xff", 3.0], ["\\"", 4.0]]\n    ]\n}'
    )


def test_regress(settings: Settings) -> None:
    answered = answer(settings, "m:regress", {"signature_name": "regress", **TWO})
    assert answered.status == 200
    assert answered.body == b'{\n    "results": [2.5, 0.333333343]\n}'


def test_the_model_gets_serialized_examples(settings: Settings) -> None:
    servable = FixedServable()
    body = {"signature_name": "labels", "context": {"c": 3}, **TWO}
    answer(settings, "m:classify", body, servable=servable)
    ((name, (first, second), outputs),) = servable.runs
    assert (name, outputs) == ("labels", ("classes",))
    found = [
        {name: list(feature.int64_list.value) for name, feature in one.features.feature.items()}
        for one in map(example_pb2.Example.FromString, (first, second))
    ]
    assert found == [{"a": [1], "c": [3]}, {"a": [2], "c": [3]}]


@pytest.mark.parametrize("verb", ["classify", "regress"])
@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("m", b"", 400, "JSON Parse error: The document is empty"),
        ("x", {"examples": [1]}, 400, "Example must be JSON object but got JSON Number"),
        ("x", TWO, 404, "Servable not found for request: Latest(x)"),
        ("m/versions/1", TWO, 404, "Servable not found for request: Specific(m, 1)"),
        ("m/labels/l", TWO, 400, "Unrecognized servable version label: l"),
        (
            "m",
            {"signature_name": "s", **TWO},
            400,
            "No signature was found with the name: s",
        ),
        ("m", {"signature_name": "odd", "examples": [{}]}, 400, None),
    ],
)
def test_refusals(
    settings: Settings, verb: str, path: str, body: object, status: int, text: str | None
) -> None:
    noun = {"classify": "classification", "regress": "regression"}[verb]
    answered = answer(settings, f"{path}:{verb}", body)
    assert answered.status == status
    if text is None:
        assert answered.error.startswith(f"No {noun} inputs found in SignatureDef: inputs {{\n")
    else:
        assert answered.error == text


def test_the_runtimes_own_error_is_passed_on_whole(settings: Settings) -> None:
    servable = FixedServable(error=OutOfRange("x" * 2000))
    answered = answer(settings, "m:classify", TWO, servable=servable)
    assert (answered.status, answered.error) == (400, "x" * 2000)


@pytest.mark.parametrize(
    ("verb", "body", "status", "text"),
    [
        (
            "classify",
            TWO,
            400,
            (
                "Expected classification signature method_name to be tensorflow/serving/classify. "
                "Was: odd"
            ),
        ),
        (
            "regress",
            TWO,
            400,
            "Expected regression signature method_name to be tensorflow/serving/regress. Was: odd",
        ),
        (
            "predict",
            {"instances": [{"y": "a"}]},
            500,
            (
                "Expected prediction signature method_name to be one of "
                "{tensorflow/serving/predict, tensorflow/serving/classify, "
                "tensorflow/serving/regress}. Was: odd"
            ),
        ),
    ],
)
def test_method_names_are_checked_if_told_so(
    settings: Settings, verb: str, body: dict[str, object], status: int, text: str
) -> None:
    strict = replace(settings, service=ServiceOptions(is_method_name_checked=True))
    answered = answer(strict, f"m:{verb}", {"signature_name": "odd", **body})
    assert (answered.status, answered.error) == (status, text)


def test_large_bodies_and_results(settings: Settings) -> None:
    num_examples = 10_000
    outputs = {"outputs": np.ones(num_examples, np.float32)}
    servable = FixedServable({"serving_default": signature_of("outputs")}, outputs=outputs)
    body = b'{"examples": [' + b",".join([b"{}"] * num_examples) + b"]}"
    answered = answer(settings, "m:regress", body, servable=servable)
    assert answered.body == (b'{\n    "results": [' + b", ".join([b"1.0"] * num_examples) + b"]\n}")


def test_requests_are_counted_by_how_they_ended(settings: Settings) -> None:
    *_, page = ask(
        settings,
        post("/v1/models/m:classify", body=TWO),
        post("/v1/models/m:regress", body=TWO),
        get(DEFAULT_METRICS_PATH),
        make_runtime_loader=FixedServable().make_runtime_loader,
    )
    lines = page.body.decode().splitlines()
    assert ':tensorflow:serving:request_count{model_name="m",status="OK"} 1' in lines
    assert ':tensorflow:serving:request_count{model_name="m",status="INVALID_ARGUMENT"} 1' in lines
    assert (
        ":tensorflow:serving:request_latency_count"
        '{model_name="m",API="classify",entrypoint="REST"} 1'
    ) in lines
    assert (
        ":aspira:request_count"
        '{model_name="m",version="3",api="classify",entrypoint="rest",status="OK"} 1'
    ) in lines
