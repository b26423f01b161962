"""Log lines of Python's loggers have the form of those about models."""

import io
import logging
import subprocess
import sys
import time

import pytest

from aspira.observability.log_lines import LineFormatter, say, write_line

MOMENT = (2024, 5, 6, 12, 34, 56, 0, 0, -1)


def form(level: int, message: str, **fields: object) -> str:
    fields = {"name": "aspira.llm.engine", "levelno": level, "msg": message, **fields}
    record = logging.makeLogRecord(fields)
    record.created = time.mktime(MOMENT) + 0.25
    return LineFormatter().format(record)


@pytest.mark.parametrize(
    ("level", "letter"),
    [
        (logging.DEBUG, "I"),
        (logging.INFO, "I"),
        (logging.WARNING, "W"),
        (logging.ERROR, "E"),
        (logging.CRITICAL, "E"),
    ],
)
def test_the_form_is_tensorflows(level: int, letter: str) -> None:
    line = form(level, "%d steps", args=(3,))
    assert line == f"2024-05-06 12:34:56.250000: {letter} aspira/llm/engine] 3 steps"


def test_a_message_is_one_line_whatever_it_quotes() -> None:
    line = form(logging.ERROR, "no such file: %s\n", args=("a\r\nb",))
    assert line.endswith("] no such file: a\\r\\nb")


def test_a_traceback_follows_as_python_prints_it() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        text = form(logging.ERROR, "It failed", exc_info=sys.exc_info())
    first, second, *_, last = text.splitlines()
    assert first.endswith("E aspira/llm/engine] It failed")
    assert second == "Traceback (most recent call last):"
    assert last == "ValueError: broken"


def test_a_stack_that_was_asked_for_follows() -> None:
    assert form(logging.INFO, "here", stack_info="Stack:").endswith("] here\nStack:")


def test_what_is_said_of_the_server_has_the_form_too(capsys: pytest.CaptureFixture[str]) -> None:
    say("Stopped.")
    say("Killed.", severity="E")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 1)[1] for line in lines] == [
        "I aspira/server] Stopped.",
        "E aspira/server] Killed.",
    ]


def test_a_log_that_cannot_be_written_is_no_failure() -> None:
    closed = io.StringIO()
    closed.close()
    write_line(closed, line="unheard")


PROGRAM = """
import asyncio, logging, sys, threading, warnings
{before}
from aspira.observability.log_lines import take_over_logging
take_over_logging()
take_over_logging()

async def fail():
    raise ValueError("forgotten")

async def forget():
    task = asyncio.ensure_future(fail())
    await asyncio.wait([task])

logging.getLogger("aspira.batching").info("an info of ours")
logging.getLogger("uvicorn.error").info("an info of a library")
logging.getLogger("openvino").warning("a warning of a library")
warnings.warn("outdated", stacklevel=1)
asyncio.run(forget())
thread = threading.Thread(target=int, args=("x",), name="worker")
thread.start()
thread.join()
leaving = threading.Thread(target=sys.exit)
leaving.start()
leaving.join()
"""


def run_program(before: str = "") -> str:
    command = [sys.executable, "-c", PROGRAM.format(before=before)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def test_a_process_logs_in_this_form_and_each_thing_once() -> None:
    lines = run_program().splitlines()
    heads = [line.split(": ", 1)[1] for line in lines if line.startswith("20")]
    ours, library, warning, task, thread = heads
    assert ours == "I aspira/batching] an info of ours"
    assert library == "W openvino] a warning of a library"
    assert warning.startswith("W py/warnings] ")
    assert "UserWarning: outdated" in warning
    assert task.startswith("E asyncio] Task exception was never retrieved")
    assert thread == "E aspira/threads] Thread worker ended in an exception"
    assert lines.count("Traceback (most recent call last):") == 2
    assert [line for line in lines if line.startswith("ValueError: ")] == [
        "ValueError: forgotten",
        "ValueError: invalid literal for int() with base 10: 'x'",
    ]


def test_who_has_configured_logging_is_left_alone() -> None:
    lines = run_program("logging.basicConfig(format='MINE %(message)s')").splitlines()
    assert "MINE a warning of a library" in lines
    assert not [line for line in lines if line.startswith("20")]
