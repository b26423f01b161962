"""Configuration in protobuf text format, with errors that name file, line and field; or JSON."""

from pathlib import Path
from typing import Any

from aspira.contracts.errors import InvalidArgument, NotFound

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any


def parse_text_file(path: Path, *, into: Message) -> None:
    """Parse a text proto file into a message.

    Raises:
        NotFound: the file cannot be read.
        InvalidArgument: it does not parse; the text names the file, the place and the problem.
    """
    parse_text(read_text_file(path), into=into, origin=str(path))


def parse_secret_file(path: Path, *, into: Message) -> None:
    """As `parse_text_file`, but an error quotes nothing of the file, only the place."""
    from google.protobuf import text_format

    text = read_text_file(path)
    try:
        text_format.Parse(text, into)
    except text_format.ParseError as error:
        place = f"{error.GetLine()}:{error.GetColumn()}"
        name = into.DESCRIPTOR.full_name
        raise InvalidArgument(
            f"Invalid protobuf file: '{path}': Error parsing text-format {name}: {place}: "
            "not understood (the line is not shown, as it may hold a secret)"
        ) from None


def read_text_file(path: Path) -> str:
    """The text of a file.

    Raises:
        NotFound: the file cannot be read.
        InvalidArgument: it is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"Invalid protobuf file: '{path}': it is not UTF-8 text") from error
    except OSError as error:
        raise NotFound(f"{path}; {error.strerror}") from error


def parse_text(text: str, *, into: Message, origin: str) -> None:
    """Parse text format; `origin` names it in errors.

    Raises:
        InvalidArgument: it does not parse.
    """
    from google.protobuf import text_format

    try:
        # What an Any may hold is what the message's own pool knows.
        text_format.Parse(text, into, descriptor_pool=into.DESCRIPTOR.file.pool)
    except text_format.ParseError as error:
        raise InvalidArgument(
            f"Invalid protobuf file: '{origin}': Error parsing text-format "
            f"{into.DESCRIPTOR.full_name}: {error}"
        ) from error


def parse_json(text: str, *, into: Message, origin: str) -> None:
    """The same for protobuf's JSON form.

    Raises:
        InvalidArgument: it does not parse.
    """
    from google.protobuf import json_format

    try:
        json_format.Parse(text, into)
    except json_format.ParseError as error:
        raise InvalidArgument(
            f"Invalid protobuf JSON: '{origin}': Error parsing {into.DESCRIPTOR.full_name}: {error}"
        ) from error
