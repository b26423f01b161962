"""What Linux says of processes: who descends from whom, and who used the CPUs how long."""

import os
import re
import resource
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class CpuUse:
    """Over some time: CPU seconds of the server, and how many CPUs strangers kept busy."""

    server_s: float
    others_cpus: float


class CpuMeter:
    """Takes the time from its making on: of a server, of our own children, of the machine.

    What runs on the machine and is neither is called others: the noise.
    """

    def __init__(self, server_process_id: int) -> None:
        self._server_process_id = server_process_id
        self._started = self._read()

    def read(self) -> CpuUse:
        now = self._read()
        wall_s, machine_s, server_s, ours_s = (
            after - before for before, after in zip(self._started, now, strict=True)
        )
        others_s = max(machine_s - server_s - ours_s, 0.0)
        return CpuUse(server_s, others_cpus=others_s / wall_s)

    def _read(self) -> tuple[float, float, float, float]:
        server = self._server_process_id
        server_s = sum(_read_process_s(each) for each in (server, *list_descendants(server)))
        return monotonic(), _read_machine_s(), server_s, _read_own_s()


def read_memory_bytes(process_id: int) -> int:
    """Resident memory of a process and its descendants; what they share counts once (PSS)."""
    return sum(map(_read_resident_bytes, (process_id, *list_descendants(process_id))))


def list_descendants(process_id: int) -> list[int]:
    """Children, their children, and so on."""
    found: list[int] = []
    for threads in Path(f"/proc/{process_id}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, threads.read_text().split()):
                found += [child, *list_descendants(child)]
    return found


def try_kill(process_id: int) -> None:
    """End a process that may have ended already."""
    with suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)


def _read_process_s(process_id: int) -> float:
    try:
        text = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return 0.0
    # The name, in parentheses, may hold anything; utime and stime are fields 14 and 15.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _read_resident_bytes(process_id: int) -> int:
    try:
        text = Path(f"/proc/{process_id}/smaps_rollup").read_text()
    except OSError:
        return 0
    match = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def _read_machine_s() -> float:
    """User, nice, system and stolen time. Interrupts are nobody's and left out."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(int(fields[index]) for index in (1, 2, 3, 8)) * _TICK_S


def _read_own_s() -> float:
    """This process and the load generators it has waited for."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)
