import asyncio
from pathlib import Path

import pytest
from tensorflow_serving.apis.get_model_status_pb2 import (
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelVersionStatus,
)
from tensorflow_serving.apis.model_management_pb2 import (
    ReloadConfigRequest,
    ReloadConfigResponse,
)

from aspira.contracts.errors import Code
from aspira.contracts.events import WarmupFinished
from aspira.service.model_config import ModelConfigs
from aspira.settings import Settings
from aspira.wire.text_format import parse_text
from grpc_exchange import CallResult, call, call_request, read_result
from serving_toys import (
    ask,
    config_entry,
    config_list,
    listed_models,
    running,
    single_model,
    write_version,
)

STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"

State = ModelVersionStatus.State


def status_request(
    name: str, *, version: int | None = None, label: str = ""
) -> GetModelStatusRequest:
    request = GetModelStatusRequest()
    request.model_spec.name = name
    if version is not None:
        request.model_spec.version.value = version
    if label:
        request.model_spec.version_label = label
    return request


def reload_request(text: str) -> ReloadConfigRequest:
    request = ReloadConfigRequest()
    parse_text(text, into=request.config, origin="test")
    return request


def status(settings: Settings, request: GetModelStatusRequest) -> CallResult:
    (answer,) = ask(settings, call_request(STATUS, request))
    return read_result(answer, answer_class=GetModelStatusResponse)


def states(result: CallResult) -> list[tuple[int, str]]:
    (response,) = result.messages
    return [(entry.version, State.Name(entry.state)) for entry in response.model_version_status]


