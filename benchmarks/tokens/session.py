"""Carries out the plan of the token benchmark: one subject at a time, its failures kept."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import Any

from processes import CpuMeter, CpuUse, read_memory_bytes
from servers import RunningServer, StartError, bind_to_parent, run_program, run_server
from tokens.agreement import Agreement, ReferenceTexts
from tokens.load import Load, LoadResult, decode_result, encode_load
from tokens.plan import ONE, THIRTY_TWO, BareLoop, Server, Subject, Workload, make_body
from tokens.prompts import Prompt, PromptMaker
from tokens.records import Record
from tokens.timelines import NothingAnsweredError, Timeline, poisson_arrivals, summarize

_LOAD = Path(__file__).with_name("load.py")
PATH = "/v1/completions"
_READY_LIMIT_S = 120
_LOAD_LIMIT_S = 200
_POLL_S = 0.5
_MIB = 2**20
_MAX_ERROR_TEXT = 200
_WARM_UP = replace(THIRTY_TWO, name="warm_up", num_output_tokens=16)
_FIRST_WORDS = replace(ONE, name="ready", num_requests=1, num_output_tokens=2)


class LoopError(Exception):
    """A bare loop gave no figures; the text says why."""


@dataclass(frozen=True, slots=True)
class Wave:
    """Requests that a bare loop gets at once."""

    prompts: tuple[Sequence[int], ...]
    num_output_tokens: int
    has_prefix_cache: bool = True
    is_kept: bool = False
    """Whether the answers are wanted too."""


@dataclass(frozen=True, slots=True)
class WaveResult:
    """What became of a wave."""

    num_tokens: int
    seconds: float
    cpu_s: float
    steps_ms: tuple[float, ...]
    answers: tuple[Sequence[int], ...]

    @property
    def late_step_ms(self) -> float:
        """The median of the second half: no prompt is computed any more."""
        return median(self.steps_ms[len(self.steps_ms) // 2 :])


class Session:
    """Collects records; a failure becomes one, and the rest goes on."""

    def __init__(self, prompts: PromptMaker, *, texts: ReferenceTexts, output: Path) -> None:
        self.prompts = prompts
        self.records: list[Record] = []
        self.agreements: dict[str, Agreement] = {}
        self._texts = texts
        self._output = output
        self._num_made = 0

    def measure(self, subject: Subject, *, number: int) -> None:
        """All workloads of a subject, in round `number`."""
        if isinstance(subject, BareLoop):
            self._measure_loop(subject, number=number)
            return
        try:
            with self.serve(subject) as running:
                for workload in subject.workloads:
                    self._measure_load(subject, running=running, workload=workload, number=number)
                self._compare(subject, running=running)
        except (StartError, NothingAnsweredError) as error:
            self._fail(subject, number=number, error=error)

    @contextmanager
    def serve(self, server: Server) -> Iterator[RunningServer]:
        """The server, warm, within the block.

        Raises:
            StartError, NothingAnsweredError: it does not answer.
        """
        log = self._output / f"{server.name}.log"
        with run_server(server.make_command, log=log) as running:
            give_up = monotonic() + _READY_LIMIT_S
            while True:
                try:
                    summarize(self.ask(server, running=running, workload=_FIRST_WORDS).timelines)
                    break
                except NothingAnsweredError:
                    if monotonic() > give_up:
                        raise
                sleep(_POLL_S)
            self.ask(server, running=running, workload=_WARM_UP)
            yield running

    def ask(
        self,
        server: Server,
        *,
        running: RunningServer,
        workload: Workload,
        prompts: Sequence[Prompt] | None = None,
    ) -> LoadResult:
        """Put a load on a server: prompts that no other load had, unless they are given."""
        prompts = self.make_prompts(workload) if prompts is None else prompts
        bodies = tuple(make_body(p, server=server, workload=workload) for p in prompts)
        arrivals: Sequence[float] = ()
        if not workload.num_clients:
            arrivals = poisson_arrivals(len(prompts), rate_per_s=workload.rate_per_s, seed=1)
        load = Load(
            running.ports.rest, PATH, bodies, workload.num_clients, arrivals=tuple(arrivals)
        )
        return apply_load(load)

    def make_prompts(self, workload: Workload) -> list[Prompt]:
        """Those of the next load."""
        self._num_made += 1
        return self.prompts.make(
            workload.num_requests, num_tokens=workload.num_prompt_tokens, seed=self._num_made
        )

    def make_wave(self, workload: Workload, *, has_prefix_cache: bool = True) -> Wave:
        prompts = tuple(prompt.token_ids for prompt in self.make_prompts(workload))
        return Wave(prompts, workload.num_output_tokens, has_prefix_cache=has_prefix_cache)

    def _measure_load(
        self, server: Server, *, running: RunningServer, workload: Workload, number: int
    ) -> None:
        meter = CpuMeter(running.process_id)
        result = self.ask(server, running=running, workload=workload)
        use = meter.read()
        record = Record(server.name, workload.name, number)
        try:
            record = _note_load(record, timelines=result.timelines, use=use)
            num_tokens = sum(timeline.num_tokens for timeline in result.timelines)
            memory_mib = read_memory_bytes(running.process_id) / _MIB
            client_cpu_ms = result.cpu_s * 1e3 / num_tokens
            self._add(replace(record, memory_mib=memory_mib, client_cpu_ms=client_cpu_ms))
        except NothingAnsweredError as error:
            self._add(replace(record, error=_shorten(str(error))))

    def _compare(self, server: Server, *, running: RunningServer) -> None:
        if server.name in self.agreements:
            return
        result = self.ask(
            server, running=running, workload=self._texts.workload, prompts=self._texts.prompts
        )
        said = [timeline.text for timeline in result.timelines]
        self.agreements[server.name] = self._texts.compare(said)

    def _measure_loop(self, loop: BareLoop, *, number: int) -> None:
        workloads = (_WARM_UP, *loop.workloads)
        waves = [self.make_wave(workload) for workload in workloads]
        waves.append(
            Wave(
                tuple(prompt.token_ids for prompt in self._texts.prompts),
                self._texts.workload.num_output_tokens,
                is_kept=True,
            )
        )
        log = self._output / f"{loop.name}.log"
        try:
            results = run_waves(loop, waves=waves, log=log)
        except LoopError as error:
            self._fail(loop, number=number, error=error)
            return
        said = [self._texts.decode(answer) for answer in results.pop()[0].answers]
        self.agreements[loop.name] = self._texts.compare(said)
        for workload, (result, others_cpus) in zip(workloads, results, strict=True):
            if workload is not _WARM_UP:
                self._add(
                    Record(
                        loop.name,
                        workload.name,
                        number,
                        tokens_per_s=result.num_tokens / result.seconds,
                        step_ms=result.late_step_ms,
                        cpu_ms=result.cpu_s * 1e3 / result.num_tokens,
                        others_cpus=others_cpus,
                    )
                )

    def _fail(self, subject: Subject, *, number: int, error: Exception) -> None:
        for workload in subject.workloads:
            text = _shorten(str(error))
            self._add(Record(subject.name, workload.name, number, error=text))

    def _add(self, record: Record) -> None:
        self.records.append(record)
        figure = record.error or (
            f"{record.tokens_per_s:,.0f} tokens/s, p95 gap {record.gap.p95:.0f} ms, "
            f"others {record.others_cpus:.1f}"
        )
        print(
            f"[{record.round}] {record.name}, {record.workload}: {figure}",
            file=sys.stderr,
            flush=True,
        )


def apply_load(load: Load) -> LoadResult:
    """Run the load generator.

    Raises:
        NothingAnsweredError: it failed.
    """
    try:
        done = subprocess.run(
            bind_to_parent([sys.executable, str(_LOAD)]),
            input=encode_load(load),
            capture_output=True,
            text=True,
            timeout=_LOAD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NothingAnsweredError(f"the load did not end in {_LOAD_LIMIT_S} s") from None
    if done.returncode:
        raise NothingAnsweredError(f"the load generator failed: {done.stderr.strip()[-200:]}")
    return decode_result(done.stdout)


def run_waves(
    loop: BareLoop, *, waves: Sequence[Wave], log: Path
) -> list[tuple[WaveResult, float]]:
    """Each wave's result, and how many CPUs others kept busy meanwhile.

    Raises:
        LoopError: the loop died.
    """
    results: list[tuple[WaveResult, float]] = []
    with (
        log.open("ab") as output,
        run_program(list(loop.command), stdout=subprocess.PIPE, stderr=output) as program,
    ):
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(json.dumps([_encode_wave(wave) for wave in waves]).encode() + b"\n")
        program.stdin.flush()
        meter = CpuMeter(program.pid)
        for line in program.stdout:
            results.append((_decode_result(json.loads(line)), meter.read().others_cpus))
            meter = CpuMeter(program.pid)
            if len(results) == len(waves):
                return results
    raise LoopError(f"the loop ended after {len(results)} of {len(waves)} loads; see {log.name}")


def _encode_wave(wave: Wave) -> dict[str, Any]:
    return {
        "prompts": [list(prompt) for prompt in wave.prompts],
        "num_output_tokens": wave.num_output_tokens,
        "has_prefix_cache": wave.has_prefix_cache,
        "is_kept": wave.is_kept,
    }


def _decode_result(fields: dict[str, Any]) -> WaveResult:
    lists = {name: tuple(fields[name]) for name in ("steps_ms", "answers")}
    return WaveResult(**{**fields, **lists})


def _note_load(record: Record, *, timelines: Sequence[Timeline], use: CpuUse) -> Record:
    figures = summarize(timelines)
    num_tokens = sum(timeline.num_tokens for timeline in timelines)
    return replace(
        record,
        tokens_per_s=figures.tokens_per_s,
        first_token=figures.first_token,
        gap=figures.gap,
        total=figures.total,
        num_failed=figures.num_failed,
        tokens_per_event=figures.tokens_per_event,
        cpu_ms=use.server_s * 1e3 / num_tokens,
        others_cpus=use.others_cpus,
    )


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_MAX_ERROR_TEXT]
