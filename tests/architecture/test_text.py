"""What no file of the repository may say, wherever it stands."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Each pattern is spelled so that it does not match itself.
FORBIDDEN = (
    re.compile(r"(?<![\w.~-])/(w[o]rk/|r[o]ot/|tmp/scr[a]tch)"),
    re.compile(
        r"\b(p[y]pi\.org|p[y]thonhosted\.org|np[m]js\.(org|com)|an[a]conda\.org|cr[a]tes\.io"
        r"|pr[o]xy\.golang\.org|d[o]cker\.io|gh[c]r\.io|qu[a]y\.io)\b"
    ),
    re.compile(r"\b(TO[D]O|FIX[M]E)\b"),
)
TRAILING_BLANKS = re.compile(r"[ \t]+$", re.MULTILINE)


def forbidden_words(text: str) -> list[str]:
    return [match[0] for pattern in FORBIDDEN for match in pattern.finditer(text)]


def repository_files() -> list[Path]:
    """Files that are in git or about to be."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60)
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_file_names_machines_registries_or_unfinished_work() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in repository_files()
        for word in forbidden_words(path.read_bytes().decode("utf-8", "replace"))
    ]
    assert not found, "\n".join(found)


def test_no_line_of_python_ends_in_blanks() -> None:
    paths = [path for path in repository_files() if path.suffix == ".py"]
    assert paths
    assert [str(path) for path in paths if TRAILING_BLANKS.search(path.read_text())] == []


@pytest.mark.parametrize(
    "text",
    [
        "cd /{}/main".format("work"),
        "'/{}/.cache'".format("root"),
        "file:///tmp/{}2/x".format("scratch"),
        "https://py{}.org/simple".format("pi"),
        "# TO{}: later".format("DO"),
        "# FIX{}".format("ME"),
    ],
)
def test_forbidden_words_are_found(text: str) -> None:
    assert len(forbidden_words(text)) == 1


@pytest.mark.parametrize("text", ["src/work/x", "workers", "a/root/b", "/roots/", "mastodon"])
def test_other_words_are_not(text: str) -> None:
    assert forbidden_words(text) == []
