"""The protocol's URL grammar; labels as TensorFlow Serving's URLs have them."""

import re
from typing import NamedTuple
from urllib.parse import unquote

from aspira.contracts.errors import InvalidArgument, NotFound, shorten
from aspira.contracts.identity import MAX_VERSION, ModelName, ModelSpec, Version, VersionLabel

PREFIXES = ("/v2", "/v2/")
"""The first four characters of its paths."""

_SERVER = re.compile(r"/v2(?:/health/(?P<question>live|ready))?/?")
_MODEL = re.compile(
    r"/v2/models/(?P<name>[^/]+)"
    r"(?:/versions/(?P<version>[0-9]{1,19})|/labels/(?P<label>[^/]+))?"
    r"(?:/(?P<verb>ready|config|infer|generate|generate_stream))?/?"
)


class V2Route(NamedTuple):
    """What a path asks for: of the server if there is no `spec`."""

    verb: str
    spec: ModelSpec | None = None


def find_route(path: str) -> V2Route:
    """The route of a path as it was sent, without a query.

    Raises:
        NotFound: there is no such path.
        InvalidArgument: there can be no such version.
    """
    match = _SERVER.fullmatch(path)
    if match is not None:
        return V2Route(match["question"] or "server")
    match = _MODEL.fullmatch(path)
    if match is None:
        raise NotFound(f"There is nothing at {shorten(path)}")
    return V2Route(match["verb"] or "metadata", _parse_spec(match))


def parse_version(digits: str) -> Version | None:
    """A version as the protocol writes it; none for no digits.

    Raises:
        InvalidArgument: there can be no such version.
    """
    if not digits:
        return None
    if not digits.isdecimal() or len(digits) > len(str(MAX_VERSION)) or int(digits) > MAX_VERSION:
        raise InvalidArgument(f"There can be no version {digits[:64]!r}; versions are numbers.")
    return Version(int(digits))


def _parse_spec(match: re.Match[str]) -> ModelSpec:
    label = match["label"]
    return ModelSpec(
        ModelName(unquote(match["name"])),
        version=parse_version(match["version"] or ""),
        label=None if label is None else VersionLabel(unquote(label)),
    )