def reload(
    settings: Settings, text: str, *, then: GetModelStatusRequest
) -> tuple[CallResult, CallResult]:
    """What the reload answered, and the status of a model after it."""
    reloading, asking = ask(
        settings, call_request(RELOAD, reload_request(text)), call_request(STATUS, then)
    )
    return (
        read_result(reloading, answer_class=ReloadConfigResponse),
        read_result(asking, answer_class=GetModelStatusResponse),
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Versions 1 and 2 of the model `m`, of which 2 has the label `next`."""
    write_version(tmp_path / "m", version=1)
    write_version(tmp_path / "m", version=2)
    fields = "model_version_policy { all {} } version_labels { key: 'next' value: 2 }"
    return listed_models(
        tmp_path / "models.txt", entries=[config_entry(tmp_path / "m", fields=fields)]
    )


def test_all_versions_are_told_newest_first(settings: Settings) -> None:
    result = status(settings, status_request("m"))
    assert states(result) == [(2, "AVAILABLE"), (1, "AVAILABLE")]
    (response,) = result.messages
    for entry in response.model_version_status:
        assert entry.status.error_code == Code.OK
        assert entry.status.error_message == ""


def test_one_version_can_be_asked_for(settings: Settings) -> None:
    assert states(status(settings, status_request("m", version=1))) == [(1, "AVAILABLE")]


def test_a_label_names_one_version(settings: Settings) -> None:
    assert states(status(settings, status_request("m", label="next"))) == [(2, "AVAILABLE")]


@pytest.mark.parametrize(
    ("request_message", "code", "text"),
    [
        (GetModelStatusRequest(), Code.INVALID_ARGUMENT, "Missing ModelSpec"),
        (status_request(""), Code.INVALID_ARGUMENT, "ModelSpec has no name specified."),
        (status_request("a"), Code.NOT_FOUND, "Could not find any versions of model a"),
        (status_request("m", version=7), Code.NOT_FOUND, "Could not find version 7 of model m"),
        (
            status_request("m", label="old"),
            Code.INVALID_ARGUMENT,
            "Unrecognized servable version label: old",
        ),
    ],
    ids=["no spec", "no name", "no model", "no version", "no label"],
)
def test_refusals(
    settings: Settings, request_message: GetModelStatusRequest, code: Code, text: str
) -> None:
    assert status(settings, request_message) == CallResult([], code, text)


def test_a_version_that_failed_to_load_has_ended_with_its_error(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1, load_error="no variables")
    result = status(single_model(tmp_path / "m"), status_request("m"))
    assert states(result) == [(1, "END")]
    (entry,) = result.messages[0].model_version_status
    assert entry.status.error_code == Code.DATA_LOSS
    assert entry.status.error_message == "no variables"


def test_a_reload_replaces_the_models_and_returns_when_they_are_there(
    settings: Settings, tmp_path: Path
) -> None:
    write_version(tmp_path / "n", version=5)

    async def run() -> list[CallResult]:
        async with running(settings) as server:
            reloaded = await call(
                server.application,
                path=RELOAD,
                message=reload_request(config_list(config_entry(tmp_path / "n"))),
                answer_class=ReloadConfigResponse,
            )
            asked = [
                await call(
                    server.application,
                    path=STATUS,
                    message=status_request(name),
                    answer_class=GetModelStatusResponse,
                )
                for name in ("n", "m")
            ]
            return [reloaded, *asked]

    reloaded, added, dropped = asyncio.run(run())
    assert reloaded.code is Code.OK
    assert reloaded.messages[0].HasField("status")
    assert reloaded.messages[0].status.error_code == Code.OK
    assert states(added) == [(5, "AVAILABLE")]
    assert {state for _, state in states(dropped)} <= {"UNLOADING", "END"}


def test_a_reload_may_leave_no_model_at_all(settings: Settings) -> None:
    reloaded, after = reload(settings, "model_config_list {}", then=status_request("m"))
    assert reloaded.code is Code.OK
    assert {state for _, state in states(after)} <= {"UNLOADING", "END"}


@pytest.mark.parametrize("text", ["", "custom_model_config {}"])
def test_a_reload_of_anything_but_a_list_is_refused(settings: Settings, text: str) -> None:
    reloaded, after = reload(settings, text, then=status_request("m"))
    assert reloaded == CallResult(
        [],
        Code.INVALID_ARGUMENT,
        "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
        "ModelConfigList is currently supported",
    )
    assert states(after) == [(2, "AVAILABLE"), (1, "AVAILABLE")]


def test_a_reload_with_a_wrong_entry_changes_nothing(settings: Settings, tmp_path: Path) -> None:
    entry = config_entry(tmp_path / "n")
    reloaded, after = reload(settings, config_list(entry, entry), then=status_request("m"))
    assert reloaded == CallResult(
        [], Code.INVALID_ARGUMENT, "Illegal to list model n multiple times in config list"
    )
    assert states(after) == [(2, "AVAILABLE"), (1, "AVAILABLE")]


def test_a_reload_cannot_move_a_label_to_a_version_that_is_not_there(
    settings: Settings, tmp_path: Path
) -> None:
    fields = "model_version_policy { all {} } version_labels { key: 'next' value: 3 }"
    text = config_list(config_entry(tmp_path / "m", fields=fields))
    reloaded, after = reload(settings, text, then=status_request("m", label="next"))
    assert reloaded == CallResult(
        [],
        Code.FAILED_PRECONDITION,
        "Request to assign label to version 3 of model m, which is not currently available for "
        "inference",
    )
    assert states(after) == [(2, "AVAILABLE")]


def test_a_reload_tells_which_model_failed(settings: Settings, tmp_path: Path) -> None:
    write_version(tmp_path / "n", version=5, load_error="no variables")
    reloaded, after = reload(
        settings, config_list(config_entry(tmp_path / "n")), then=status_request("n")
    )
    assert reloaded == CallResult(
        [],
        Code.UNKNOWN,
        "1 model(s) did not become available: "
        "{{name: n version: 5} due to error: DATA_LOSS: no variables}, }",
    )
    assert states(after) == [(5, "END")]


def test_a_reload_tells_which_model_is_missing(settings: Settings, tmp_path: Path) -> None:
    reloaded, _ = reload(
        settings, config_list(config_entry(tmp_path / "n")), then=status_request("n")
    )
    assert reloaded.code is Code.UNKNOWN
    assert f"Could not find base path {tmp_path / 'n'} for servable n" in reloaded.text


def test_a_reload_tells_by_how_much_counters_have_grown(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1)
    request = reload_request(config_list(config_entry(tmp_path / "m")))
    names = (
        "/tensorflow/serving/model_warmup_records_read",
        "/tensorflow/serving/request_latency",
        "/nothing",
    )
    # The same name twice is told once.
    request.metric_names.extend([*names, names[0]])

    async def run() -> CallResult:
        async with running(single_model(tmp_path / "m")) as server:
            server._metrics.on_lifecycle(WarmupFinished("/m/1", num_records=2, duration_s=1))
            models, reload = server._models, server._models.reload

            async def reload_with_warmup(configs: ModelConfigs) -> None:
                await reload(configs)
                server._metrics.on_lifecycle(WarmupFinished("/m/1", num_records=5, duration_s=1))

            models.reload = reload_with_warmup  # type: ignore[method-assign]
            return await call(
                server.application, path=RELOAD, message=request, answer_class=ReloadConfigResponse
            )

    (response,) = asyncio.run(run()).messages
    assert {metric.name: metric.int64_value_increase for metric in response.metric} == {
        names[0]: 5,
        names[1]: 0,
        names[2]: 0,
    }
    assert len(response.metric) == len(names)
