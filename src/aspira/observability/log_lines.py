"""The one form of a log line, TensorFlow's: time, severity, where it comes from, what is said.

    2026-05-06 12:34:56.250000: W aspira/service/config_watch] the message

A message is one line whatever it quotes, so that no client can write lines of its own; a traceback
follows its line as Python prints it, which is the form that log collectors know.
"""

import logging
import sys
import threading
import time
from contextlib import suppress
from typing import TextIO


def format_line(message: str, *, severity: str, source: str, wall_time_s: float) -> str:
    """A line without its end. `severity` is I, W or E; the time is shown as local time."""
    seconds, microseconds = divmod(int(wall_time_s * 1e6), 1_000_000)
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    text = message.replace("\r", "\\r").replace("\n", "\\n")
    return f"{moment}.{microseconds:06d}: {severity} {source}] {text}"


def write_line(stream: TextIO, *, line: str) -> None:
    """Write and flush. A log that cannot be written, its disk full, must not stop serving."""
    with suppress(OSError, ValueError):
        stream.write(line + "\n")
        stream.flush()


def say(message: str, *, severity: str = "I") -> None:
    """A line of the process that serves models, or of its parent, about itself."""
    line = format_line(message, severity=severity, source="aspira/server", wall_time_s=time.time())
    write_line(sys.stderr, line=line)


class LineFormatter(logging.Formatter):
    """Records of Python's logging as such lines; a logger's name says where they come from."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback if there is one."""
        line = format_line(
            record.getMessage().rstrip(),
            severity=_severity(record.levelno),
            source=record.name.replace(".", "/"),
            wall_time_s=record.created,
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        if record.stack_info:
            line += "\n" + self.formatStack(record.stack_info)
        return line


def take_over_logging() -> None:
    """Send what this process logs to stderr: our loggers, those of libraries, Python's warnings.

    For the entry of a process, once. Who has given the root logger a handler wants it otherwise
    and is left alone; lines about models and the server's own state are written in any case.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    root.addHandler(handler)
    # Of ours what is good to know as well; of libraries only what is wrong.
    logging.getLogger("aspira").setLevel(logging.INFO)
    logging.captureWarnings(capture=True)
    threading.excepthook = _log_thread_end


def _log_thread_end(end: threading.ExceptHookArgs) -> None:
    """As Python's own hook: a thread that is told to exit has nothing to report."""
    if end.exc_type is SystemExit or end.exc_value is None:
        return
    name = end.thread.name if end.thread is not None else "unknown"
    logging.getLogger("aspira.threads").error(
        "Thread %s ended in an exception",
        name,
        exc_info=(end.exc_type, end.exc_value, end.exc_traceback),
    )


def _severity(level: int) -> str:
    if level >= logging.ERROR:
        return "E"
    return "W" if level >= logging.WARNING else "I"
