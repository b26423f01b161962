import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.frontends.rest.json_base64 import decode_base64, is_base64


@pytest.mark.parametrize("value", [{"b64": ""}, {"b64": "not base64"}])
def test_binary_values(value: object) -> None:
    assert is_base64(value)


@pytest.mark.parametrize("value", [{}, {"b64": 1}, {"b64": "", "more": 1}, {"b": ""}, "aGk=", None])
def test_other_values(value: object) -> None:
    assert not is_base64(value)


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("", b""),
        ("aA", b"h"),
        ("aGk=", b"hi"),
        ("aGk", b"hi"),
        (" a G\nk = ", b"hi"),
        ("/+8=", b"\xff\xef"),
    ],
)
def test_decoding(text: str, decoded: bytes) -> None:
    assert decode_base64({"b64": text}) == decoded


@pytest.mark.parametrize("text", ["a", "_-8=", "aGk==", "é", "aG=k"])
def test_what_is_not_base64(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode_base64({"b64": text})
    assert caught.value.message == "Unable to base64 decode"


@pytest.mark.parametrize(
    ("value", "shown"),
    [({"b64": 1}, '{\n    "b64": 1\n}'), ({}, "{}")],
)
def test_malformed_values(value: dict[str, object], shown: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode_base64(value)
    assert caught.value.message == f"JSON Value: {shown} not formatted correctly for base64 data"
