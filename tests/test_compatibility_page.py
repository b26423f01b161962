"""The compatibility page says what the code does of each flag."""

from pathlib import Path

from aspira.cli.flag_table import server_flags
from aspira.cli.foreign_flags import FOREIGN_FLAGS, Support
from aspira.compat import RESTORATIONS

PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"
BEGIN, END = "<!-- flags: begin -->\n", "<!-- flags: end -->"
OWN = {
    "accelerator",
    "accelerator_batch_sizes",
    "admin_host",
    "admin_port",
    "batching",
    "calibration_file",
    "compat",
    "compile_cache_dir",
    "compile_cache_max_megabytes",
    "custom_op_libraries",
    "enable_all_batch_sizes_warmup",
    "host",
    "latency_target_ms",
    "listener",
    "max_queued_bytes",
    "kv_cache_budget_mib",
    "max_queued_requests",
    "num_run_threads",
    "openvino_num_streams",
    "precision",
    "shutdown_grace_seconds",
    "stream_drain_seconds",
    "stream_keep_alive_seconds",
    "version_ready_marker",
    "warmup_batch_sizes",
}


def between(text: str, begin: str, end: str) -> str:
    return text[text.index(begin) + len(begin) : text.index(end)]


def better_table() -> str:
    rows = "".join(f"| {r.better} | {r.strict} |\n" for r in RESTORATIONS)
    return f"| by default | with `--compat=strict` |\n|---|---|\n{rows}"


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
    assert between(text, BEGIN, END) == flag_table(), f"the table should be:\n{flag_table()}"


def test_the_page_lists_what_is_better_on_purpose() -> None:
    listed = between(PAGE.read_text(), "<!-- better: begin -->\n", "<!-- better: end -->")
    assert listed == better_table(), f"the table should be:\n{better_table()}"


def test_every_flag_of_the_original_is_there() -> None:
    assert flag_table().count("\n| `") == 48
