import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aspira.contracts.events import EventBus, LifecycleEvent, SourceProblem, VersionPending
from aspira.contracts.identity import ModelName, Version
from aspira.lifecycle.filesystem_source import FilesystemSource
from aspira.lifecycle.listing import Listing, MonitoredModel, list_model
from aspira.lifecycle.options import LifecycleOptions
from aspira.lifecycle.source import Aspired
from aspira.lifecycle.version_choice import All, Latest, Specific, VersionPolicy
from aspira.lifecycle.version_files import CompletenessRule

PENDING = "it is still being written"
AT_ONCE = CompletenessRule(rest_s=0)
PREFIX = "FileSystemStoragePathSource encountered a filesystem access error: "


class Watch:
    """A source, and all it said."""

    def __init__(self, options: LifecycleOptions, **parts: Any) -> None:
        self.aspired: list[Aspired] = []
        self.problems: list[tuple[str, str]] = []
        self.pending: list[tuple[int, str]] = []
        self.was_told = asyncio.Event()
        bus = EventBus()
        bus.subscribe_lifecycle(self._note)
        self.source = FilesystemSource(self._aspire, events=bus, options=options, **parts)

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
        if isinstance(event, SourceProblem):
            self.problems.append((event.model_name, event.message))
        if isinstance(event, VersionPending):
            self.pending.append((event.servable_id.version, event.reason))


def play_with(scenario: Callable[[Watch], Awaitable[None]], options: LifecycleOptions) -> None:
    async def run() -> None:
        watch = Watch(options)
        await scenario(watch)
        await watch.source.stop()

    asyncio.run(run())


def play(scenario: Callable[[Watch], Awaitable[None]], *, poll_interval_s: float = 0.0) -> None:
    play_with(scenario, LifecycleOptions(poll_interval_s=poll_interval_s))


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


def none_complete(base_path: Path, version: int) -> str:
    return (
        f"No version of servable m found under base path {base_path} is complete: "
        f"{version} is not loaded, since {PENDING}"
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
    assert list_model(model(tmp_path), rule=AT_ONCE).versions == {7: tmp_path / "7"}


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
    listing = list_model(model(make_versions(tmp_path, *names), policy=policy), rule=AT_ONCE)
    assert listing.versions == {}
    assert listing.problem == (problem or no_versions(tmp_path))


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_other_file_systems_are_refused_by_name(scheme: str) -> None:
    listing = list_model(model(f"{scheme}://bucket/m"), rule=AT_ONCE)
    assert listing.versions is None
    assert listing.problem == (
        f"{PREFIX}File system scheme '{scheme}' not implemented (file: '{scheme}://bucket/m')"
    )


def test_directories_that_a_version_is_not_loaded_from_are_named(tmp_path: Path) -> None:
    listing = list_model(model(make_versions(tmp_path, "1", "001", "2", "02")), rule=AT_ONCE)
    assert listing.versions == {2: tmp_path / "2"}
    text = "Duplicate version directories detected. Version {} will be loaded from {}, {} will be"
    assert listing.problem == (
        f"{text.format(1, 1, '001')} ignored.; {text.format(2, 2, '02')} ignored."
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


def write_fresh(path: Path) -> None:
    """A version as it is while somebody writes it."""
    path.mkdir(parents=True)
    (path / "saved_model.pb").write_bytes(b"")


def move(path: Path, target: Path) -> None:
    """Publish what was written a while ago: later than the last tick of the file system's clock."""
    while path.stat().st_ctime_ns <= path.stat().st_mtime_ns:
        path.chmod(0o755)
    path.rename(target)


def grow(path: Path) -> None:
    """Write in place, and later than whatever happened before, which file times must show."""
    file = path / "saved_model.pb"
    while file.stat().st_ctime_ns <= path.stat().st_ctime_ns:
        file.write_bytes(file.read_bytes() + b"more")


def test_what_is_still_being_written_is_not_loaded_and_replaces_nothing(tmp_path: Path) -> None:
    options = LifecycleOptions(poll_interval_s=3600.0)

    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(tmp_path)])
        write_fresh(tmp_path / "staging")
        move(tmp_path / "staging", tmp_path / "1")
        await watch.source.scan()
        assert watch.take() == [("m", {1: "1"})]
        write_fresh(tmp_path / "2")
        await watch.source.scan()
        grow(tmp_path / "2")
        await watch.source.scan()
        assert watch.take() == []
        assert watch.take_problems() == []
        assert watch.pending == [(2, PENDING)]
        # Whoever deletes the old version early does not lose it before the new one is there.
        (tmp_path / "1" / "saved_model.pb").unlink()
        (tmp_path / "1").rmdir()
        await watch.source.scan()
        assert watch.take() == []
        assert watch.take_problems() == [
            ("m", none_complete(tmp_path, 2)),
        ]
        (tmp_path / "2").rename(tmp_path / "aside")
        move(tmp_path / "aside", tmp_path / "2")
        await watch.source.scan()
        assert watch.take() == [("m", {2: "2"})]
        assert watch.take_problems() == [("m", "")]

    play_with(scenario, options)


