"""Each behaviour that is better on purpose, and with `--compat=strict` the original's."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asgi_exchange import Answer, Request, exchange, get, post
from aspira.app import Server, read_model_configs
from aspira.cli.flag_table import server_flags
from aspira.cli.flags import parse_flags
from aspira.compat import RESTORATIONS, restore_original
from aspira.contracts.errors import FailedPrecondition, ServingError
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ModelName, ModelSpec, VersionLabel
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensors
from aspira.settings import Settings
from aspira.testing.toy_servable import ToyServable
from serving_toys import (
    _wait_loaded,
    config_entry,
    config_list,
    listed_models,
    make_toy_loader,
    running,
    single_model,
    write_version,
)

M = ModelName("m")
IS_STRICT = pytest.mark.parametrize("is_strict", [False, True], ids=["better", "strict"])
# What is not seen in one process; tests/system has it.
TESTED_ELSEWHERE = {"process.is_drained"}


def chosen(settings: Settings, *, is_strict: bool) -> Settings:
    return restore_original(settings) if is_strict else settings


def setting_names() -> set[str]:
    return {restoration.setting for restoration in RESTORATIONS}


def value_of(settings: Settings, name: str) -> object:
    group, _, field = name.partition(".")
    return getattr(getattr(settings, group), field)


def test_strict_turns_each_setting_of_the_table_and_no_other() -> None:
    strict = restore_original(Settings())
    for name in setting_names():
        assert value_of(strict, name) is not value_of(Settings(), name)
    assert len(setting_names()) == len(RESTORATIONS)
    back = restore_original(Settings())
    for name in setting_names():
        group, _, field = name.partition(".")
        default = value_of(Settings(), name)
        back = replace(back, **{group: replace(getattr(back, group), **{field: default})})
    assert back == Settings()


@pytest.mark.parametrize(
    ("arguments", "is_health_enabled", "is_url_lenient"),
    [
        ([], True, True),
        (["--compat=better"], True, True),
        (["--compat=strict"], False, False),
        (["--compat=strict", "--compat=better"], True, True),
        (["--enable_grpc_healthcheck_service", "--compat=strict"], True, False),
    ],
)
def test_a_flag_beside_it_wins(
    arguments: list[str], is_health_enabled: bool, is_url_lenient: bool
) -> None:
    flags = server_flags(default_rest_port=8501)
    settings = parse_flags(arguments, flags=flags, settings=Settings()).settings
    assert settings.grpc.is_health_enabled is is_health_enabled
    assert settings.rest.is_url_lenient is is_url_lenient


@dataclass
class Stage:
    """A running server and the directory of its models."""

    server: Server
    base: Path

    async def ask(self, request: Request) -> Answer:
        return await exchange(self.server.application, request=request)

    async def predict(self, name: str = "m") -> Answer:
        return await self.ask(post(f"/v1/models/{name}:predict", body={"instances": [2.0]}))

    async def scan(self) -> None:
        """Look for versions, and let what was found load."""
        await self.server._source.scan()
        await _wait_loaded(self.server._manager)


def play(scenario: Callable[[Stage], Awaitable[None]], *, base: Path, settings: Settings) -> None:
    async def run() -> None:
        async with running(settings) as server:
            await scenario(Stage(server, base))

    asyncio.run(run())


def one_model(base: Path, *, is_strict: bool) -> Settings:
    """A server of `m`, whose version 1 is there."""
    write_version(base / "m", version=1)
    return chosen(single_model(base / "m"), is_strict=is_strict)


# service.is_every_model_awaited


async def start(settings: Settings) -> None:
    """Start a server and end it, whatever comes of it."""
    server = Server(settings, make_runtime_loader=make_toy_loader)
    try:
        await server.start()
    finally:
        assert await server.drain(grace_s=30)


@IS_STRICT
def test_a_model_that_fails_is_served_around_or_ends_the_start(
    is_strict: bool, tmp_path: Path
) -> None:
    write_version(tmp_path / "good", version=1)
    write_version(tmp_path / "bad", version=2, load_error="no variables")
    entries = [config_entry(tmp_path / "good"), config_entry(tmp_path / "bad")]
    settings = chosen(listed_models(tmp_path / "config", entries=entries), is_strict=is_strict)
    if is_strict:
        with pytest.raises(ServingError) as caught:
            asyncio.run(start(settings))
        assert str(caught.value) == (
            "UNKNOWN: 1 servable(s) did not become available: {{name: bad version: 2} due to "
            "error: DATA_LOSS: no variables}, }"
        )
        return

    async def scenario(stage: Stage) -> None:
        assert (await stage.predict("good")).status == 200

    play(scenario, base=tmp_path, settings=settings)


@IS_STRICT
@pytest.mark.parametrize("is_reload", [False, True], ids=["start", "reload"])
def test_a_model_without_a_directory_is_passed_over_or_waited_for(
    is_strict: bool, is_reload: bool, tmp_path: Path
) -> None:
    settings = single_model(tmp_path / "m")
    settings = replace(settings, lifecycle=replace(settings.lifecycle, poll_interval_s=0.01))
    settings = chosen(settings, is_strict=is_strict)

    async def run() -> None:
        server = Server(settings, make_runtime_loader=make_toy_loader)
        configs = read_model_configs(settings.models)
        if is_reload:
            await server._models.start({})
            waiting = asyncio.ensure_future(server._models.reload(configs))
        else:
            waiting = asyncio.ensure_future(server.start())
        while (listing := server._source.listing(M)) is None or not listing.problem:
            await asyncio.sleep(0.01)
        if is_strict:
            await server._source.scan()
            assert not waiting.done()
            write_version(tmp_path / "staging", version=1).parent.rename(tmp_path / "m")
            await waiting
            assert server._models.unavailable() == {}
        elif is_reload:
            with pytest.raises(ServingError, match="1 model\\(s\\) did not become available"):
                await waiting
        else:
            await waiting
            assert server._models.unavailable().keys() == {M}
        assert await server.drain(grace_s=30)

    asyncio.run(run())


@IS_STRICT
def test_the_newest_version_that_ended_decides_only_where_no_newer_one_is_ready(
    is_strict: bool, tmp_path: Path
) -> None:
    """Both ways an older failure is no obstacle."""
    write_version(tmp_path / "m", version=1, load_error="old")
    write_version(tmp_path / "m", version=2)
    entry = config_entry(tmp_path / "m", fields="model_version_policy { all {} }")
    settings = listed_models(tmp_path / "config", entries=[entry])
    one_thread = replace(settings.lifecycle, num_load_threads=1)
    settings = chosen(replace(settings, lifecycle=one_thread), is_strict=is_strict)

    async def scenario(stage: Stage) -> None:
        assert (await stage.predict()).json == {"predictions": [3.0]}

    play(scenario, base=tmp_path, settings=settings)


# service.is_unready_unavailable


@IS_STRICT
def test_a_model_that_is_not_ready_is_unavailable_or_not_found(
    is_strict: bool, tmp_path: Path
) -> None:
    async def scenario(stage: Stage) -> None:
        (tmp_path / "m" / "1").rename(tmp_path / "aside")
        await stage.scan()
        await stage.server._manager.wait_until(
            lambda: stage.server._models.unavailable().keys() == {M}
        )
        answer = await stage.predict()
        assert answer.status == (404 if is_strict else 503)
        assert answer.error == "Servable not found for request: Latest(m)"
        unknown = await stage.predict("other")
        assert (unknown.status, unknown.error) == (
            404,
            "Servable not found for request: Latest(other)",
        )
        gone = await stage.ask(post("/v1/models/m/versions/1:predict", body={"instances": [2.0]}))
        assert gone.status == 404

    play(scenario, base=tmp_path, settings=one_model(tmp_path, is_strict=is_strict))


# lifecycle.is_model_listed_alone


@IS_STRICT
def test_a_base_path_that_is_gone_hides_itself_or_all(is_strict: bool, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_version(tmp_path / name, version=1)
    entries = [config_entry(tmp_path / "a"), config_entry(tmp_path / "b")]
    settings = chosen(listed_models(tmp_path / "config", entries=entries), is_strict=is_strict)

    async def scenario(stage: Stage) -> None:
        (tmp_path / "a").rename(tmp_path / "aside")
        write_version(tmp_path / "b", version=2)
        await stage.scan()
        assert (await stage.predict("a")).json == {"predictions": [2.0]}
        assert (await stage.predict("b")).json == {"predictions": [2.0 if is_strict else 3.0]}
        (tmp_path / "aside").rename(tmp_path / "a")
        await stage.scan()
        assert (await stage.predict("b")).json == {"predictions": [3.0]}

    play(scenario, base=tmp_path, settings=settings)


# lifecycle.is_failed_version_retried


@IS_STRICT
@pytest.mark.parametrize("how", ["files", "reload"])
def test_a_failed_version_is_tried_again_or_left(is_strict: bool, how: str, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        path = write_version(tmp_path / "m", version=2, load_error="half")
        await stage.scan()
        assert (await stage.predict()).json == {"predictions": [2.0]}
        (path / "load_error.txt").write_text("")
        if how == "reload":
            await stage.server._models.reload(stage.server._models.configs)
        await stage.scan()
        assert (await stage.predict()).json == {"predictions": [2.0 if is_strict else 3.0]}

    play(scenario, base=tmp_path, settings=one_model(tmp_path, is_strict=is_strict))


# lifecycle.is_rest_awaited


@IS_STRICT
def test_a_directory_that_is_being_written_waits_or_is_loaded(
    is_strict: bool, tmp_path: Path
) -> None:
    settings = one_model(tmp_path, is_strict=is_strict)
    polled = replace(settings.lifecycle, poll_interval_s=3600.0)

    async def scenario(stage: Stage) -> None:
        write_version(tmp_path / "m", version=2)
        await stage.scan()
        assert (await stage.predict()).json == {"predictions": [3.0 if is_strict else 2.0]}

    play(scenario, base=tmp_path, settings=replace(settings, lifecycle=polled))


# lifecycle.is_moved_version_reloaded


@IS_STRICT
def test_another_base_path_is_loaded_or_only_its_new_numbers(
    is_strict: bool, tmp_path: Path
) -> None:
    settings = one_model(tmp_path, is_strict=is_strict)
    write_version(tmp_path / "other", version=1, run_error="this is the other one")
    moved = read_model_configs(replace(settings.models, base_path=str(tmp_path / "other")))

    async def scenario(stage: Stage) -> None:
        await stage.server._models.reload(moved)
        answer = await stage.predict()
        while not is_strict and answer.status == 200:
            await asyncio.sleep(0.001)
            answer = await stage.predict()
        if is_strict:
            assert answer.json == {"predictions": [2.0]}
        else:
            assert answer.error == "this is the other one"

    play(scenario, base=tmp_path, settings=settings)


# service.is_early_label_accepted

LABEL = "version_labels { key: 'stable' value: 1 }"


@IS_STRICT
@pytest.mark.parametrize("is_allowed", [False, True])
@pytest.mark.parametrize("is_reload", [False, True], ids=["start", "reload"])
def test_a_label_of_a_new_model_is_accepted_or_refused(
    is_strict: bool, is_allowed: bool, is_reload: bool, tmp_path: Path
) -> None:
    write_version(tmp_path / "m", version=1)
    settings = listed_models(
        tmp_path / "config", entries=[config_entry(tmp_path / "m", fields=LABEL)]
    )
    models = replace(settings.models, allow_labels_for_unavailable=is_allowed)
    settings = chosen(replace(settings, models=models), is_strict=is_strict)

    async def run() -> None:
        server = Server(settings, make_runtime_loader=make_toy_loader)
        configs = read_model_configs(settings.models)
        if is_reload:
            await server._models.start({})
        work = server._models.reload if is_reload else server._models.start
        if is_strict and not is_allowed:
            with pytest.raises(FailedPrecondition) as caught:
                await work(configs)
            assert caught.value.message == (
                "Request to assign label to version 1 of model m, which is not currently "
                "available for inference"
            )
            assert server._models.configs == {}
        else:
            await work(configs)
            await server._models.wait_settled(configs)
            answer = await exchange(
                server.application,
                request=post("/v1/models/m/labels/stable:predict", body={"instances": [2.0]}),
            )
            assert answer.json == {"predictions": [2.0]}
        assert await server.drain(grace_s=30)

    asyncio.run(run())


# service.is_retry_told


@IS_STRICT
def test_a_load_that_is_tried_again_tells_its_error_or_not(is_strict: bool, tmp_path: Path) -> None:
    settings = one_model(tmp_path, is_strict=is_strict)
    retried = replace(settings.lifecycle, max_num_load_retries=1, load_retry_interval_s=3600)

    async def scenario(stage: Stage) -> None:
        write_version(tmp_path / "m", version=2, load_error="half")
        await stage.server._source.scan()
        await stage.server._manager.wait_until(
            lambda: stage.server._manager.statuses(M)[0].error is not None
        )
        newest, *_ = (await stage.ask(get("/v1/models/m"))).json["model_version_status"]
        assert newest["state"] == "LOADING"
        assert newest["status"] == {
            "error_code": "OK" if is_strict else "DATA_LOSS",
            "error_message": "" if is_strict else "half",
        }

    play(scenario, base=tmp_path, settings=replace(settings, lifecycle=retried))


# service.is_label_told_apart


@IS_STRICT
def test_status_by_label_tells_of_one_version_or_of_all(is_strict: bool, tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1)
    write_version(tmp_path / "m", version=2)
    entry = config_entry(tmp_path / "m", fields=f"model_version_policy {{ all {{}} }} {LABEL}")
    settings = listed_models(tmp_path / "config", entries=[entry])
    models = replace(settings.models, allow_labels_for_unavailable=True)
    settings = chosen(replace(settings, models=models), is_strict=is_strict)

    async def scenario(stage: Stage) -> None:
        told = (await stage.ask(get("/v1/models/m/labels/stable"))).json["model_version_status"]
        versions = [int(entry["version"]) for entry in told]
        assert versions == ([2, 1] if is_strict else [1])
        spec = ModelSpec(M, label=VersionLabel("stable"))
        assert [s.version for s in stage.server._models.statuses(spec)] == versions
        unknown = await stage.ask(get("/v1/models/m/labels/unknown"))
        assert unknown.status == (200 if is_strict else 400)

    play(scenario, base=tmp_path, settings=settings)


# models.is_unchanged_config_applied


@IS_STRICT
def test_a_reload_stays_in_force_or_is_undone_by_the_file(is_strict: bool, tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1)
    write_version(tmp_path / "n", version=1)
    settings = listed_models(tmp_path / "config", entries=[config_entry(tmp_path / "m")])
    other = tmp_path / "other"
    other.write_text(config_list(config_entry(tmp_path / "n")))

    async def scenario(stage: Stage) -> None:
        await stage.server._config_watch.look()
        await stage.server._models.reload(
            read_model_configs(replace(settings.models, config_file=str(other)))
        )
        await stage.server._config_watch.look()
        assert stage.server._models.configs.keys() == ({"m"} if is_strict else {"n"})

    play(scenario, base=tmp_path, settings=chosen(settings, is_strict=is_strict))


# rest.is_url_lenient, rest.is_every_error_explained, rest.is_extended

ROW = {"instances": [2.0]}
MALFORMED = "Malformed request:"
NAME = "Could not find any versions of model"
URLS: tuple[tuple[Request, int, str], ...] = (
    (get("/v1/models/m", query="x=1"), 404, f"{NAME} m?x=1"),
    (get("/v1/models/m/"), 400, f"{MALFORMED} GET /v1/models/m/"),
    (
        get("/v1/models/m/metadata", query="x"),
        400,
        f"{MALFORMED} GET /v1/models/m/metadata?x",
    ),
    (post("/v1/models/m:predict/", body=ROW), 400, f"{MALFORMED} POST /v1/models/m:predict/"),
    (post("/v1/models/m:PREDICT", body=ROW), 400, f"{MALFORMED} POST /v1/models/m:PREDICT"),
    (
        replace(post("/v1/models/m:predict", body=ROW), query="x=1"),
        400,
        f"{MALFORMED} POST /v1/models/m:predict?x=1",
    ),
)


@IS_STRICT
@pytest.mark.parametrize(("request_", "status", "text"), URLS)
def test_urls_are_taken_or_not(
    is_strict: bool, request_: Request, status: int, text: str, tmp_path: Path
) -> None:
    async def scenario(stage: Stage) -> None:
        answer = await stage.ask(request_)
        assert answer.status == (status if is_strict else 200)
        assert not is_strict or answer.error == text

    play(scenario, base=tmp_path, settings=one_model(tmp_path, is_strict=is_strict))


@IS_STRICT
def test_head_is_taken_or_not(is_strict: bool, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        for path in ("/v1/models/m", "/v1/models/m/metadata"):
            answer = await stage.ask(Request("HEAD", path))
            assert (answer.status, answer.body) == (400 if is_strict else 200, b"")

    play(scenario, base=tmp_path, settings=one_model(tmp_path, is_strict=is_strict))


@IS_STRICT
def test_a_question_in_upper_case_is_about_the_metadata_or_the_status(
    is_strict: bool, tmp_path: Path
) -> None:
    async def scenario(stage: Stage) -> None:
        answer = await stage.ask(get("/v1/models/m/METADATA"))
        assert ("model_version_status" if is_strict else "model_spec") in answer.json
        assert "metadata" in (await stage.ask(get("/V1/Models/m/metadata"))).json

    play(scenario, base=tmp_path, settings=one_model(tmp_path, is_strict=is_strict))


@IS_STRICT
@pytest.mark.parametrize(
    "request_",
    [get(f"/v1/models/m/versions/{2**63}"), Request("OPTIONS", "/v1/models/m:predict")],
    ids=["version", "options"],
)
def test_an_error_has_a_text_or_an_empty_body(
    is_strict: bool, request_: Request, tmp_path: Path
) -> None:
    async def scenario(stage: Stage) -> None:
        answer = await stage.ask(request_)
        assert answer.status == 400
        assert (answer.body == b"") is is_strict

    play(scenario, base=tmp_path, settings=one_model(tmp_path, is_strict=is_strict))


@IS_STRICT
@pytest.mark.parametrize(
    ("path", "status"),
    [("/healthz", 404), ("/readyz", 404), ("/v1/models", 400), ("/v2/health/live", 404)],
)
def test_there_are_more_paths_or_the_originals(
    is_strict: bool, path: str, status: int, tmp_path: Path
) -> None:
    async def scenario(stage: Stage) -> None:
        answer = await stage.ask(get(path))
        assert answer.status == (status if is_strict else 200)

    play(scenario, base=tmp_path, settings=one_model(tmp_path, is_strict=is_strict))


# grpc.is_extended


@IS_STRICT
def test_there_are_more_methods_or_the_originals(is_strict: bool, tmp_path: Path) -> None:
    added = {"PredictionService/PredictStreamed", "GRPCInferenceService/ModelInfer"}

    async def scenario(stage: Stage) -> None:
        names = {path.rpartition(".")[2] for path in stage.server.methods}
        assert added & names == (set() if is_strict else added)
        assert "PredictionService/Predict" in names

    play(scenario, base=tmp_path, settings=one_model(tmp_path, is_strict=is_strict))


# rest.is_narrow_integer_checked


class EchoServable(ToyServable):
    """Answers with what it was asked, in its type."""

    def __init__(self, dtype: DataType) -> None:
        super().__init__()
        tensor = TensorSpec(dtype, None, "t:0")
        self._signature = Signature(inputs={"x": tensor}, outputs={"y": tensor})

    @property
    def signatures(self) -> Mapping[str, Signature]:
        return {"serving_default": self._signature}

    def load(self) -> "EchoServable":
        return self

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        assert inputs["x"].dtype == self._signature.inputs["x"].dtype.numpy_dtype
        return {"y": np.array(inputs["x"])}


def echo(body: object, *, dtype: DataType, base: Path, is_strict: bool) -> Answer:
    def make_loader(path: Path, *, settings: Settings, events: EventBus) -> Any:
        return EchoServable(dtype)

    settings = one_model(base, is_strict=is_strict)

    async def run() -> Answer:
        async with running(settings, make_runtime_loader=make_loader) as server:
            request = post("/v1/models/m:predict", body=body)
            return await exchange(server.application, request=request)

    return asyncio.run(run())


@IS_STRICT
@pytest.mark.parametrize(
    ("dtype", "value", "wrapped"),
    [
        (DataType.UINT8, 300, 44),
        (DataType.UINT8, -1, 255),
        (DataType.INT8, 128, -128),
        (DataType.INT16, 2**31 - 1, -1),
        (DataType.INT16, -(2**31), 0),
    ],
)
@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_a_narrow_integer_out_of_range_is_refused_or_cut_off(
    is_strict: bool, dtype: DataType, value: int, wrapped: int, key: str, tmp_path: Path
) -> None:
    answer = echo({key: [1, value]}, dtype=dtype, base=tmp_path, is_strict=is_strict)
    if is_strict:
        assert next(iter(answer.json.values())) == [1, wrapped]
    else:
        assert answer.status == 400
        assert f"JSON Value: {value} is out of range for type: {dtype.short_name}" in answer.error


@IS_STRICT
@pytest.mark.parametrize("value", [2**31, 1.5, "1", True])
def test_what_is_no_int32_is_refused_both_ways_in_the_same_words(
    is_strict: bool, value: object, tmp_path: Path
) -> None:
    answer = echo({"inputs": [value]}, dtype=DataType.INT8, base=tmp_path, is_strict=is_strict)
    assert answer.status == 400
    assert answer.error.endswith("is not of expected type: int8")


# grpc.is_health_enabled, grpc.is_health_reflected


@IS_STRICT
def test_health_is_served_or_asked_for(is_strict: bool, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        assert ("/grpc.health.v1.Health/Check" in stage.server.methods) is not is_strict

    play(scenario, base=tmp_path, settings=one_model(tmp_path, is_strict=is_strict))


@IS_STRICT
def test_health_tells_the_truth_or_that_all_is_well(is_strict: bool, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        names = ("", "PredictionService", "ModelService", "tensorflow.serving.ModelService", "m")
        told = [stage.server.check_health(name) for name in names]
        assert told == ([True, True, True, None, None] if is_strict else [True] * 5)
        stage.server.gate.close()
        told = [stage.server.check_health(name) for name in names]
        assert told == ([True, True, True, None, None] if is_strict else [False] * 5)

    play(scenario, base=tmp_path, settings=one_model(tmp_path, is_strict=is_strict))


def test_each_setting_of_the_table_is_tested_here() -> None:
    text = Path(__file__).read_text()
    sections = {
        name for line in text.splitlines() if line.startswith("# ") for name in line[2:].split(", ")
    }
    assert setting_names() - TESTED_ELSEWHERE <= sections
