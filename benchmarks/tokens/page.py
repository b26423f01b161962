"""Writes the page about token services from what was measured, prose included."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from tokens import plan
from tokens.agreement import Agreement
from tokens.records import QUIET_CPUS, Checks, Record, Records

_MISSING = "-"
_SUBJECTS = (
    (plan.ASPIRA, "**Aspira**"),
    (plan.ASPIRA_BARE, "Aspira's engine, bare"),
    (plan.GENAI, "openvino-genai, bare"),
    (plan.VLLM, "vLLM"),
    (plan.LLAMA_CPP, "llama.cpp"),
    (plan.TRANSFORMERS, "transformers serve"),
    (plan.TRANSFORMERS_BARE, "transformers' generate, bare"),
)
_WORKLOADS = (plan.ONE, plan.SIXTEEN, plan.THIRTY_TWO, plan.STEADY, plan.POISSON)


@dataclass(frozen=True, slots=True)
class Run:
    """All that the page is made of."""

    records: Records
    agreements: dict[str, Agreement]
    checks: Checks
    absent: dict[str, str]
    """Why a peer was not measured, by its name."""

    versions: dict[str, str]
    facts: dict[str, str]
    num_rounds: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class Line:
    """A figure that the project wants, and what it is in this run."""

    title: str
    wanted: str
    found: str
    is_met: bool | None
    """None: not measured."""


def format_page(run: Run) -> str:
    parts = [
        _INTRODUCTION.format(num_output_tokens=run.num_output_tokens),
        _format_heading(run),
        *(_format_workload(workload, run=run) for workload in _WORKLOADS),
        "### What was wanted\n" + _format_lines(judge(run)),
        "### The same text?\n" + _format_agreements(run),
        "## What did not run\n" + _format_absent(run),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def judge(run: Run) -> list[Line]:
    """Every figure that is wanted."""
    records, checks = run.records, run.checks
    one, sixteen, all_ = plan.ONE.name, plan.SIXTEEN.name, plan.THIRTY_TWO.name

    def ratio(under: str, *, workload: str) -> float | None:
        return records.try_ratio(plan.ASPIRA, under=under, workload=workload)

    gap_p95, step_ms = _gap_p95(records, workload=sixteen), _step_ms(records, workload=sixteen)
    return [
        _at_least(
            "32 streams, tokens/s over openvino-genai's", ratio(plan.GENAI, workload=all_), 1
        ),
        _at_least("1 stream, the same", ratio(plan.GENAI, workload=one), 0.9),
        _at_least("32 streams, tokens/s over vLLM's", ratio(plan.VLLM, workload=all_), 1.3),
        _at_least(
            "32 streams, over transformers', the faster of its two",
            _smallest(
                ratio(plan.TRANSFORMERS, workload=all_),
                ratio(plan.TRANSFORMERS_BARE, workload=all_),
            ),
            1.5,
        ),
        _at_least(
            "32 streams, served over the bare engine", ratio(plan.ASPIRA_BARE, workload=all_), 0.9
        ),
        _at_most("16 streams, p95 gap over the bare engine's step", _divide(gap_p95, step_ms), 1.5),
        _at_least(
            "first token of 1,000, 900 of them known: times sooner",
            _divide(_median(checks.uncached_first_token_ms), _median(checks.cached_first_token_ms)),
            5,
        ),
        _at_most(
            "CPU time with the prefix cache on and no hit over off", _cache_cost(checks), 1.02
        ),
        _at_most(
            "p99 gap of others as a longest prompt comes, over a chunk and a step",
            _arrival_ratio(checks),
            1,
        ),
    ]


def _gap_p95(records: Records, *, workload: str) -> float | None:
    return _median([r.gap.p95 for r in records.good(plan.ASPIRA, workload=workload)])


def _step_ms(records: Records, *, workload: str) -> float | None:
    return _median([r.step_ms for r in records.good(plan.ASPIRA_BARE, workload=workload)])


def _cache_cost(checks: Checks) -> float | None:
    """The median of the pairs: what disturbs one load disturbs its neighbour too."""
    if checks.cache_on_s is None or checks.cache_off_s is None:
        return None
    return _median(
        [on / off for on, off in zip(checks.cache_on_s, checks.cache_off_s, strict=True)]
    )


def _arrival_ratio(checks: Checks) -> float | None:
    if checks.arrival_gap is None or checks.arrival_chunk_ms is None:
        return None
    return checks.arrival_gap.p99 / (checks.arrival_chunk_ms + (checks.arrival_step_ms or 0))


def _smallest(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _median(values: Sequence[float] | None) -> float | None:
    return median(values) if values else None


def _divide(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None


def _at_least(title: str, value: float | None, limit: float) -> Line:
    is_met = None if value is None else value >= limit
    return Line(title, f">= {limit:g}", _show(value), is_met)


def _at_most(title: str, value: float | None, limit: float) -> Line:
    is_met = None if value is None else value <= limit
    return Line(title, f"<= {limit:g}", _show(value), is_met)


def _show(value: float | None) -> str:
    return _MISSING if value is None else f"{value:.2f}"


def _format_lines(lines: Iterable[Line]) -> str:
    verdicts = {True: "met", False: "NOT MET", None: "not measured"}
    rows = [(line.title, line.wanted, line.found, verdicts[line.is_met]) for line in lines]
    return _table(("", "wanted", "found", ""), rows)


def _format_heading(run: Run) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in run.facts.items() if name != "date")
    versions = ", ".join(
        f"{plan.PEER_TITLES[name]} {version}" for name, version in run.versions.items()
    )
    rounds = f"{run.num_rounds} rounds" if run.num_rounds > 1 else "1 round"
    return (
        f"## A run\n{run.facts['date']}. {facts}. {versions}.\n"
        f"Aspira and openvino-genai in turns, medians of {rounds}; the others in the first round. "
        f"`*`: other programs kept more than {QUIET_CPUS:g} CPUs busy, as in "
        f"{run.records.num_disturbed} measurements of the run; quiet ones go before."
    )


def _format_workload(workload: plan.Workload, *, run: Run) -> str:
    rows = [
        _format_row(title, records=run.records.good(name, workload=workload.name))
        for name, title in _SUBJECTS
        if run.records.good(name, workload=workload.name)
    ]
    if not rows:
        return ""
    rows.sort(key=lambda row: -float(row[1].replace(",", "").rstrip("*")))
    header = (
        "", "tokens/s", "first token ms, p50", "p95", "gap ms, p50", "p95", "p99", "longest",
        "step ms", "CPU ms a token", "MiB",
    )  # fmt: skip
    return f"### {workload.title[0].upper()}{workload.title[1:]}\n" + _table(header, rows)


def _format_row(title: str, *, records: Sequence[Record]) -> tuple[str, ...]:
    def middle(read: Callable[[Record], float], decimals: int = 0) -> str:
        value = median(read(record) for record in records)
        return f"{value:,.{decimals}f}" if value else _MISSING

    mark = "*" if min(record.others_cpus for record in records) > QUIET_CPUS else ""
    return (
        title,
        middle(lambda r: r.tokens_per_s) + mark,
        middle(lambda r: r.first_token.p50),
        middle(lambda r: r.first_token.p95),
        middle(lambda r: r.gap.p50),
        middle(lambda r: r.gap.p95),
        middle(lambda r: r.gap.p99),
        middle(lambda r: r.gap.longest),
        middle(lambda r: r.step_ms, 1),
        middle(lambda r: r.cpu_ms, 1),
        middle(lambda r: r.memory_mib),
    )


def _format_agreements(run: Run) -> str:
    rows = [
        (title, f"{found.num_equal} of {found.num_texts}", f"{found.mean_share:.0%}")
        for name, title in _SUBJECTS
        if (found := run.agreements.get(name))
    ]
    table = _table(("", "equal for 32 tokens", "of the text, on average"), rows)
    return f"{_ABOUT_AGREEMENT}\n\n{table}"


def _format_absent(run: Run) -> str:
    lines = [f"- {plan.PEER_TITLES[name]}: {reason}" for name, reason in run.absent.items()]
    lines += [f"- {error}" for error in run.records.errors]
    return "\n".join(lines) or "Everything ran."


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


_ABOUT_AGREEMENT = """\
15 texts, gone on with by 32 tokens, beside transformers in f32. That has the weights before they
were rounded to bf16, so some texts part where two tokens are nearly as likely."""

_INTRODUCTION = """\
# Tokens: Aspira beside other engines

