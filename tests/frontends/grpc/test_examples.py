import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from tensorflow.core.example import example_pb2
from tensorflow_serving.apis import classification_pb2, inference_pb2, regression_pb2

from asgi_exchange import get
from aspira.contracts.errors import Code, OutOfRange
from aspira.contracts.events import EventBus, RequestEnded
from aspira.contracts.signatures import CLASSIFY_METHOD, REGRESS_METHOD
from aspira.frontends.grpc import examples
from aspira.frontends.grpc.examples import ExamplesServicer
from aspira.frontends.grpc.methods import UnaryCall
from aspira.service.options import ServiceOptions
from aspira.settings import DEFAULT_METRICS_PATH, Settings
from aspira.testing.clock import JumpClock
from example_toys import FixedServable
from grpc_exchange import CallResult, call_request, read_result
from serving_toys import ask, single_model, write_version

SERVICE = "/tensorflow.serving.PredictionService"
ANSWERS = {
    "Classify": classification_pb2.ClassificationResponse,
    "Regress": regression_pb2.RegressionResponse,
    "MultiInference": inference_pb2.MultiInferenceResponse,
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Version 3 of the model `m`."""
    write_version(tmp_path / "m", version=3)
    return single_model(tmp_path / "m")


def add_examples(message: Any) -> Any:
    message.input.example_list.examples.extend([example_pb2.Example(), example_pb2.Example()])
    return message


def classify_request(signature_name: str = "") -> Any:
    message = classification_pb2.ClassificationRequest()
    message.model_spec.name = "m"
    message.model_spec.signature_name = signature_name
    return add_examples(message)


def regress_request(signature_name: str = "regress") -> Any:
    message = regression_pb2.RegressionRequest()
    message.model_spec.name = "m"
    message.model_spec.signature_name = signature_name
    return add_examples(message)


def multi_request(tasks: Iterable[tuple[str, str]]) -> Any:
    message = inference_pb2.MultiInferenceRequest()
    for signature_name, method_name in tasks:
        task = message.tasks.add(method_name=method_name)
        task.model_spec.name = "m"
        task.model_spec.signature_name = signature_name
    return add_examples(message)


def call(
    settings: Settings,
    method: str,
    message: Any,
    *,
    servable: FixedServable | None = None,
    headers: dict[str, str] | None = None,
) -> CallResult:
    request = call_request(f"{SERVICE}/{method}", message, headers=headers)
    loader = (servable or FixedServable()).make_runtime_loader
    (answer,) = ask(settings, request, make_runtime_loader=loader)
    result = read_result(answer, answer_class=ANSWERS[method])
    return replace(result, text=unquote(result.text))


def test_classify(settings: Settings) -> None:
    (response,) = call(settings, "Classify", classify_request()).messages
    assert response.model_spec.name == "m"
    assert response.model_spec.version.value == 3
    assert response.model_spec.signature_name == "serving_default"
    found = [
        [(one.label, round(one.score, 6)) for one in classifications.classes]
        for classifications in response.result.classifications
    ]
    assert found == [[("cat", 0.1), ("dog", 2.0)], [("\ufffd", 3.0), ('"', 4.0)]]


def test_regress(settings: Settings) -> None:
    (response,) = call(settings, "Regress", regress_request()).messages
    assert response.model_spec.version.value == 3
    assert response.model_spec.signature_name == "regress"
    assert [round(one.value, 6) for one in response.result.regressions] == [2.5, 0.333333]


def test_multi_inference(settings: Settings) -> None:
    request = multi_request([("regress", REGRESS_METHOD), ("", CLASSIFY_METHOD)])
    (response,) = call(settings, "MultiInference", request).messages
    assert [result.WhichOneof("result") for result in response.results] == [
        "regression_result",
        "classification_result",
    ]
    specs = [result.model_spec for result in response.results]
    assert [spec.signature_name for spec in specs] == ["regress", "serving_default"]
    assert {(spec.name, spec.version.value) for spec in specs} == {("m", 3)}


REFUSALS = [
    (
        "Classify",
        classification_pb2.ClassificationRequest(),
        Code.INVALID_ARGUMENT,
        "Missing ModelSpec",
    ),
    ("Regress", regression_pb2.RegressionRequest(), Code.INVALID_ARGUMENT, "Missing ModelSpec"),
    (
        "MultiInference",
        inference_pb2.MultiInferenceRequest(),
        Code.INVALID_ARGUMENT,
        "ModelSpec has no name specified.",
    ),
    (
        "Classify",
        classify_request("s"),
        Code.INVALID_ARGUMENT,
        "No signature was found with the name: s",
    ),
    (
        "Regress",
        regress_request("labels"),
        Code.INVALID_ARGUMENT,
        (
            "No regression outputs found in SignatureDef: inputs {\n"
            '  key: "inputs"\n  value {\n    name: "inputs:0"\n    dtype: DT_STRING\n'
            "    tensor_shape {\n      unknown_rank: true\n    }\n  }\n}\noutputs {\n"
            '  key: "classes"\n  value {\n    name: "classes:0"\n    dtype: DT_FLOAT\n'
            "    tensor_shape {\n      unknown_rank: true\n    }\n  }\n}\n"
            'method_name: "tensorflow/serving/classify"\n'
        ),
    ),
    (
        "MultiInference",
        multi_request([("regress", "other")]),
        Code.UNIMPLEMENTED,
        "Unsupported signature method_name: other",
    ),
]


@pytest.mark.parametrize(("method", "request_message", "code", "text"), REFUSALS)
def test_refusals(
    settings: Settings, method: str, request_message: Any, code: Code, text: str
) -> None:
    assert call(settings, method, request_message) == CallResult([], code, text)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("Classify", classify_request()),
        ("Regress", regress_request()),
        ("MultiInference", multi_request([("regress", REGRESS_METHOD)])),
    ],
)
def test_deadlines_and_the_runtimes_own_errors(
    settings: Settings, method: str, message: Any
) -> None:
    late = call(settings, method, message, headers={"grpc-timeout": "0n"})
    assert late == CallResult([], Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")
    failing = FixedServable(error=OutOfRange("x" * 2000))
    failed = call(settings, method, message, servable=failing)
    assert failed == CallResult([], Code.OUT_OF_RANGE, "x" * 1024 + "...TRUNCATED")


def test_method_names_are_checked_if_told_so(settings: Settings) -> None:
    strict = replace(settings, service=ServiceOptions(is_method_name_checked=True))
    assert call(strict, "Classify", classify_request("odd")) == CallResult(
        [],
        Code.INVALID_ARGUMENT,
        "Expected classification signature method_name to be tensorflow/serving/classify. Was: odd",
    )


def test_calls_are_counted_by_how_they_ended(settings: Settings) -> None:
    *_, page = ask(
        settings,
        call_request(f"{SERVICE}/Classify", classify_request()),
        call_request(f"{SERVICE}/Regress", regress_request()),
        call_request(f"{SERVICE}/Regress", regress_request("s")),
        call_request(f"{SERVICE}/MultiInference", multi_request([("regress", REGRESS_METHOD)])),
        call_request(f"{SERVICE}/MultiInference", inference_pb2.MultiInferenceRequest()),
        get(DEFAULT_METRICS_PATH),
        make_runtime_loader=FixedServable().make_runtime_loader,
    )
    lines = page.body.decode().splitlines()
    # The original counts all but MultiInference.
    assert ':tensorflow:serving:request_count{model_name="m",status="OK"} 2' in lines
    assert ':tensorflow:serving:request_count{model_name="m",status="INVALID_ARGUMENT"} 1' in lines
    for api in ("Classify", "Regress"):
        labels = f'model_name="m",API="{api}",entrypoint="GRPC"'
        assert f":tensorflow:serving:request_latency_count{{{labels}}} 1" in lines
    ours = ":aspira:request_count"
    for api in ("classify", "regress", "multi_inference"):
        labels = f'model_name="m",version="3",api="{api}",entrypoint="grpc",status="OK"'
        assert f"{ours}{{{labels}}} 1" in lines
    labels = 'model_name="",version="",api="multi_inference",entrypoint="grpc"'
    assert f'{ours}{{{labels},status="INVALID_ARGUMENT"}} 1' in lines


@pytest.mark.parametrize(("limit", "is_on_loop"), [(2**20, True), (1, False)])
@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("Classify", classify_request()),
        ("Regress", regress_request()),
        ("MultiInference", multi_request([("regress", REGRESS_METHOD), ("", CLASSIFY_METHOD)])),
    ],
    ids=["classify", "regress", "multi_inference"],
)
def test_only_many_examples_are_converted_off_the_loop(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    message: Any,
    limit: int,
    is_on_loop: bool,
) -> None:
    threads: list[threading.Thread] = []

    def noting(convert: Callable[..., Any]) -> Callable[..., Any]:
        def note(*arguments: Any, **options: Any) -> Any:
            threads.append(threading.current_thread())
            return convert(*arguments, **options)

        return note

    monkeypatch.setattr(examples, "LARGE_EXAMPLES_BYTES", limit)
    kind = "multi_inference" if method == "MultiInference" else "examples"
    for name in (f"decode_{kind}_request", f"encode_{kind}_response"):
        monkeypatch.setattr(examples, name, noting(getattr(examples, name)))
    assert call(settings, method, message).code is Code.OK
    assert [thread is threading.main_thread() for thread in threads] == [is_on_loop] * 2


def test_a_cancelled_call_is_counted_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_answer(inference: object, *, request: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(examples, "regress", never_answer)
    seen: list[RequestEnded] = []
    events = EventBus()
    events.subscribe_requests(seen.append)
    servicer = ExamplesServicer(
        None,  # type: ignore[arg-type]
        events=events,
        clock=JumpClock(),
    )

    async def run() -> bool:
        regressing = asyncio.create_task(servicer.regress(UnaryCall(regress_request(), None)))
        await asyncio.sleep(0)
        regressing.cancel()
        await asyncio.wait({regressing})
        return regressing.cancelled()

    assert asyncio.run(run())
    assert seen == [RequestEnded("m", None, "regress", "grpc", Code.CANCELLED, 0.0)]
