"""The compatibility page says what the code does of each flag."""

from pathlib import Path

from aspira.cli.flag_table import server_flags
from aspira.cli.foreign_flags import FOREIGN_FLAGS, Support
from aspira.compat import RESTORATIONS
from own_flags import OWN_FLAGS

PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"
BEGIN, END = "<!-- flags: begin -->\n", "<!-- flags: end -->"


def between(text: str, begin: str, end: str) -> str:
    return text[text.index(begin) + len(begin) : text.index(end)]


def better_table() -> str:
    rows = "".join(f"| {r.better} | {r.strict} |\n" for r in RESTORATIONS)
    return f"| by default | with `--compat=strict` |\n|---|---|\n{rows}"


def flag_table() -> str:
    rows = {
        flag.name: "works"
        for flag in server_flags(default_rest_port=0)
        if flag.name not in OWN_FLAGS
    }
    for flag in FOREIGN_FLAGS:
        kind = "no effect" if flag.support is Support.NO_EFFECT else "absent"
        rows[flag.name] = f"{kind}: {flag.reason}"
    rows["version"] = "works"
    lines = [f"| `{name}` | {status} |\n" for name, status in sorted(rows.items())]
    return "| flag | status |\n|---|---|\n" + "".join(lines)


def test_the_page_lists_every_flag_as_the_code_treats_it() -> None:
    text = PAGE.read_text()
    assert between(text, BEGIN, END) == flag_table(), f"the table should be:\n{flag_table()}"


def test_the_page_lists_what_is_better_on_purpose() -> None:
    listed = between(PAGE.read_text(), "<!-- better: begin -->\n", "<!-- better: end -->")
    assert listed == better_table(), f"the table should be:\n{better_table()}"


def test_every_flag_of_the_original_is_there() -> None:
    assert flag_table().count("\n| `") == 48
