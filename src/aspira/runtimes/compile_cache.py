"""Keeps compiled models on disk, so that a restart does not compile again.

A file is named by a digest of all that went into it, and starts with a digest of the rest, so a
damaged one is noticed and compiled anew. The files that were used last stay within the bound.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

_SUFFIX = ".compiled"
_PARTIAL_SUFFIX = ".partial"
_CHUNK_BYTES = 1 << 20
_DIGEST_BYTES = hashlib.sha256().digest_size

Report = Callable[[str], None]


class CompileCache:
    """A directory of compiled models. Several processes may share it.

    `report` gets what is wrong with it, in words: a cache that fails costs time, not the model.
    """

    def __init__(self, directory: Path, *, max_bytes: int, report: Report) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._report = report

    def try_read(self, key: str) -> bytes | None:
        """What was written under `key`, if it is there and whole."""
        file = self._file(key)
        try:
            if not self._is_private():
                return None
            content = file.read_bytes()
            os.utime(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._report(f"Compiled models cannot be read from {self._directory}: {error}")
            return None
        blob = content[_DIGEST_BYTES:]
        if hashlib.sha256(blob).digest() == content[:_DIGEST_BYTES]:
            return blob
        self.drop(key, reason="it is damaged")
        return None

    def write(self, key: str, *, blob: bytes) -> None:
        """Keep `blob`; older files go if there is no room."""
        if len(blob) + _DIGEST_BYTES > self._max_bytes:
            return
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._is_private():
                self._replace(key, content=hashlib.sha256(blob).digest() + blob)
                self._remove_oldest()
        except OSError as error:
            self._report(f"Compiled models cannot be kept in {self._directory}: {error}")

    def drop(self, key: str, *, reason: str) -> None:
        """Remove what is no use, and say so."""
        file = self._file(key)
        self._report(f"The compiled model {file} is not used, and compiled anew: {reason}")
        with suppress(OSError):
            file.unlink()

    def _file(self, key: str) -> Path:
        return self._directory / f"{key}{_SUFFIX}"

    def _is_private(self) -> bool:
        """Whether only we can write there: a compiled model is run as code."""
        status = self._directory.stat()
        if status.st_uid == os.geteuid() and not status.st_mode & 0o022:
            return True
        self._report(
            f"Compiled models are not kept in {self._directory}, where other users can write; "
            "give --compile_cache_dir a directory of your own"
        )
        return False

    def _replace(self, key: str, *, content: bytes) -> None:
        with tempfile.NamedTemporaryFile(
            dir=self._directory, suffix=_PARTIAL_SUFFIX, delete=False
        ) as file:
            try:
                file.write(content)
                file.close()
                Path(file.name).replace(self._file(key))
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise

    def _remove_oldest(self) -> None:
        found = []
        # A process that was killed leaves a partial one.
        for file in self._directory.iterdir():
            if file.suffix not in {_SUFFIX, _PARTIAL_SUFFIX}:
                continue
            with suppress(FileNotFoundError):
                status = file.stat()
                found.append((status.st_mtime_ns, status.st_size, file))
        num_bytes = sum(size for _, size, _ in found)
        for _, size, file in sorted(found):
            if num_bytes <= self._max_bytes:
                return
            file.unlink(missing_ok=True)
            num_bytes -= size


def default_cache_dir() -> Path:
    """Where the user's caches go, by the XDG Base Directory Specification.

    Raises:
        RuntimeError: the user has no home directory.
    """
    configured = os.environ.get("XDG_CACHE_HOME", "")
    # A relative path is to be ignored, says the specification.
    base = Path(configured) if configured.startswith("/") else Path.home() / ".cache"
    return base / "aspira" / "compiled"


def digest_files(files: Iterable[Path], *, root: Path) -> str:
    """One digest of the names below `root` and the contents of files."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def digest_texts(*texts: str) -> str:
    """One digest of texts, in their order."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
