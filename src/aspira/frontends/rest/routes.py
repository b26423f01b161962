"""TensorFlow Serving's URL grammar."""

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.identity import MAX_VERSION, ModelName, ModelSpec, Version, VersionLabel
from aspira.frontends.rest.messages import BodilessError

API_PREFIX = "/v1/"
_MAX_CACHED_ROUTES = 256

_MODEL = r"/v1/models{name}(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_FLAGS = re.IGNORECASE | re.ASCII
_INFERENCE = re.compile(
    _MODEL.format(name="/(?P<name>[^/:]+)") + ":(?P<verb>classify|regress|predict)", _FLAGS
)
_RECORDING = re.compile(_MODEL.format(name="/(?P<name>[^/:]+)") + ":record_warmup", _FLAGS)
_LISTING_PATH = f"{API_PREFIX}models"
_QUESTION = re.compile(
    _MODEL.format(name="(?:/(?P<name>[^/:]+))?") + "(?:/(?P<verb>metadata))?", _FLAGS
)


class Route(NamedTuple):
    """What a `/v1` URL means. `verb` is predict, classify, regress, metadata or status."""

    verb: str
    spec: ModelSpec


def is_api_path(path: str) -> bool:
    """Whether the path belongs to the API, whose errors are JSON."""
    return path[: len(API_PREFIX)].lower() == API_PREFIX


@lru_cache(maxsize=_MAX_CACHED_ROUTES)
def find_route(method: str, *, path: str, is_lenient: bool = True) -> Route | None:
    """The route of a method and path (no query); None if there is no such thing.

    A lenient one may end with a slash, its verb is in whatever case, and HEAD goes where GET does.
    The original takes the query for a part of the path; give it that if this is not to be lenient.

    Raises:
        InvalidArgument: it names no model, or a version that is no int64 (BodilessError).
    """
    if is_lenient and method == "HEAD":
        method = "GET"
    pattern = {"POST": _INFERENCE, "GET": _QUESTION}.get(method)
    wanted = path.removesuffix("/") if is_lenient else path
    match = pattern.fullmatch(wanted) if pattern is not None else None
    if match is None:
        return None
    if match["name"] is None:
        raise InvalidArgument("Missing model name in request.")
    verb = (match["verb"] or "status").lower()
    if not is_lenient and match["verb"] not in {None, verb}:
        # The original's grammar takes it, and what it then compares with does not.
        return Route("status", _parse_spec(match)) if method == "GET" else None
    return Route(verb, _parse_spec(match))


def is_listing(method: str, *, path: str) -> bool:
    """Whether a method and path (no query) ask for all models, which the original refuses."""
    return method in {"GET", "HEAD"} and path.removesuffix("/").lower() == _LISTING_PATH


def find_recording(path: str) -> ModelSpec | None:
    """The model whose requests a path of the admin port asks to record; None if there is none.

    Raises:
        InvalidArgument: a version that is no int64.
    """
    match = _RECORDING.fullmatch(path)
    return _parse_spec(match) if match is not None else None


def _parse_spec(match: re.Match[str]) -> ModelSpec:
    label = match["label"]
    return ModelSpec(
        ModelName(unquote(match["name"])),
        version=_parse_version(match["version"]),
        label=None if label is None else VersionLabel(unquote(label)),
    )


def _parse_version(digits: str | None) -> Version | None:
    if digits is None:
        return None
    # Checked by length first: converting a string of digits takes time quadratic in its length.
    significant = digits.lstrip("0") or "0"
    if len(significant) > len(str(MAX_VERSION)) or int(significant) > MAX_VERSION:
        raise BodilessError(f"Failed to convert version: {digits[:64]} to numeric.")
    return Version(int(significant))
