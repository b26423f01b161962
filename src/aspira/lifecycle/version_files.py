"""What the files of a version directory tell: whether they are all there, whether they changed.

Nobody says when a directory has been written, so it is inferred. It is complete once nothing in it
has changed for a while: by our own looks, or by the times of its files where these are clearly
old. One that was written elsewhere and moved, as most publishers do, is complete at once: the last
thing that happened to it was then no change of its content. File systems without these times
(`ctime`) only lose the short cut. A marker file, where one is configured, replaces all that.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Well above what clocks of file servers and the granularity of file times may be off.
OLD_S = 3.0
_NANOSECONDS_PER_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CompletenessRule:
    """When a version directory counts as complete: once a file called `marker` is in it, or, with
    no marker, once it has been at rest for `rest_s` seconds. 0 seconds means: as soon as seen.
    """

    rest_s: float
    marker: str = ""


@dataclass(frozen=True, slots=True)
class FilesLook:
    """What one look found: `stamp` differs once a file of the tree comes, goes or changes.

    `since_s` is when the stamp was first seen, on the monotonic clock.
    """

    stamp: int
    since_s: float
    is_at_rest: bool

    def follow(self, before: "FilesLook | None", *, rest_s: float) -> "FilesLook":
        """This look in the light of the one before it."""
        if before is None or before.stamp != self.stamp:
            return FilesLook(self.stamp, self.since_s, self.is_at_rest or rest_s <= 0)
        has_rested = self.since_s - before.since_s >= rest_s
        is_at_rest = self.is_at_rest or before.is_at_rest or has_rested
        return FilesLook(self.stamp, before.since_s, is_at_rest)


def look_at_files(path: Path) -> FilesLook:
    """One look at a version directory, or a file in its place. Blocks; raises nothing."""
    since_s = time.monotonic()
    found = sorted(_walk(path))
    stamp = hash(tuple((name, entry.st_mtime_ns, entry.st_size) for name, entry in found))
    entries = [entry for _, entry in found]
    is_at_rest = bool(entries) and (_is_old(entries) or _is_moved_in(entries, parent=path.parent))
    return FilesLook(stamp, since_s, is_at_rest)


def has_marker(path: Path, *, marker: str) -> bool:
    """Whether the file that says so is there."""
    try:
        return (path / marker).exists()
    except OSError:
        return False


def _is_old(entries: list[os.stat_result]) -> bool:
    newest_ns = max(entry.st_mtime_ns for entry in entries)
    return newest_ns < time.time_ns() - OLD_S * _NANOSECONDS_PER_SECOND


def _is_moved_in(entries: list[os.stat_result], *, parent: Path) -> bool:
    """Whether the last thing that happened to the tree happened to its top, and was no new entry.

    Writing in place never looks like that: it ends with a file, or with an entry of a directory.
    Where both fall in one tick of the file system's clock, the parent tells: it changed after most
    of the tree was written, not before.
    """
    top, *inside = entries
    if not inside:
        return not stat.S_ISDIR(top.st_mode) and top.st_ctime_ns > top.st_mtime_ns
    if any(entry.st_ctime_ns > top.st_ctime_ns for entry in inside):
        return False
    if top.st_ctime_ns > top.st_mtime_ns:
        return True
    first_ns = min(entry.st_ctime_ns for entry in inside)
    return first_ns < top.st_ctime_ns <= _modified_ns(parent)


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _walk(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The path itself and everything below it. What vanishes meanwhile is left out."""
    with suppress(OSError):
        top = path.stat()
        yield "", top
        if stat.S_ISDIR(top.st_mode):
            yield from _walk_below(str(path))


def _walk_below(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                yield entry.path, entry.stat()
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk_below(entry.path)
