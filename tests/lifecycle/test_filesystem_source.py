import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from aspira.contracts.events import EventBus, LifecycleEvent, SourceProblem
from aspira.contracts.identity import ModelName, Version
from aspira.lifecycle.filesystem_source import FilesystemSource, MonitoredModel, list_model
from aspira.lifecycle.source import Aspired
from aspira.lifecycle.version_choice import All, Latest, Specific, VersionPolicy

PREFIX = "FileSystemStoragePathSource encountered a filesystem access error: "


class Watch:
    """A source, and all it said."""

    def __init__(self, *, poll_interval_s: float = 0.0) -> None:
        self.aspired: list[Aspired] = []
        self.problems: list[tuple[str, str]] = []
        self.was_told = asyncio.Event()
        bus = EventBus()
        bus.subscribe_lifecycle(self._note)
        self.source = FilesystemSource(self._aspire, events=bus, poll_interval_s=poll_interval_s)

    def take(self) -> list[tuple[str, dict[int, str]]]:
        """What was aspired since the last call: per model the directory names by version."""
        taken, self.aspired = self.aspired, []
        return [(a.model_name, {v: p.name for v, p in a.versions.items()}) for a in taken]

    def take_problems(self) -> list[tuple[str, str]]:
        taken, self.problems = self.problems, []
        return taken

    def _aspire(self, aspired: Aspired) -> None:
        self.aspired.append(aspired)
        self.was_told.set()

    def _note(self, event: LifecycleEvent) -> None:
        assert isinstance(event, SourceProblem)
        self.problems.append((event.model_name, event.message))


def play(scenario: Callable[[Watch], Awaitable[None]], *, poll_interval_s: float = 0.0) -> None:
    async def run() -> None:
        watch = Watch(poll_interval_s=poll_interval_s)
        await scenario(watch)
        await watch.source.stop()

    asyncio.run(run())


def model(
    base_path: Path | str, *, name: str = "m", policy: VersionPolicy | None = None
) -> MonitoredModel:
    return MonitoredModel(ModelName(name), str(base_path), policy or Latest())


def make_versions(base_path: Path, *names: str) -> Path:
    for name in names:
        (base_path / name).mkdir(parents=True)
    return base_path


def no_versions(base_path: Path, *, name: str = "m") -> str:
    return (
        f"No versions of servable {name} found under base path {base_path}. "
        "Did you forget to name your leaf directory as a number (eg. '/1/')?"
    )


def no_base_path(base_path: Path, *, name: str = "m") -> str:
    return (
        f"{PREFIX}Could not find base path {base_path} for servable {name} "
        f"with error NOT_FOUND: {base_path} not found"
    )


def not_found(version: int) -> str:
    return (
        f"Version {version} of servable m, which was requested to be served as a 'specific' "
        "version in the servable's version policy, was not found in the file system"
    )


def test_what_is_there_is_aspired_once(tmp_path: Path) -> None:
    base = make_versions(tmp_path, "1", "00000123", "tmp-7")

    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(base)])
        await watch.source.scan()
        assert watch.take() == [("m", {123: "00000123"})]
        await watch.source.scan()
        assert watch.take() == []
        make_versions(base, "124")
        await watch.source.scan()
        assert watch.take() == [("m", {124: "124"})]
        assert watch.take_problems() == []

    play(scenario)


def test_the_path_of_a_version_is_in_the_base_path(tmp_path: Path) -> None:
    base = make_versions(tmp_path / "a b", "1")

    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(base), model(f"file://{base}", name="uri")])
        await watch.source.scan()
        assert [a.versions for a in watch.aspired] == [{1: base / "1"}, {1: base / "1"}]

    play(scenario)


def test_a_file_counts_as_a_version(tmp_path: Path) -> None:
    (tmp_path / "7").write_text("")
    assert list_model(model(tmp_path)).versions == {7: tmp_path / "7"}


def test_a_missing_base_path_is_told_once_and_touches_no_other_model(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    present = make_versions(tmp_path / "present", "1")

    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(absent), model(present, name="other")])
        await watch.source.scan()
        await watch.source.scan()
        assert watch.take() == [("other", {1: "1"})]
        assert watch.take_problems() == [("m", no_base_path(absent))]
        make_versions(absent, "5")
        await watch.source.scan()
        assert watch.take() == [("m", {5: "5"})]
        assert watch.take_problems() == [("m", "")]

    play(scenario)


@pytest.mark.parametrize("replace_by_file", [False, True])
def test_what_cannot_be_listed_unloads_nothing(tmp_path: Path, replace_by_file: bool) -> None:
    base = make_versions(tmp_path / "base", "1")
    aside = tmp_path / "aside"

    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(base)])
        await watch.source.scan()
        assert watch.take() == [("m", {1: "1"})]
        base.rename(aside)
        if replace_by_file:
            base.write_text("")
        await watch.source.scan()
        assert watch.take() == []
        text = f"{PREFIX}{base}; Not a directory" if replace_by_file else no_base_path(base)
        assert watch.take_problems() == [("m", text)]
        listing = watch.source.listing(ModelName("m"))
        assert listing is not None
        assert listing.versions is None
        assert listing.problem == text
        if replace_by_file:
            base.unlink()
        aside.rename(base)
        await watch.source.scan()
        assert watch.take() == [("m", {1: "1"})]
        assert watch.take_problems() == [("m", "")]

    play(scenario)


