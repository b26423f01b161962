"""Carries out the plan of the serving benchmark, round by round, one server at a time."""

import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

from batch_counts import read_batches
from endpoints import CheckError, Endpoint, check_endpoint
from load import LoadError, Outcome, apply_load
from plan import BareProgram, Case, Server, Step
from processes import CpuMeter, CpuUse, read_memory_bytes
from servers import Ports, RunningServer, StartError, run_program, run_server

ResultT = TypeVar("ResultT")

_WARMUP_S = 1
_READY_LIMIT_S = 120
_POLL_S = 0.2
_IDLE_S = 0.5
_IDLE_CPUS = 0.3
_MIB = 2**20
QUIET_CPUS = 0.2
_MAX_ERROR_TEXT = 160


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """How long to measure, and where logs go."""

    num_rounds: int
    seconds: int
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

    memory_mib: float = 0.0
    """Resident memory of the server's processes after the measurement."""

    others_cpus: float = 0.0
    """CPUs that processes outside the benchmark kept busy meanwhile."""

    rows_per_run: float = 0.0
    """Mean size of the batches that were made; 0 where the server does not tell."""

    @property
    def is_quiet(self) -> bool:
        return self.others_cpus <= QUIET_CPUS


class Bench:
    """Collects records; a failure becomes one, and the rest goes on."""

    def __init__(self, options: BenchOptions) -> None:
        self.options = options
        self.records: list[Record] = []

    def run(self, steps: Sequence[Step]) -> None:
        """All rounds. Every second one goes backwards, so that drift favours nobody."""
        for number in range(1, self.options.num_rounds + 1):
            for step in steps if number % 2 else reversed(steps):
                for record in self._measure(step, number=number):
                    self._add(record)

    def _measure(self, step: Step, *, number: int) -> Iterable[Record]:
        if isinstance(step, Server):
            return self._measure_server(step, number=number)
        return self._measure_bare(step, number=number)

    def _measure_server(self, server: Server, *, number: int) -> Iterable[Record]:
        log = self.options.output / f"{server.title.replace(' ', '-')}.log"
        try:
            with run_server(server.make_command, log=log) as running:
                give_up = monotonic() + _READY_LIMIT_S
                self._wait_settled(server, running=running, give_up=give_up)
                for case in server.cases:
                    port = server.choose_port(running.ports, protocol=case.endpoint.protocol)
                    try:
                        endpoint = _wait_right(case.endpoint, port=port, give_up=give_up)
                        measure = partial(
                            self._measure_case, case, endpoint=endpoint, running=running, port=port
                        )
                        outcome = _with_batches(measure, server=server, ports=running.ports)
                    except (CheckError, LoadError) as error:
                        outcome = Record("", 0, error=_shorten(str(error)))
                    yield replace(outcome, key=case.key, round=number)
        except (StartError, CheckError) as error:
            for case in server.cases:
                text = _shorten(f"{server.title} did not start: {error}")
                yield Record(case.key, number, error=text)

    @staticmethod
    def _wait_settled(server: Server, *, running: RunningServer, give_up: float) -> None:
        """Until it answers and is idle: one process of several may answer while others still start.

        Raises:
            CheckError: it does not answer.
        """
        first = server.cases[0].endpoint
        port = server.choose_port(running.ports, protocol=first.protocol)
        _wait_right(first, port=port, give_up=give_up)
        while monotonic() < give_up:
            meter = CpuMeter(running.process_id)
            sleep(_IDLE_S)
            if meter.read().server_s < _IDLE_CPUS * _IDLE_S:
                break

    def _measure_case(
        self, case: Case, *, endpoint: Endpoint, running: RunningServer, port: int
    ) -> Record:
        """A record that has no key yet."""
        process_id = running.process_id

        def measure(seconds: int) -> Outcome:
            return apply_load(endpoint, port=port, load=case.load, seconds=seconds)

        measure(_WARMUP_S)
        outcome, use = self._try_quietly(
            lambda: measure(self.options.seconds), process_id=process_id
        )
        return Record(
            "",
            0,
            requests_per_s=outcome.requests_per_s,
            num_requests=outcome.num_requests,
            p50_ms=outcome.p50_ms,
            p99_ms=outcome.p99_ms,
            server_cpu_us=use.server_s / outcome.num_requests * 1e6,
            memory_mib=read_memory_bytes(process_id) / _MIB,
            others_cpus=use.others_cpus,
        )

    def _measure_bare(self, bare: BareProgram, *, number: int) -> Iterable[Record]:
        command = [*bare.command, str(self.options.seconds)]
        log = self.options.output / f"{bare.title.replace(' ', '-')}.log"
        with (
            log.open("ab") as output,
            run_program(command, stdout=subprocess.PIPE, stderr=output) as program,
        ):
            _read_line(program)
            for way in bare.ways:
                key = way.key(bare.model)
                yield self._measure_way(way.way, program=program, key=key, number=number)

    def _measure_way(
        self, way: str, *, program: subprocess.Popen[bytes], key: str, number: int
    ) -> Record:
        def measure() -> float:
            _write_line(program, text=way)
            return float(_read_line(program))

        try:
            rate, use = self._try_quietly(measure, process_id=program.pid)
        except (OSError, ValueError):
            return Record(key, number, error="the bare loop died; see its log")
        return Record(
            key,
            number,
            requests_per_s=rate,
            memory_mib=read_memory_bytes(program.pid) / _MIB,
            others_cpus=use.others_cpus,
        )

    def _try_quietly(
        self, measure: Callable[[], ResultT], *, process_id: int
    ) -> tuple[ResultT, CpuUse]:
        """Measure until no one disturbs it; after the last try, the least disturbed counts."""
        tries: list[tuple[ResultT, CpuUse]] = []
        while len(tries) < self.options.num_tries:
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
            f"[{record.round}/{self.options.num_rounds}] {record.key}: {figure}",
            file=sys.stderr,
            flush=True,
        )


def _with_batches(measure: Callable[[], Record], *, server: Server, ports: Ports) -> Record:
    """The record, with the mean size of the batches that were made, warm-up included."""
    if not server.tells_batches:
        return measure()
    before = read_batches(ports.rest)
    record = measure()
    after = read_batches(ports.rest)
    num_runs = after.num_runs - before.num_runs
    return replace(record, rows_per_run=(after.num_rows - before.num_rows) / max(num_runs, 1))


def _wait_right(endpoint: Endpoint, *, port: int, give_up: float) -> Endpoint:
    """Call until the answer is right: a server may open its ports before its models are there.

    Raises:
        CheckError: it never was; the text is of the last call.
    """
    while True:
        try:
            return check_endpoint(endpoint, port=port)
        except CheckError:
            if monotonic() > give_up:
                raise
        sleep(_POLL_S)


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_MAX_ERROR_TEXT]


def _write_line(program: subprocess.Popen[bytes], *, text: str) -> None:
    assert program.stdin is not None
    program.stdin.write(f"{text}\n".encode())
    program.stdin.flush()


def _read_line(program: subprocess.Popen[bytes]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().decode().strip()
