"""Binary values in JSON: an object of the one member `b64`."""

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress

from aspira.contracts.errors import InvalidArgument
from aspira.frontends.rest.json_debug import debug_text

_WHITESPACE = b" \t\n\v\f\r"


def is_base64(value: object) -> bool:
    """Whether `value` is a binary value, decodable or not."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def decode_base64(value: Mapping[str, object]) -> bytes:
    """Its bytes. Whitespace is ignored; padding may be left out, but not in part.

    Raises:
        InvalidArgument: it is no binary value, or not base64.
    """
    text = value.get("b64")
    if len(value) != 1 or not isinstance(text, str):
        raise InvalidArgument(
            f"JSON Value: {debug_text(value)} not formatted correctly for base64 data"
        )
    compact = text.encode("utf-8", "surrogateescape").translate(None, _WHITESPACE)
    digits = compact.rstrip(b"=")
    padding = b"=" * (-len(digits) % 4)
    if compact[len(digits) :] in (b"", padding):
        with suppress(binascii.Error):
            return base64.b64decode(digits + padding, validate=True)
    raise InvalidArgument("Unable to base64 decode")
