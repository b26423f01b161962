import os
from pathlib import Path

import pytest

from aspira.runtimes.compile_cache import (
    CompileCache,
    default_cache_dir,
    digest_files,
    digest_texts,
)

BLOB_BYTES = 100
ROOM_FOR_TWO = 2 * (BLOB_BYTES + 32)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "a" / "cache"


@pytest.fixture
def cache(directory: Path, told: list[str]) -> CompileCache:
    return CompileCache(directory, max_bytes=ROOM_FOR_TWO, report=told.append)


def blob(number: int) -> bytes:
    return bytes([number]) * BLOB_BYTES


def write(cache: CompileCache, directory: Path, *, number: int, age_s: int) -> None:
    cache.write(f"k{number}", blob=blob(number))
    os.utime(directory / f"k{number}.compiled", (age_s, age_s))


def test_what_is_written_is_read_by_another(
    cache: CompileCache, directory: Path, told: list[str]
) -> None:
    assert cache.try_read("k1") is None
    cache.write("k1", blob=blob(1))
    again = CompileCache(directory, max_bytes=ROOM_FOR_TWO, report=told.append)
    assert again.try_read("k1") == blob(1)
    assert [file.name for file in directory.iterdir()] == ["k1.compiled"]
    assert told == []


def test_the_one_unused_for_longest_goes(cache: CompileCache, directory: Path) -> None:
    write(cache, directory, number=1, age_s=1)
    write(cache, directory, number=2, age_s=2)
    assert cache.try_read("k1") == blob(1)
    cache.write("k3", blob=blob(3))
    assert [cache.try_read(f"k{number}") for number in (1, 2, 3)] == [blob(1), None, blob(3)]


def test_what_a_killed_process_left_goes_too(cache: CompileCache, directory: Path) -> None:
    cache.write("k1", blob=blob(1))
    left = directory / "x.partial"
    left.write_bytes(bytes(ROOM_FOR_TWO))
    os.utime(left, (1, 1))
    cache.write("k2", blob=blob(2))
    assert not left.exists()
    assert cache.try_read("k1") == blob(1)


def test_what_has_no_room_at_all_is_not_kept(cache: CompileCache, directory: Path) -> None:
    cache.write("k1", blob=bytes(ROOM_FOR_TWO))
    assert not directory.exists()


@pytest.mark.parametrize("damaged", [b"", b"short", bytes(32) + blob(1), b"\0" * 31])
def test_a_damaged_file_is_removed_and_told(
    cache: CompileCache, directory: Path, told: list[str], damaged: bytes
) -> None:
    cache.write("k1", blob=blob(1))
    (directory / "k1.compiled").write_bytes(damaged)
    assert cache.try_read("k1") is None
    assert not (directory / "k1.compiled").exists()
    (message,) = told
    assert "k1.compiled is not used, and compiled anew: it is damaged" in message


def test_a_directory_where_others_write_is_not_trusted(
    cache: CompileCache, directory: Path, told: list[str]
) -> None:
    cache.write("k1", blob=blob(1))
    directory.chmod(0o777)
    assert cache.try_read("k1") is None
    assert "where other users can write" in told[0]


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path, told: list[str]) -> None:
    (tmp_path / "file").touch()
    cache = CompileCache(tmp_path / "file" / "x", max_bytes=ROOM_FOR_TWO, report=told.append)
    cache.write("k1", blob=blob(1))
    assert "cannot be kept in" in told[0]
    assert cache.try_read("k1") is None


@pytest.mark.parametrize(
    ("configured", "expected"),
    [("/x/y", "/x/y/aspira/compiled"), ("", "/home/me/.cache/aspira/compiled"),
     ("relative", "/home/me/.cache/aspira/compiled")],
)  # fmt: skip
def test_the_default_directory(
    configured: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", configured)
    assert default_cache_dir() == Path(expected)


def test_digests_tell_contents_names_and_borders_apart(tmp_path: Path) -> None:
    def digest(**files: str) -> str:
        for file in tmp_path.iterdir():
            file.unlink()
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        return digest_files(tmp_path.iterdir(), root=tmp_path)

    digests = [digest(a="x", b="y"), digest(a="x", c="y"), digest(a="xb", b=""), digest(a="x")]
    assert len(set(digests)) == len(digests)
    assert digest(a="x", b="y") == digests[0]
    assert digest_texts("ab", "c") != digest_texts("a", "bc")