def test_what_has_come_to_rest_is_loaded(tmp_path: Path) -> None:
    async def scenario(watch: Watch) -> None:
        write_fresh(tmp_path / "1")
        watch.source.set_models([model(tmp_path)])
        await watch.source.scan()
        assert watch.take() == []
        await watch.source.scan_closely()
        assert watch.take() == [("m", {1: "1"})]

    play_with(scenario, LifecycleOptions(poll_interval_s=0.01))


def test_the_start_looks_a_second_time_and_no_more(tmp_path: Path) -> None:
    async def scenario(watch: Watch) -> None:
        write_fresh(tmp_path / "rests" / "1")
        watch.source.set_models([model(tmp_path / "rests")])
        await watch.source.start()
        assert watch.take() == [("m", {1: "1"})]

    play_with(scenario, LifecycleOptions(poll_interval_s=0.01))


def test_at_the_start_nothing_older_is_loaded_first(tmp_path: Path) -> None:
    async def scenario(watch: Watch) -> None:
        write_fresh(tmp_path / "staging")
        move(tmp_path / "staging", tmp_path / "1")
        write_fresh(tmp_path / "2")
        watch.source.set_models([model(tmp_path)])
        await watch.source.start()
        assert watch.take() == [("m", {2: "2"})]

    play_with(scenario, LifecycleOptions(poll_interval_s=0.05))


def test_at_the_start_an_older_one_is_loaded_while_a_newer_one_is_still_written(
    tmp_path: Path,
) -> None:
    async def scenario(watch: Watch) -> None:
        write_fresh(tmp_path / "staging")
        move(tmp_path / "staging", tmp_path / "1")
        write_fresh(tmp_path / "2")
        watch.source.set_models([model(tmp_path)])
        await watch.source.scan()
        assert watch.take() == []
        grow(tmp_path / "2")
        await watch.source.scan()
        assert watch.take() == [("m", {1: "1"})]

    play_with(scenario, LifecycleOptions(poll_interval_s=3600.0))


def test_a_listing_that_meets_a_bug_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_versions(tmp_path, "1")
    bugs = [ZeroDivisionError("bug")]

    def list_once_wrong(
        model: MonitoredModel, *, rule: CompletenessRule, before: Listing | None
    ) -> Listing:
        if bugs:
            raise bugs.pop()
        return list_model(model, rule=rule, before=before)

    async def run() -> None:
        watch = Watch(LifecycleOptions(poll_interval_s=0), list_model=list_once_wrong)
        watch.source.set_models([model(tmp_path)])
        await watch.source.scan()
        assert watch.take() == []
        await watch.source.scan()
        assert watch.take() == [("m", {1: "1"})]
        await watch.source.stop()

    asyncio.run(run())
    assert "ZeroDivisionError: bug" in caplog.text


