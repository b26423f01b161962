import pytest

from aspira.contracts.identity import MAX_VERSION, Version
from aspira.lifecycle.version_choice import (
    All,
    Latest,
    Specific,
    VersionPolicy,
    choose_versions,
    parse_version,
    parse_versions,
)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("123", 123),
        ("00000123", 123),
        ("1700000000", 1700000000),
        ("0", 0),
        ("-5", -5),
        ("+5", 5),
        (" 5 ", 5),
        ("\t-5\n", -5),
        (str(MAX_VERSION), MAX_VERSION),
        (str(-MAX_VERSION - 1), -MAX_VERSION - 1),
        ("0" * 200 + "7", 7),
    ],
)
def test_a_directory_that_is_a_version(name: str, version: int) -> None:
    assert parse_version(name) == version


@pytest.mark.parametrize(
    "name",
    [
        "9223372036854775808",
        "-9223372036854775809",
        "v1",
        "1.0",
        "1e3",
        "0x1",
        "1_000",
        ".1",
        "1.tmp",
        "temp-123",
        "123-tmp",
        "",
        " ",
        "-",
        "+-5",
        "- 5",
        "1 2",
        "٣",
        "²",
        "\u00a05",
        "9" * 100_000,
    ],
)
def test_a_directory_that_is_not(name: str) -> None:
    assert parse_version(name) is None


def test_versions_keep_their_directory_names() -> None:
    assert parse_versions(["00000123", "v1", "5", ".6"]) == {123: "00000123", 5: "5"}


@pytest.mark.parametrize("names", [["1", "001", "01"], ["001", "01", "1"], ["01", "1", "001"]])
def test_of_one_number_twice_the_textually_last_wins(names: list[str]) -> None:
    assert parse_versions(names) == {1: "1"}


def versions(*numbers: int) -> dict[Version, str]:
    return {Version(number): str(number) for number in numbers}


def specific(*numbers: int) -> Specific:
    return Specific(tuple(Version(number) for number in numbers))


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        (Latest(), [10]),
        (Latest(0), [10]),
        (Latest(1), [10]),
        (Latest(2), [10, 9]),
        (Latest(99), [10, 9, 2, -1]),
        (All(), [10, 9, 2, -1]),
        (specific(2, 10), [10, 2]),
        (specific(2, 2), [2]),
        (specific(2, 7), [2]),
        (specific(7), []),
        (specific(), []),
    ],
)
def test_what_a_policy_chooses(policy: VersionPolicy, chosen: list[int]) -> None:
    available = versions(2, 10, -1, 9)
    assert list(choose_versions(available, policy=policy)) == chosen
    assert choose_versions(available, policy=policy).items() <= available.items()


@pytest.mark.parametrize("policy", [Latest(), Latest(3), All(), specific(1)])
def test_nothing_is_chosen_of_nothing(policy: VersionPolicy) -> None:
    assert choose_versions({}, policy=policy) == {}
