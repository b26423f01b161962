"""When a version directory counts as complete. File times are set, so nothing here waits."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aspira.lifecycle.version_files import OLD_S, FilesLook, has_marker, look_at_files


def write_in_place(path: Path) -> Path:
    """As `cp -r` and downloads do: into the directory that is being watched."""
    (path / "variables").mkdir(parents=True)
    (path / "saved_model.pb").write_bytes(b"graph")
    (path / "variables" / "variables.data").write_bytes(b"weights")
    return path


def set_age(path: Path, *, seconds: float) -> None:
    """Set the modification time of one file or directory."""
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


def age_all(path: Path) -> None:
    for directory, _, names in os.walk(path, topdown=False):
        for name in names:
            set_age(Path(directory, name), seconds=10 * OLD_S)
        set_age(Path(directory), seconds=10 * OLD_S)


def move_in(path: Path) -> None:
    """Written elsewhere, then renamed, later than the last tick of the file system's clock."""
    staging = write_in_place(path.with_name("staging"))
    while staging.stat().st_ctime_ns <= staging.stat().st_mtime_ns:
        staging.chmod(0o755)
    staging.rename(path)


def move_in_at_once(path: Path) -> None:
    """Renamed in the same tick in which its last file was created."""
    staging = write_in_place(path.with_name("staging"))
    last = staging / "fingerprint.pb"
    while staging.stat().st_ctime_ns <= (staging / "variables").stat().st_ctime_ns:
        last.unlink(missing_ok=True)
        last.touch()
    staging.rename(path)


def copy_tree(path: Path) -> None:
    """Ends with the times of the directory itself."""
    shutil.copytree(write_in_place(path.with_name("source")), path)


def write_long_ago(path: Path) -> None:
    age_all(write_in_place(path))


def copy_with_old_times_half(path: Path) -> None:
    """As `cp -a` in its midst: the files that are there keep their old times."""
    write_in_place(path)
    set_age(path / "saved_model.pb", seconds=10 * OLD_S)


def write_a_file_deep_inside(path: Path) -> None:
    write_long_ago(path)
    extra = path / "variables" / "shard"
    extra.mkdir()
    set_age(path / "variables", seconds=10 * OLD_S)
    while extra.stat().st_ctime_ns <= path.stat().st_ctime_ns:
        extra.touch()


def begin_in_place(path: Path) -> None:
    """As a download does, before its first bytes come; meanwhile somebody tidies up beside it."""
    path.mkdir()
    (path / "saved_model.pb").touch()
    path.with_name("6").mkdir()
    path.with_name("6").rmdir()


def make_empty(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("publish", "is_at_rest"),
    [
        (write_in_place, False),
        (write_long_ago, True),
        (move_in, True),
        (move_in_at_once, True),
        (copy_tree, True),
        (copy_with_old_times_half, False),
        (write_a_file_deep_inside, False),
        (begin_in_place, False),
        (make_empty, False),
    ],
)
def test_what_one_look_can_tell(
    publish: Callable[[Path], object], is_at_rest: bool, tmp_path: Path
) -> None:
    publish(tmp_path / "7")
    assert look_at_files(tmp_path / "7").is_at_rest is is_at_rest


def test_a_time_to_come_is_not_old(tmp_path: Path) -> None:
    write_long_ago(tmp_path / "7")
    write_in_place(tmp_path / "8")
    set_age(tmp_path / "8" / "saved_model.pb", seconds=-3600)
    assert not look_at_files(tmp_path / "8").is_at_rest


@pytest.mark.parametrize("is_file", [True, False])
def test_what_is_no_directory_is_looked_at_too(is_file: bool, tmp_path: Path) -> None:
    if is_file:
        (tmp_path / "7").write_text("not a directory")
    look = look_at_files(tmp_path / "7")
    assert not look.is_at_rest
    assert (look.stamp == look_at_files(tmp_path / "none").stamp) is not is_file


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.data", "variables/new"])
def test_the_stamp_tells_of_every_file(name: str, tmp_path: Path) -> None:
    path = write_in_place(tmp_path / "7")
    before = look_at_files(path).stamp
    assert look_at_files(path).stamp == before
    (path / name).write_bytes(b"other bytes")
    assert look_at_files(path).stamp != before


def look(stamp: int, *, at_s: float, is_at_rest: bool = False) -> FilesLook:
    return FilesLook(stamp, at_s, is_at_rest)


@pytest.mark.parametrize(
    ("before", "now", "since_s", "is_at_rest"),
    [
        (None, look(1, at_s=10.0), 10.0, False),
        (None, look(1, at_s=10.0, is_at_rest=True), 10.0, True),
        (look(1, at_s=9.5), look(1, at_s=10.0), 9.5, False),
        (look(1, at_s=9.0), look(1, at_s=10.0), 9.0, True),
        (look(1, at_s=9.9, is_at_rest=True), look(1, at_s=10.0), 9.9, True),
        (look(2, at_s=1.0, is_at_rest=True), look(1, at_s=10.0), 10.0, False),
    ],
)
def test_a_tree_is_at_rest_once_it_has_not_changed_for_a_second(
    before: FilesLook | None, now: FilesLook, since_s: float, is_at_rest: bool
) -> None:
    assert now.follow(before, rest_s=1.0) == FilesLook(now.stamp, since_s, is_at_rest)


@pytest.mark.parametrize("before", [None, look(1, at_s=10.0), look(2, at_s=10.0)])
def test_without_a_time_to_rest_everything_is_at_rest(before: FilesLook | None) -> None:
    assert look(1, at_s=10.0).follow(before, rest_s=0.0).is_at_rest


def test_a_marker_is_a_file_of_that_name(tmp_path: Path) -> None:
    path = write_in_place(tmp_path / "7")
    assert not has_marker(path, marker="_READY")
    (path / "_READY").touch()
    assert has_marker(path, marker="_READY")
    assert not has_marker(path / "saved_model.pb", marker="_READY")
