"""The compatibility page says what the code does of each flag."""

from pathlib import Path

from aspira.cli.flag_table import server_flags
from aspira.cli.foreign_flags import FOREIGN_FLAGS, Support

PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"
BEGIN, END = "<!-- flags: begin -->\n", "<!-- flags: end -->"
OWN = {
    "admin_host",
    "admin_port",
    "custom_op_libraries",
    "enable_all_batch_sizes_warmup",
    "host",
    "listener",
    "num_run_threads",
    "shutdown_grace_seconds",
    "warmup_batch_sizes",
    "batching",
    "latency_target_ms",
    "max_queued_bytes",
    "max_queued_requests",
}


def flag_table() -> str:
    rows = {
        flag.name: "works" for flag in server_flags(default_rest_port=0) if flag.name not in OWN
    }
    for flag in FOREIGN_FLAGS:
        kind = "no effect" if flag.support is Support.NO_EFFECT else "absent"
        rows[flag.name] = f"{kind}: {flag.reason}"
    rows["version"] = "works"
    lines = [f"| `{name}` | {status} |\n" for name, status in sorted(rows.items())]
    return "| flag | status |\n|---|---|\n" + "".join(lines)


def test_the_page_lists_every_flag_as_the_code_treats_it() -> None:
    text = PAGE.read_text()
    listed = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert listed == flag_table(), f"the table should be:\n{flag_table()}"


def test_every_flag_of_the_original_is_there() -> None:
    assert flag_table().count("\n| `") == 48
