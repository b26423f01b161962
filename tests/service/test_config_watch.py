import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from aspira.contracts.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ServingError,
    Unknown,
)
from aspira.service.config_watch import ConfigWatch
from aspira.service.model_config import (
    ModelConfigs,
    decode_model_configs,
    parse_model_config_text,
)

READ = "Failed to read ModelServerConfig file: "
RELOAD = "PollFilesystemAndReloadConfig failed to ReloadConfig: "
CANNOT_TRANSITION = (
    "Cannot transition to requested config. It is only legal to transition from one "
    "ModelConfigList to another."
)
A_MOMENT_S = 0.001


def text_of(*names: str) -> str:
    entries = (
        f"config {{ name: '{name}' base_path: '/{name}' model_platform: 'tensorflow' }}"
        for name in names
    )
    return f"model_config_list {{ {' '.join(entries)} }}"


class Watched:
    """A file with a watch on it, which begins with model `a`; what was reloaded and logged."""

    def __init__(self, file: Path, *, caplog: pytest.LogCaptureFixture) -> None:
        self.file = file
        self.reloads: list[list[str]] = []
        self.errors: list[BaseException] = []
        self.reloaded = asyncio.Event()
        self._caplog = caplog

    async def reload(self, configs: ModelConfigs) -> None:
        self.reloads.append(sorted(configs))
        self.reloaded.set()
        if self.errors:
            raise self.errors.pop(0)

    def watch(self, *names: str, poll_interval_s: float = 0) -> ConfigWatch:
        """A watch after the models were started."""
        self.file.write_text(text_of(*names))
        watch = ConfigWatch(self.file, reload=self.reload, poll_interval_s=poll_interval_s)
        watch.start(self._started(names))
        return watch

    def _started(self, names: tuple[str, ...]) -> ModelConfigs:
        return decode_model_configs(parse_model_config_text(text_of(*names), origin="file")) or {}

    @property
    def messages(self) -> list[str]:
        name = "aspira.service.config_watch"
        return [r.getMessage() for r in self._caplog.records if r.name == name]


Scenario = Callable[[Watched], Awaitable[None]]
Play = Callable[[Scenario], Watched]