def test_while_a_version_is_written_it_is_looked_at_sooner_than_polled(tmp_path: Path) -> None:
    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(tmp_path)])
        write_fresh(tmp_path / "1")
        await watch.source.start()
        # Another hour would pass if it were not looked at again of itself.
        await watch.was_told.wait()
        assert watch.take() == [("m", {1: "1"})]

    play_with(scenario, LifecycleOptions(poll_interval_s=3600.0))


@pytest.mark.parametrize(
    "options",
    [
        LifecycleOptions(poll_interval_s=3600.0, is_rest_awaited=False),
        LifecycleOptions(poll_interval_s=0.0),
    ],
)
def test_where_rest_is_not_awaited_a_version_is_loaded_as_seen(
    options: LifecycleOptions, tmp_path: Path
) -> None:
    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(tmp_path)])
        write_fresh(tmp_path / "1")
        await watch.source.scan()
        assert watch.take() == [("m", {1: "1"})]

    play_with(scenario, options)


def test_a_loaded_version_stays_though_its_files_change(tmp_path: Path) -> None:
    """And its stamp is the old one until they rest: a failed load is not repeated too early."""

    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(tmp_path)])
        write_fresh(tmp_path / "staging")
        move(tmp_path / "staging", tmp_path / "1")
        await watch.source.scan()
        (before,) = watch.aspired
        grow(tmp_path / "1")
        await watch.source.scan()
        assert watch.aspired == [before]
        (tmp_path / "1").rename(tmp_path / "aside")
        move(tmp_path / "aside", tmp_path / "1")
        await watch.source.scan()
        first, second = watch.aspired
        assert first.versions == second.versions
        assert first.stamps != second.stamps

    play_with(scenario, LifecycleOptions(poll_interval_s=3600.0))


@pytest.mark.parametrize("poll_interval_s", [0.0, 3600.0])
def test_a_marker_says_that_a_version_is_complete(poll_interval_s: float, tmp_path: Path) -> None:
    async def scenario(watch: Watch) -> None:
        watch.source.set_models([model(tmp_path, policy=Specific((Version(1), Version(2))))])
        for name in ("1", "2"):
            write_fresh(tmp_path / name)
        (tmp_path / "1" / "_READY").touch()
        await watch.source.scan()
        assert watch.take() == [("m", {1: "1"})]
        assert watch.pending == [(2, "it has no file _READY yet")]
        assert watch.take_problems() == []
        (tmp_path / "2" / "_READY").touch()
        (tmp_path / "1" / "_READY").unlink()
        await watch.source.scan()
        assert watch.take() == [("m", {2: "2", 1: "1"})]

    play_with(scenario, LifecycleOptions(poll_interval_s=poll_interval_s, ready_marker="_READY"))


def test_another_base_path_begins_anew(tmp_path: Path) -> None:
    """A directory that is being written there unloads nothing that was loaded from here."""

    async def scenario(watch: Watch) -> None:
        write_fresh(tmp_path / "staging")
        (tmp_path / "here").mkdir()
        move(tmp_path / "staging", tmp_path / "here" / "1")
        watch.source.set_models([model(tmp_path / "here")])
        await watch.source.scan()
        assert watch.take() == [("m", {1: "1"})]
        write_fresh(tmp_path / "there" / "1")
        watch.source.set_models([model(tmp_path / "there")])
        await watch.source.scan()
        assert watch.take() == []
        await asyncio.to_thread((tmp_path / "there").rename, tmp_path / "aside")
        (tmp_path / "there").mkdir()
        move(tmp_path / "aside" / "1", tmp_path / "there" / "1")
        await watch.source.scan()
        (aspired,) = watch.aspired
        assert aspired.versions == {1: tmp_path / "there" / "1"}

    play_with(scenario, LifecycleOptions(poll_interval_s=3600.0))


