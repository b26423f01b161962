"""Twice the load that can be answered: what is answered in time, and how the rest is refused."""

import asyncio

import numpy as np
import uvloop

from models import Model, rest_predict
from open_loop import Answers, OpenLoopClient
from plan import aspira_command
from processes import read_memory_bytes
from servers import run_server
from serving import BenchOptions

_DEADLINE_S = 0.5
_MAX_BATCH_SIZE = 2
_PEAK_S = 5.0
_CROWD = 64
_MIB = 2**20
_OK = 200


def measure_overload(model: Model, *, options: BenchOptions) -> str:
    """Finds the peak with a closed loop, then asks at twice that rate; returns the report."""
    parameters = options.output / "overload.pbtxt"
    parameters.write_text(
        f"max_batch_size {{ value: {_MAX_BATCH_SIZE} }} max_enqueued_batches {{ value: 100000 }}\n"
    )
    flags = (
        "--enable_batching",
        f"--batching_parameters_file={parameters}",
        f"--rest_api_timeout_in_ms={_DEADLINE_S * 1e3:.0f}",
    )
    log = options.output / "overload.log"
    with run_server(aspira_command(model, *flags), log=log) as running:
        endpoint = rest_predict(model)
        client = OpenLoopClient(running.ports.rest, path=endpoint.path, body=endpoint.body)
        return uvloop.run(_measure(client, seconds=options.seconds, process_id=running.process_id))


async def _measure(client: OpenLoopClient, *, seconds: float, process_id: int) -> str:
    await client.ask_in_a_circle(_CROWD, seconds=1.0)
    peak = await client.ask_in_a_circle(_CROWD, seconds=_PEAK_S)
    memory = asyncio.ensure_future(_watch_memory(process_id, seconds=seconds))
    answers = await client.ask_at(2 * peak, seconds=seconds)
    return _format(answers, peak=peak, seconds=seconds, memory_mib=await memory)


async def _watch_memory(process_id: int, *, seconds: float) -> list[float]:
    """Resident memory, once a twelfth of the time."""
    found = []
    for _ in range(12):
        await asyncio.sleep(seconds / 12)
        found.append(read_memory_bytes(process_id) / _MIB)
    return found


def _format(answers: Answers, *, peak: float, seconds: float, memory_mib: list[float]) -> str:
    good = np.array(answers.latencies_s.get(_OK, ()))
    in_time = good[good <= _DEADLINE_S]
    refused = np.array(
        [s for status, found in answers.latencies_s.items() if status != _OK for s in found]
    )
    statuses = ", ".join(
        f"{status}: {len(found)}" for status, found in sorted(answers.latencies_s.items())
    )
    goodput = len(in_time) / seconds
    lines = [
        f"Peak (closed loop, {_CROWD} in flight): {peak:,.0f} answers/s",
        f"Asked {answers.num_asked / seconds:,.0f}/s for {seconds:g} s; deadline {_DEADLINE_S:g} s",
        f"Goodput: {goodput:,.0f}/s, {goodput / peak:.2f} of the peak (target 0.90)",
        (
            f"By status: {statuses}; without an answer: "
            f"{answers.num_asked - answers.num_answered}, lost {answers.num_lost}"
        ),
        _percentiles("answered", values=good),
        _percentiles("refused", values=refused),
        f"Memory: {memory_mib[0]:.0f} MiB after 1/12 of the time, {memory_mib[-1]:.0f} at its end",
    ]
    return "\n".join(f"  {line}" for line in lines)


def _percentiles(title: str, *, values: np.ndarray) -> str:
    if not len(values):
        return f"{title}: none"
    p50, p99, most = (float(np.percentile(values, q)) * 1e3 for q in (50, 99, 100))
    late = int((values > _DEADLINE_S).sum())
    return f"{title}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {most:.1f} ms; late: {late}"
