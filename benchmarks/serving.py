"""Carries out the plan of the serving benchmark, round by round, one server at a time."""

import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from endpoints import CheckError, check_endpoint
from load import LoadError, apply_load
from models import Model
from plan import BARE_WAYS, Case, Section, Server
from processes import CpuMeter, CpuUse
from servers import RunningServer, StartError, run_program, run_server

ResultT = TypeVar("ResultT")

_WARMUP_S = 1.0
QUIET_CPUS = 0.2
_MAX_ERROR_TEXT = 160
_BARE_PROGRAM = Path(__file__).parent / "yardsticks" / "bare_tensorflow.py"


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """How long to measure, and where logs go."""

    num_rounds: int
    seconds: float
    num_tries: int
    """A measurement that other processes disturbed is made again; the quietest try counts."""

    output: Path


@dataclass(frozen=True, slots=True)
class Record:
    """What one measurement gave: figures, or an error and zeros."""

    key: str
    round: int
    error: str = ""
    requests_per_s: float = 0.0
    num_requests: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    server_cpu_us: float = 0.0
    """CPU time of the server for each request."""

    others_cpus: float = 0.0
    """CPUs that processes outside the benchmark kept busy meanwhile."""

    @property
    def is_quiet(self) -> bool:
        return self.others_cpus <= QUIET_CPUS


class Bench:
    """Collects records; a failure becomes one, and the rest goes on."""

    def __init__(self, options: BenchOptions) -> None:
        self._options = options
        self.records: list[Record] = []

    def run(self, sections: Iterable[Section]) -> None:
        """All rounds. Every second one goes backwards, so that drift favours nobody."""
        steps = list(self._list_steps(sections))
        for number in range(1, self._options.num_rounds + 1):
            for step in steps if number % 2 else reversed(steps):
                for record in step(number):
                    self._add(record)

    def _list_steps(
        self, sections: Iterable[Section]
    ) -> Iterable[Callable[[int], Iterable[Record]]]:
        for section in sections:
            for server in section.servers:
                yield lambda number, server=server: self._measure_server(server, number=number)
            if model := section.bare_model:
                yield lambda number, model=model: self._measure_bare(model, number=number)

    def _measure_server(self, server: Server, *, number: int) -> Iterable[Record]:
        log = self._options.output / f"{server.title.replace(' ', '-')}.log"
        try:
            with run_server(server.make_command, log=log) as running:
                for case in server.cases:
                    yield self._measure_case(case, running=running, number=number)
        except StartError as error:
            for case in server.cases:
                yield Record(case.key, number, error=f"{server.title} did not start: {error}")

    def _measure_case(self, case: Case, *, running: RunningServer, number: int) -> Record:
        port = running.ports.grpc
        try:
            endpoint = check_endpoint(case.endpoint, port=port)
            apply_load(endpoint, port=port, load=case.load, seconds=_WARMUP_S)
            outcome, use = self._try_quietly(
                lambda: apply_load(
                    endpoint, port=port, load=case.load, seconds=self._options.seconds
                ),
                process_id=running.process_id,
            )
        except (CheckError, LoadError) as error:
            return Record(case.key, number, error=" ".join(str(error).split())[:_MAX_ERROR_TEXT])
        return Record(
            case.key,
            number,
            requests_per_s=outcome.requests_per_s,
            num_requests=outcome.num_requests,
            p50_ms=outcome.p50_ms,
            p99_ms=outcome.p99_ms,
            server_cpu_us=use.server_s / outcome.num_requests * 1e6,
            others_cpus=use.others_cpus,
        )

    def _measure_bare(self, model: Model, *, number: int) -> Iterable[Record]:
        command = [
            sys.executable,
            str(_BARE_PROGRAM),
            str(model.version_directory),
            str(model.input_file),
            f"{self._options.seconds:g}",
        ]
        with (
            (self._options.output / "bare-tensorflow.log").open("ab") as log,
            run_program(command, stdout=subprocess.PIPE, stderr=log) as program,
        ):
            _read_line(program)
            for way in BARE_WAYS:
                yield self._measure_way(way.way, program=program, key=way.key(model), number=number)

    def _measure_way(
        self, way: str, *, program: subprocess.Popen[bytes], key: str, number: int
    ) -> Record:
        def measure() -> float:
            _write_line(program, text=way)
            return float(_read_line(program))

        try:
            rate, use = self._try_quietly(measure, process_id=program.pid)
        except (OSError, ValueError):
            return Record(key, number, error="the bare loop died; see bare-tensorflow.log")
        return Record(key, number, requests_per_s=rate, others_cpus=use.others_cpus)

    def _try_quietly(
        self, measure: Callable[[], ResultT], *, process_id: int
    ) -> tuple[ResultT, CpuUse]:
        """Measure until no one disturbs it; after the last try, the least disturbed counts."""
        tries: list[tuple[ResultT, CpuUse]] = []
        while len(tries) < self._options.num_tries:
            meter = CpuMeter(process_id)
            result = measure()
            tries.append((result, meter.read()))
            if tries[-1][1].others_cpus <= QUIET_CPUS:
                break
        return min(tries, key=lambda tried: tried[1].others_cpus)

    def _add(self, record: Record) -> None:
        self.records.append(record)
        figure = record.error or f"{record.requests_per_s:,.0f}/s, others {record.others_cpus:.1f}"
        print(
            f"[{record.round}/{self._options.num_rounds}] {record.key}: {figure}",
            file=sys.stderr,
            flush=True,
        )


def _write_line(program: subprocess.Popen[bytes], *, text: str) -> None:
    assert program.stdin is not None
    program.stdin.write(f"{text}\n".encode())
    program.stdin.flush()


def _read_line(program: subprocess.Popen[bytes]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().decode().strip()