class DeadMounts:
    """Listings that hang for models whose names say so, until they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.num_hanging = 0

    def __call__(
        self, model: MonitoredModel, *, rule: CompletenessRule, before: Listing | None
    ) -> Listing:
        if model.name.startswith("dead"):
            self.num_hanging += 1
            assert self.let_go.wait(60)
        return list_model(model, rule=rule, before=before)


def dead_mounts(scenario: Callable[[Watch, DeadMounts], Awaitable[None]], **options: bool) -> None:
    mounts = DeadMounts()

    async def run() -> None:
        watch = Watch(
            LifecycleOptions(poll_interval_s=0, **options), list_model=mounts, patience_s=0.3
        )
        await scenario(watch, mounts)
        await watch.source.stop()

    try:
        asyncio.run(run())
    finally:
        mounts.let_go.set()


def hung(base: Path, name: str) -> tuple[str, str]:
    return (name, f"{PREFIX}{base} has not answered for 0.3 s")


def test_mounts_that_hang_hold_up_no_other_model(tmp_path: Path) -> None:
    base = make_versions(tmp_path, "1")
    dead = [model(base, name=f"dead{number}") for number in range(8)]

    async def scenario(watch: Watch, mounts: DeadMounts) -> None:
        watch.source.set_models([*dead, model(base, name="alive")])
        await watch.source.scan()
        assert watch.take() == [("alive", {1: "1"})]
        assert watch.take_problems() == [hung(base, m.name) for m in dead]
        listing = watch.source.listing(dead[0].name)
        assert listing is not None
        assert listing.versions is None
        make_versions(base, "2")
        await watch.source.scan()
        assert watch.take() == [("alive", {2: "2"})]
        assert mounts.num_hanging == len(dead)
        mounts.let_go.set()
        await asyncio.gather(*watch.source._in_flight.values())
        assert sorted(watch.take()) == [(m.name, {2: "2"}) for m in dead]
        assert sorted(watch.take_problems()) == [(m.name, "") for m in dead]

    dead_mounts(scenario)


def test_a_model_that_moves_off_a_dead_mount_is_found(tmp_path: Path) -> None:
    base = make_versions(tmp_path / "good", "1")

    async def scenario(watch: Watch, mounts: DeadMounts) -> None:
        watch.source.set_models([model(tmp_path / "bad", name="dead")])
        await watch.source.scan()
        watch.source.set_models([model(base, name="dead")])
        mounts.let_go.set()
        await watch.source.scan()
        assert watch.take() == [("dead", {1: "1"})]
        assert watch.take_problems() == [hung(tmp_path / "bad", "dead"), ("dead", "")]

    dead_mounts(scenario)


def test_a_stop_waits_for_no_dead_mount(tmp_path: Path) -> None:
    base = make_versions(tmp_path, "1")

    async def scenario(watch: Watch, mounts: DeadMounts) -> None:
        watch.source.set_models([model(base, name="dead")])
        await watch.source.scan()
        answer = watch.source._in_flight[model(base, name="dead")]
        await watch.source.stop()
        mounts.let_go.set()
        await answer
        assert watch.take() == []

    dead_mounts(scenario)


@pytest.mark.parametrize("name", ["missing", "dead"])
def test_where_the_original_is_wanted_one_bad_path_hides_all(name: str, tmp_path: Path) -> None:
    good = make_versions(tmp_path / "good", "1")
    bad = tmp_path / "bad"
    reason = no_base_path(bad, name=name) if name == "missing" else hung(bad, name)[1]

    async def scenario(watch: Watch, mounts: DeadMounts) -> None:
        watch.source.set_models([model(good), model(bad, name=name)])
        await watch.source.scan()
        await watch.source.scan()
        assert watch.take() == []
        assert watch.take_problems() == [(name, reason)]
        make_versions(bad, "1")
        mounts.let_go.set()
        await asyncio.gather(*watch.source._in_flight.values())
        await watch.source.scan()
        assert watch.take() == [("m", {1: "1"}), (name, {1: "1"})]

    dead_mounts(scenario, is_model_listed_alone=False)
