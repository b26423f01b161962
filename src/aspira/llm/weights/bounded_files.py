"""Small files of a model directory, read with a bound, and the digest of large ones."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from aspira.contracts.errors import DataLoss, NotFound, ResourceExhausted

# tokenizer.json of the largest vocabularies has some 40 MB.
MAX_FILE_BYTES = 256 << 20


def read_bytes(path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """A whole file.

    Raises:
        NotFound: it cannot be read.
        ResourceExhausted: it is longer than such a file can sensibly be.
    """
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise NotFound(f"{path}; {error.strerror}") from error
    if len(data) > max_bytes:
        raise ResourceExhausted(f"{path} is longer than {max_bytes} bytes; is it the right file?")
    return data


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object.

    Raises:
        ServingError: the file cannot be read, or holds something else.
    """
    try:
        value = orjson.loads(read_bytes(path))
    except orjson.JSONDecodeError as error:
        raise DataLoss(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DataLoss(f"{path} is not a JSON object")
    return value


def digest_files(paths: Sequence[Path]) -> str:
    """SHA-256 over the files' digests, in the order given.

    Raises:
        NotFound: one cannot be read.
    """
    whole = hashlib.sha256()
    for path in paths:
        try:
            with path.open("rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise NotFound(f"{path}; {error.strerror}") from error
    return whole.hexdigest()