A language model's tokens as clients get them, from Aspira and from other engines, with the same
weights on the same machine in one run. The page is written by the benchmark.

## Running it
```
scripts/bench tokens                          # makes the peers' environments the first time (2 GB)
scripts/bench tokens --quick                  # short answers, one round
scripts/bench tokens --peers genai,vllm       # some of them
scripts/bench tokens --publish                # writes this page and its raw figures
```
Each peer has an environment of its own, in the user's cache, from the pinned packages in
`benchmarks/peers/<peer>/requirements.txt`. vLLM and transformers use PyTorch: where pip finds its
CPU build first (`PIP_FIND_LINKS` or an index of PyTorch's own), gigabytes for GPUs are saved.

## What is measured
- SmolLM2-135M-Instruct, its weights rounded to bf16 once, for all engines; all compute in bf16.
- Prompts are 128 words of one token each, none like another where it begins, so that no prefix is
  known; answers are {num_output_tokens} tokens, the most likely ones, whatever they are.
- "32 streams": 32 requests at once, until the last is answered. "Each asks again": clients whose
  next request follows the last answer. "At random": requests that know nothing of each other.
- The first token's time is from opening the connection to the first event with text; a gap is
  the time between two events with text of one answer, which may bring more than one token.
- The client is one small process on the same CPUs, which keeps times and bytes only.
- Bare loops are engines in a process of their own without server: requests in, steps until all have
  ended. Aspira's is the engine that its server runs, text included.
- A server is warm before it is measured: 32 requests of 16 tokens."""