def test_when_the_versions_vanish_the_empty_set_is_aspired(tmp_path: Path) -> None:
    base = make_versions(tmp_path, "1")

    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(base)])
        await watch.source.scan()
        (base / "1").rename(base / "trash")
        await watch.source.scan()
        assert watch.take() == [("m", {1: "1"}), ("m", {})]
        assert watch.take_problems() == [("m", no_versions(base))]
        await watch.source.scan()
        assert watch.take() == []
        assert watch.take_problems() == []

    play(scenario)


def test_a_model_that_is_left_out_is_unloaded_at_once(tmp_path: Path) -> None:
    base = make_versions(tmp_path / "base", "1")

    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(base), model(tmp_path / "x", name="absent")])
        await watch.source.scan()
        watch.take(), watch.take_problems()
        watch.source.set_models([model(base)])
        assert watch.take() == [("absent", {})]
        assert watch.take_problems() == [("absent", "")]
        assert watch.source.listing(ModelName("absent")) is None
        watch.source.set_models([])
        assert watch.take() == [("m", {})]
        await watch.source.scan()
        assert watch.take() == []

    play(scenario)


def test_a_model_that_comes_back_is_aspired_again(tmp_path: Path) -> None:
    base = make_versions(tmp_path, "1")

    async def scenario(watch: Watch) -> None:
        for _ in range(2):
            watch.source.set_models([model(base)])
            assert watch.source.listing(ModelName("m")) is None
            await watch.source.scan()
            assert watch.take() == [("m", {1: "1"})]
            watch.source.set_models([])
            assert watch.take() == [("m", {})]

    play(scenario)


def test_a_model_that_is_removed_during_a_scan_stays_removed(tmp_path: Path) -> None:
    base = make_versions(tmp_path, "1")

    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(base)])
        scanning = asyncio.ensure_future(watch.source.scan())
        await asyncio.sleep(0)
        watch.source.set_models([])
        await scanning
        assert watch.take() == [("m", {})]
        assert watch.source.listing(ModelName("m")) is None

    play(scenario)


def test_another_base_path_or_policy_takes_effect_at_the_next_scan(tmp_path: Path) -> None:
    first = make_versions(tmp_path / "first", "1", "2")
    second = make_versions(tmp_path / "second", "2", "7")

    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(first)])
        await watch.source.scan()
        watch.source.set_models([model(first, policy=All())])
        assert watch.take() == [("m", {2: "2"})]
        await watch.source.scan()
        assert watch.take() == [("m", {2: "2", 1: "1"})]
        watch.source.set_models([model(second, policy=All())])
        await watch.source.scan()
        assert watch.take() == [("m", {7: "7", 2: "2"})]

    play(scenario)


def test_specific_versions_that_are_missing_are_named(tmp_path: Path) -> None:
    base = make_versions(tmp_path, "001", "2", "3")
    policy = Specific((Version(9), Version(1), Version(8)))

    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(base, policy=policy)])
        await watch.source.scan()
        assert watch.take() == [("m", {1: "001"})]
        assert watch.take_problems() == [("m", f"{not_found(8)}; {not_found(9)}")]
        make_versions(base, "9", "8")
        await watch.source.scan()
        assert watch.take() == [("m", {9: "9", 8: "8", 1: "001"})]
        assert watch.take_problems() == [("m", "")]

    play(scenario)


@pytest.mark.parametrize(
    ("policy", "names", "problem"),
    [
        (Specific((Version(7),)), ["1"], not_found(7)),
        (Specific(()), ["1"], "No specific versions requested for servable m."),
        (Specific((Version(7),)), [], None),
        (All(), ["v1"], None),
        (Latest(2), [], None),
    ],
)
def test_nothing_to_serve(
    tmp_path: Path, policy: VersionPolicy, names: list[str], problem: str | None
) -> None:
    listing = list_model(model(make_versions(tmp_path, *names), policy=policy))
    assert listing.versions == {}
    assert listing.problem == (problem or no_versions(tmp_path))


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_other_file_systems_are_refused_by_name(scheme: str) -> None:
    listing = list_model(model(f"{scheme}://bucket/m"))
    assert listing.versions is None
    assert listing.problem == (
        f"{PREFIX}File system scheme '{scheme}' not implemented (file: '{scheme}://bucket/m')"
    )


def test_it_keeps_looking_at_its_interval(tmp_path: Path) -> None:
    base = make_versions(tmp_path, "1")

    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(base)])
        await watch.source.start()
        assert watch.take() == [("m", {1: "1"})]
        watch.was_told.clear()
        make_versions(base, "2")
        await watch.was_told.wait()
        assert watch.take() == [("m", {2: "2"})]

    play(scenario, poll_interval_s=0.001)


def test_without_an_interval_it_looks_once(tmp_path: Path) -> None:
    base = make_versions(tmp_path, "1")

    async def scenario(watch: Watch) -> None:
        tasks = asyncio.all_tasks()
        watch.source.set_models([model(base)])
        await watch.source.start()
        assert watch.take() == [("m", {1: "1"})]
        assert asyncio.all_tasks() == tasks

    play(scenario, poll_interval_s=-1.0)


def test_when_stopped_it_looks_no_longer(tmp_path: Path) -> None:
    base = make_versions(tmp_path, "1")

    async def scenario(watch: Watch) -> None:
        tasks = asyncio.all_tasks()
        watch.source.set_models([model(base)])
        await watch.source.start()
        assert asyncio.all_tasks() != tasks
        await watch.source.stop()
        await watch.source.stop()
        assert asyncio.all_tasks() == tasks
        assert watch.take() == [("m", {1: "1"})]

    play(scenario, poll_interval_s=3600.0)
