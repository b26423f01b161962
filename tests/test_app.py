import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from asgi_exchange import Answer, Request, exchange, get, post
from aspira.app import Server, read_model_configs
from aspira.contracts.errors import InvalidArgument, NotFound, ServingError
from aspira.contracts.events import EventBus
from aspira.contracts.tensors import Tensors
from aspira.lifecycle.options import LifecycleOptions
from aspira.lifecycle.version_choice import All, Latest, Specific
from aspira.runtimes.options import TensorflowOptions
from aspira.settings import ModelOptions, ProcessOptions, Settings
from aspira.testing.toy_servable import ToyServable
from serving_toys import (
    DirectoryLoader,
    ask,
    config_entry,
    config_list,
    listed_models,
    make_toy_loader,
    running,
    single_model,
    write_version,
)

PATIENCE_S = 30


def predict(name: str) -> Request:
    return post(f"/v1/models/{name}:predict", body={"instances": [2.0]})


def with_server(settings: Settings, question: Callable[[Server], bool | None]) -> bool | None:
    """The answer of a running server to a question."""

    async def run() -> bool | None:
        async with running(settings) as server:
            return question(server)

    return asyncio.run(run())


class HeldServable(ToyServable):
    """Its runs wait until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self.let_go = threading.Event()

    def load(self) -> ToyServable:
        return self

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        self.started.set()
        assert self.let_go.wait(PATIENCE_S)
        return super().run(signature_name, inputs=inputs, outputs=outputs)


def held_server(base_path: Path, *, servable: HeldServable) -> Server:
    def make_loader(path: Path, *, settings: Settings, events: EventBus) -> HeldServable:
        return servable

    write_version(base_path, version=1)
    return Server(single_model(base_path), make_runtime_loader=make_loader)


async def predict_held(server: Server, *, servable: HeldServable) -> asyncio.Task[Answer]:
    """A request whose run has begun."""
    task = asyncio.create_task(exchange(server.application, request=predict("m")))
    assert await asyncio.to_thread(servable.started.wait, PATIENCE_S)
    return task


def test_good_models_are_served_whatever_becomes_of_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_version(tmp_path / "good", version=1)
    write_version(tmp_path / "failing", version=2, load_error="no variables")
    (tmp_path / "empty").mkdir()
    names = ("good", "failing", "empty", "missing")
    settings = listed_models(
        tmp_path / "models.txt", entries=[config_entry(tmp_path / name) for name in names]
    )

    async def run() -> dict[str, Answer]:
        async with running(settings) as server:
            return {
                name: await exchange(server.application, request=predict(name)) for name in names
            }

    answers = asyncio.run(run())
    assert answers["good"].json == {"predictions": [2.0]}
    for name in names[1:]:
        assert answers[name].status == 503
        assert answers[name].error == f"Servable not found for request: Latest({name})"
    messages = [r.getMessage() for r in caplog.records if r.name == "aspira.app"]
    assert len(messages) == 3
    assert messages[0] == (
        "Serving without a model: {name: failing version: 2} due to error: DATA_LOSS: no variables"
    )
    assert "No versions of servable empty found under base path" in messages[1]
    assert "Could not find base path" in messages[2]


def test_a_model_that_will_be_tried_again_does_not_delay_the_start(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1, load_error="not yet")
    settings = replace(
        single_model(tmp_path / "m"), lifecycle=LifecycleOptions(load_retry_interval_s=3600)
    )

    async def run() -> Answer:
        server = Server(settings, make_runtime_loader=make_toy_loader)
        async with asyncio.timeout(PATIENCE_S):
            await server.start()
            answered = await exchange(server.application, request=get("/v1/models/m"))
            assert await server.drain(grace_s=PATIENCE_S)
        return answered

    (entry,) = asyncio.run(run()).json["model_version_status"]
    assert entry["state"] == "LOADING"


def test_a_version_that_appears_later_is_served(tmp_path: Path) -> None:
    base_path = tmp_path / "m"
    settings = replace(
        single_model(base_path),
        lifecycle=LifecycleOptions(max_num_load_retries=0, poll_interval_s=0.01),
    )

    async def run() -> Answer:
        async with running(settings) as server:
            assert (await exchange(server.application, request=get("/readyz"))).status == 503
            # Versions appear whole: written elsewhere, then moved.
            write_version(tmp_path / "staging", version=1).parent.rename(base_path)
            async with asyncio.timeout(PATIENCE_S):
                while (await exchange(server.application, request=get("/readyz"))).status != 200:
                    await asyncio.sleep(0.01)
            return await exchange(server.application, request=predict("m"))

    assert asyncio.run(run()).json == {"predictions": [2.0]}


def test_the_log_tells_what_scripts_wait_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_version(tmp_path / "m", version=1)
    assert with_server(single_model(tmp_path / "m"), lambda server: True)
    texts = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert texts[:5] == [
        "Adding/updating models.",
        " (Re-)adding model: m",
        "New servable version {name: m version: 1}",
        "Loading servable version {name: m version: 1}",
        "Successfully loaded servable version {name: m version: 1}",
    ]
    assert texts[5] == "Finished adding/updating models"


def test_a_wrong_configuration_is_refused_at_start(tmp_path: Path) -> None:
    server_settings = single_model(Path("relative/path"))

    async def run() -> None:
        await Server(server_settings, make_runtime_loader=make_toy_loader).start()

    with pytest.raises(InvalidArgument) as caught:
        asyncio.run(run())
    assert caught.value.message == (
        "Expected model m to have an absolute path or URI; got base_path()=relative/path"
    )


def test_a_platform_file_decides_how_models_are_opened(tmp_path: Path) -> None:
    adapter = "type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig"
    config = f"[{adapter}] {{ legacy_config {{ saved_model_tags: 'mine' }} }}"
    file = tmp_path / "platform.txt"
    file.write_text(
        f"platform_configs {{ key: 'tensorflow' value {{ source_adapter_config {{ {config} }} }} }}"
    )
    base_path = tmp_path / "m"
    write_version(base_path, version=1)
    seen: list[Settings] = []

    def make_loader(path: Path, *, settings: Settings, events: EventBus) -> DirectoryLoader:
        seen.append(settings)
        return make_toy_loader(path, settings=settings, events=events)

    settings = replace(
        single_model(base_path), process=ProcessOptions(platform_config_file=str(file))
    )
    (answer,) = ask(settings, predict("m"), make_runtime_loader=make_loader)
    assert answer.json == {"predictions": [2.0]}
    assert [each.tensorflow.saved_model_tags for each in seen] == [("mine",)]


@pytest.mark.parametrize(
    ("content", "error"), [("prometheus { enable: true }", InvalidArgument), (None, NotFound)]
)
def test_a_wrong_monitoring_file_is_refused_before_anything_loads(
    tmp_path: Path, content: str | None, error: type[ServingError]
) -> None:
    file = tmp_path / "monitoring.txt"
    if content is not None:
        file.write_text(content)
    settings = replace(
        single_model(tmp_path), process=ProcessOptions(monitoring_config_file=str(file))
    )

    async def run() -> None:
        Server(settings, make_runtime_loader=make_toy_loader)

    with pytest.raises(error, match=str(file)):
        asyncio.run(run())


@pytest.mark.parametrize(("content", "error"), [("threads: 1", InvalidArgument), (None, NotFound)])
def test_a_wrong_session_config_is_refused_before_anything_loads(
    tmp_path: Path, content: str | None, error: type[ServingError]
) -> None:
    file = tmp_path / "session.txt"
    if content is not None:
        file.write_text(content)
    settings = replace(
        single_model(tmp_path), tensorflow=TensorflowOptions(session_config_file=str(file))
    )

    async def run() -> None:
        await Server(settings, make_runtime_loader=make_toy_loader).start()

    with pytest.raises(error, match=str(file)):
        asyncio.run(run())


def test_a_drain_finishes_what_is_in_flight_and_refuses_the_rest(tmp_path: Path) -> None:
    servable = HeldServable()

    async def run() -> tuple[Answer, Answer, bool]:
        server = held_server(tmp_path / "m", servable=servable)
        await server.start()
        in_flight = await predict_held(server, servable=servable)
        draining = asyncio.create_task(server.drain(grace_s=PATIENCE_S))
        await asyncio.sleep(0)
        refused = await exchange(server.application, request=predict("m"))
        assert not in_flight.done()
        assert not draining.done()
        assert not servable.is_unloaded
        servable.let_go.set()
        return refused, await in_flight, await draining

    refused, finished, is_clean = asyncio.run(run())
    assert refused.status == 503
    assert finished.json == {"predictions": [3.0]}
    assert is_clean
    assert servable.is_unloaded


@pytest.mark.parametrize("grace_s", [0.01, 0.0, -1.0])
def test_a_drain_that_takes_too_long_says_so(tmp_path: Path, grace_s: float) -> None:
    servable = HeldServable()

    async def run() -> tuple[bool, Answer]:
        server = held_server(tmp_path / "m", servable=servable)
        await server.start()
        in_flight = await predict_held(server, servable=servable)
        is_clean = await server.drain(grace_s=grace_s)
        refused = await exchange(server.application, request=predict("m"))
        assert refused.status == 503
        servable.let_go.set()
        return is_clean, await in_flight

    is_clean, finished = asyncio.run(run())
    assert is_clean is False
    assert finished.json == {"predictions": [3.0]}


def test_a_drained_server_has_unloaded_its_models(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1)

    async def run() -> Answer:
        async with running(single_model(tmp_path / "m")) as server:
            pass
        return await exchange(server.application, request=get("/v1/models/m"))

    (entry,) = asyncio.run(run()).json["model_version_status"]
    assert entry["state"] == "END"


@pytest.mark.parametrize(
    ("service", "health"),
    [
        ("", True),
        ("good", True),
        ("missing", False),
        ("tensorflow.serving.PredictionService", True),
        ("PredictionService", True),
        ("ModelService", True),
        ("grpc.health.v1.Health", True),
        ("other", None),
        ("serving.PredictionService", None),
    ],
)
def test_one_missing_model_does_not_make_the_server_unhealthy(
    tmp_path: Path, service: str, health: bool | None
) -> None:
    write_version(tmp_path / "good", version=1)
    settings = listed_models(
        tmp_path / "models.txt",
        entries=[config_entry(tmp_path / "good"), config_entry(tmp_path / "missing")],
    )
    assert with_server(settings, lambda server: server.check_health(service)) is health


def test_a_server_none_of_whose_models_can_answer_is_unhealthy(tmp_path: Path) -> None:
    settings = single_model(tmp_path / "missing")
    assert with_server(settings, lambda server: server.check_health("")) is False


@pytest.mark.parametrize(("service", "health"), [("", True), ("m", True), ("other", None)])
def test_a_server_with_all_its_models_is_healthy_until_it_drains(
    tmp_path: Path, service: str, health: bool | None
) -> None:
    write_version(tmp_path / "m", version=1)

    async def run() -> tuple[bool | None, bool | None]:
        async with running(single_model(tmp_path / "m")) as server:
            before = server.check_health(service)
            server.gate.close()
            return before, server.check_health(service)

    assert asyncio.run(run()) == (health, None if health is None else False)


def test_one_model_is_read_from_its_name_and_path() -> None:
    (config,) = read_model_configs(ModelOptions(name="m", base_path="/models/m")).values()
    assert config.model.name == "m"
    assert config.model.base_path == "/models/m"
    assert config.model.policy == Latest()
    assert config.labels == {}


def read_config_file(file: Path, *, text: str) -> dict[str, object]:
    file.write_text(text)
    options = ModelOptions(name="ignored", base_path="/ignored", config_file=str(file))
    return {str(name): config for name, config in read_model_configs(options).items()}


def test_models_are_read_from_a_file(tmp_path: Path) -> None:
    text = config_list(
        config_entry(Path("/models/a")),
        config_entry(
            Path("/models/b"),
            fields="model_version_policy { specific { versions: [3, 5] } } "
            "version_labels { key: 'stable' value: 3 }",
        ),
        config_entry(Path("/models/c"), fields="model_version_policy { all {} }"),
    )
    options = ModelOptions(config_file=str(tmp_path / "models.txt"))
    Path(options.config_file).write_text(text)
    configs = list(read_model_configs(options).values())
    assert [config.model.name for config in configs] == ["a", "b", "c"]
    assert [config.model.base_path for config in configs] == ["/models/a", "/models/b", "/models/c"]
    assert [config.model.policy for config in configs] == [Latest(), Specific((3, 5)), All()]  # type: ignore[arg-type]
    assert configs[1].labels == {"stable": 3}


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "model_config_list {}"])
def test_an_empty_file_names_no_model(tmp_path: Path, text: str) -> None:
    assert read_config_file(tmp_path / "models.txt", text=text) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            config_list(config_entry(Path("/m")), config_entry(Path("/m"))),
            "Illegal to list model m multiple times in config list",
        ),
        (
            config_list(config_entry(Path("m"))),
            "Expected model m to have an absolute path or URI; got base_path()=m",
        ),
        (
            "model_config_list { config { name: 'm' base_path: '/m' } }",
            (
                "Illegal setting neither ModelServerConfig::model_type (deprecated) nor "
                "ModelServerConfig::model_platform, model name is m"
            ),
        ),
        (
            config_list(config_entry(Path("/m"), fields="model_type: TENSORFLOW")),
            (
                "Illegal setting both ModelServerConfig::model_type (deprecated) and "
                "ModelServerConfig::model_platform, model name is m"
            ),
        ),
        (
            "model_config_list { config { name: 'm' base_path: '/m' model_platform: 'caffe' } }",
            "Model m requests unsupported platform caffe",
        ),
        (
            config_list(config_entry(Path("/m"), fields="logging_config {}")),
            "No request-logger-creator provided.",
        ),
        (
            "custom_model_config {}",
            "ModelServer does not yet support custom model config.",
        ),
    ],
)
def test_wrong_entries_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_config_file(tmp_path / "models.txt", text=text)
    assert caught.value.message == message


def test_a_file_that_does_not_parse_is_refused_with_the_place(tmp_path: Path) -> None:
    file = tmp_path / "models.txt"
    with pytest.raises(InvalidArgument) as caught:
        read_config_file(file, text="model_config_list {\n  config { nam: 'm' }\n}")
    assert caught.value.message.startswith(
        f"Invalid protobuf file: '{file}': Error parsing text-format "
        "tensorflow.serving.ModelServerConfig: 2:"
    )
    assert "nam" in caught.value.message


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "models.txt"
    with pytest.raises(NotFound) as caught:
        read_model_configs(ModelOptions(config_file=str(file)))
    assert caught.value.message == f"{file}; No such file or directory"