@pytest.fixture
def play(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Play:
    def run(scenario: Scenario) -> Watched:
        async def act() -> Watched:
            watched = Watched(tmp_path / "models.config", caplog=caplog)
            await scenario(watched)
            return watched

        return asyncio.run(act())

    return run


def test_a_file_that_stays_is_not_applied_again(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        await watch.look()
        watched.file.write_text(text_of("a"))
        await watch.look()

    watched = play(scenario)
    assert watched.reloads == []
    assert watched.messages == []


def test_a_file_that_means_the_same_is_not_applied_again(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        watched.file.write_text(f"# The only model.\n{text_of('a')}\n")
        await watch.look()

    assert play(scenario).reloads == []


def test_each_change_is_applied_once(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        for names in (("a", "b"), ("b",), (), ("a",)):
            watched.file.write_text(text_of(*names))
            await watch.look()
            await watch.look()

    watched = play(scenario)
    assert watched.reloads == [["a", "b"], ["b"], [], ["a"]]
    assert watched.messages == []


def test_a_file_that_does_not_parse_is_told_once_and_changes_nothing(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        watched.file.write_text("model_config_list {\n  config { nam: 'b' }\n}")
        await watch.look()
        await watch.look()

    watched = play(scenario)
    assert watched.reloads == []
    (message,) = watched.messages
    assert message.startswith(
        f"{READ}Invalid protobuf file: '{watched.file}': Error parsing text-format "
        "tensorflow.serving.ModelServerConfig: 2:12"
    )


def test_a_file_that_is_gone_is_told_once_and_again_after_it_was_there(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        for _ in range(2):
            watched.file.unlink()
            await watch.look()
            await watch.look()
            watched.file.write_text(text_of("a"))
            await watch.look()

    watched = play(scenario)
    assert watched.reloads == []
    assert watched.messages == [f"{READ}{watched.file}; No such file or directory"] * 2


def test_the_end_of_a_problem_is_told_once(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        watched.file.unlink()
        await watch.look()
        watched.file.write_text(text_of("a"))
        await watch.look()
        await watch.look()

    caplog.set_level("INFO")
    watched = play(scenario)
    assert watched.messages[1:] == [f"The model config file {watched.file} is in force"]


def test_a_wrong_entry_is_told_as_a_reload_that_failed(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        watched.file.write_text(text_of("b", "b"))
        await watch.look()

    watched = play(scenario)
    assert watched.reloads == []
    assert watched.messages == [f"{RELOAD}Illegal to list model b multiple times in config list"]


@pytest.mark.parametrize("error", [FailedPrecondition("not yet"), InvalidArgument("not yet")])
def test_a_refused_change_is_tried_again_and_told_once(play: Play, error: ServingError) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        watched.errors = [error, error]
        watched.file.write_text(text_of("b"))
        for _ in range(4):
            await watch.look()

    watched = play(scenario)
    assert watched.reloads == [["b"]] * 3
    assert watched.messages == [f"{RELOAD}not yet"]


def test_a_new_reason_is_told(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        watched.errors = [FailedPrecondition(text) for text in ("one", "one", "two", "one")]
        watched.file.write_text(text_of("b"))
        for _ in range(4):
            await watch.look()

    assert play(scenario).messages == [f"{RELOAD}{text}" for text in ("one", "two", "one")]


def test_a_change_that_is_taken_back_is_no_change(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        watched.errors = [FailedPrecondition("not yet")]
        for name in ("b", "a", "a"):
            watched.file.write_text(text_of(name))
            await watch.look()

    assert play(scenario).reloads == [["b"]]


def test_models_that_do_not_load_are_told_and_not_reloaded(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        watched.errors = [Unknown("1 model(s) did not become available")]
        for names in (("a", "b"), ("a", "b"), ("a",)):
            watched.file.write_text(text_of(*names))
            await watch.look()

    watched = play(scenario)
    assert watched.reloads == [["a", "b"], ["a"]]
    assert watched.messages == [f"{RELOAD}1 model(s) did not become available"]


def test_a_list_does_not_become_nothing(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        watched.file.write_text("")
        await watch.look()

    watched = play(scenario)
    assert watched.reloads == []
    assert watched.messages == [f"{RELOAD}{CANNOT_TRANSITION}"]


def test_no_models_may_become_nothing(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch()
        watched.file.write_text("# none yet")
        await watch.look()

    watched = play(scenario)
    assert watched.reloads == []
    assert watched.messages == []


async def change_twice(watched: Watched) -> None:
    """Each change is waited for until it was seen."""
    for name in ("b", "c"):
        watched.reloaded.clear()
        watched.file.write_text(text_of(name))
        await watched.reloaded.wait()


def test_it_looks_by_itself_until_it_is_stopped(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a", poll_interval_s=A_MOMENT_S)
        await change_twice(watched)
        await watch.stop()
        await watch.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    assert play(scenario).reloads == [["b"], ["c"]]


def test_it_looks_on_after_a_bug(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watched.errors.append(ValueError("a bug"))
        watch = watched.watch("a", poll_interval_s=A_MOMENT_S)
        await change_twice(watched)
        await watch.stop()

    watched = play(scenario)
    assert watched.reloads[0] == ["b"]
    assert watched.reloads[-1] == ["c"]
    assert watched.messages == [f"Looking at {watched.file} met a bug"]


@pytest.mark.parametrize("interval_s", [0, -1])
def test_without_an_interval_it_does_not_look(play: Play, interval_s: float) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a", poll_interval_s=interval_s)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await watch.stop()

    play(scenario)


def test_it_can_be_stopped_before_it_was_started(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        await ConfigWatch(watched.file, reload=watched.reload, poll_interval_s=1).stop()

    play(scenario)


def test_the_file_is_applied_on_request_whether_or_not_it_has_changed(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        await watch.reread()
        watched.file.write_text(text_of("b"))
        await watch.reread()
        # What was applied on request is nothing new to the next look.
        await watch.look()

    assert play(scenario).reloads == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("text", "error"),
    [("", FailedPrecondition), ("nonsense", InvalidArgument), (None, NotFound)],
)
def test_a_file_that_cannot_be_applied_on_request_is_an_error(
    play: Play, text: str | None, error: type[ServingError]
) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        if text is None:
            watched.file.unlink()
        else:
            watched.file.write_text(text)
        with pytest.raises(error):
            await watch.reread()

    assert play(scenario).reloads == []


@pytest.mark.parametrize(
    ("error", "num_reloads"), [(FailedPrecondition("not yet"), 2), (Unknown("no model"), 1)]
)
def test_what_was_refused_on_request_is_tried_again_by_the_next_look(
    play: Play, error: ServingError, num_reloads: int
) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        watched.file.write_text(text_of("b"))
        watched.errors.append(error)
        with pytest.raises(type(error)):
            await watch.reread()
        await watch.look()

    assert play(scenario).reloads == [["b"]] * num_reloads


def test_a_request_that_is_given_up_leaves_the_file_to_the_next_look(play: Play) -> None:
    async def scenario(watched: Watched) -> None:
        watch = watched.watch("a")
        watched.file.write_text(text_of("b"))
        # While another change is being applied, for instance.
        watched.errors.append(asyncio.CancelledError())
        with pytest.raises(asyncio.CancelledError):
            await watch.reread()
        await watch.look()

    assert play(scenario).reloads == [["b"], ["b"]]
