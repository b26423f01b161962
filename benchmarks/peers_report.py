"""Writes the page about Aspira and its peers from what was measured, prose included."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from peers_plan import BARE_WAYS, SUBJECTS, Aspira
from report import Figures, Spread

_MISSING = "-"


@dataclass(frozen=True, slots=True)
class Group:
    """Figures to compare with each other: the same model, the same kind of request."""

    key: str
    title: str


SMALL_GROUPS = (
    Group("half_plus_two/rest", "half_plus_two, 3 numbers, REST, 64 in flight"),
    Group("half_plus_two/grpc", "half_plus_two, 3 numbers, gRPC, 64 in flight"),
    Group("mlp/rest", "MLP 128-512-256-1, one row, REST, 64 in flight"),
    Group("mlp/grpc", "MLP 128-512-256-1, one row, gRPC, 64 in flight"),
)
GROUPS = (*SMALL_GROUPS, Group("mobilenet/binary", "MobileNetV2, one image of 602 kB, 8 in flight"))


@dataclass(frozen=True, slots=True)
class Contender:
    """One of those compared, Aspira or a peer."""

    name: str
    title: str
    is_aspira: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A contender's figures within a group."""

    contender: Contender
    rate: Spread
    p50_ms: Spread
    p99_ms: Spread
    cpu_us: Spread
    memory_mib: Spread


@dataclass(frozen=True, slots=True)
class Run:
    """A whole run, ready to be reported."""

    figures: Figures
    aspiras: tuple[Aspira, ...]
    versions: dict[str, str]
    """Of the peers that were there, by name."""

    absent: dict[str, str]
    """Why a peer was not there, by title."""

    facts: dict[str, str]
    how: str

    def contenders(self) -> list[Contender]:
        """Aspira first."""
        ours = [Contender(each.name, each.title, is_aspira=True) for each in self.aspiras]
        peers = [
            Contender(each.name, each.title, is_aspira=False)
            for each in SUBJECTS
            if each.name in self.versions
        ]
        return ours + peers

    def rank(self, group: Group) -> list[Row]:
        """Who was measured, the fastest first."""
        rows = [self._try_row(each, group=group) for each in self.contenders()]
        return sorted(filter(None, rows), key=lambda row: -row.rate.middle)

    def errors(self) -> list[str]:
        """Each once, however often it was met."""
        found = [
            f"{contender.title}, {group.title}: {error}"
            for group in GROUPS
            for contender in self.contenders()
            for error in self.figures.errors(f"{group.key}/{contender.name}")
        ]
        return list(dict.fromkeys(found))

    def _try_row(self, contender: Contender, *, group: Group) -> Row | None:
        fields = ("requests_per_s", "p50_ms", "p99_ms", "server_cpu_us", "memory_mib")
        key = f"{group.key}/{contender.name}"
        spreads = [self.figures.try_spread(key, field=field) for field in fields]
        found = [spread for spread in spreads if spread]
        return Row(contender, *found) if len(found) == len(fields) else None


def list_defeats(run: Run) -> list[str]:
    """Where a peer answers more requests, or has the lower p99, than Aspira at its best.

    For small models: a large one measures the runtime more than the server.
    """
    return [line for group in SMALL_GROUPS for line in _list_defeats(group, run=run)]


def _list_defeats(group: Group, *, run: Run) -> list[str]:
    rows = run.rank(group)
    ours = [row for row in rows if row.contender.is_aspira]
    if not ours:
        return []
    best_rate = max(row.rate.middle for row in ours)
    best_p99 = min(row.p99_ms.middle for row in ours)
    found = []
    for row in rows:
        who = f"{group.title}: {row.contender.title}"
        if row.rate.middle > best_rate:
            found.append(f"{who} answers {row.rate.middle / best_rate:.2f} times as many requests")
        if row.p99_ms.middle < best_p99:
            found.append(f"{who} has {row.p99_ms.middle / best_p99:.2f} times the p99")
    return found


def format_page(run: Run) -> str:
    """The whole page, in Markdown."""
    sections = [
        _INTRODUCTION,
        _format_subjects(run),
        _format_heading(run),
        *(_format_group(group, run=run) for group in GROUPS),
        _format_limits(run),
        _format_verdict(run),
        _format_absent(run),
        _READING,
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def format_table(header: Sequence[str], *, rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, the others to the right."""
    ruler = ["---", *["--:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ruler, *rows))


def _format_subjects(run: Run) -> str:
    flags = [
        (each.title, "this one", " ".join(each.flags) or "default flags") for each in run.aspiras
    ]
    peers = [
        (each.title, run.versions[each.name], each.how)
        for each in SUBJECTS
        if each.name in run.versions
    ]
    lines = [f"| {' | '.join(cells)} |" for cells in (*flags, *peers)]
    return "\n".join(["| who | version | how |", "|---|---|---|", *lines])


def _format_heading(run: Run) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in run.facts.items() if name != "date")
    return (
        f"## A run\n{run.facts['date']}. {facts}.\n{run.how}\n\n"
        "![Requests per second of each](peers.svg)"
    )


def _format_group(group: Group, *, run: Run) -> str:
    rows = run.rank(group)
    if not rows:
        return ""
    ours = [row for row in rows if row.contender.is_aspira]
    best = max(ours, key=lambda row: row.rate.middle, default=None)
    header = ("", "requests/s", "low - high", "p50 ms", "p99 ms", "server CPU us", "memory MiB", "")
    return f"### {group.title}\n" + format_table(
        header, rows=[_format_row(row, best=best) for row in rows]
    )


def _format_row(row: Row, *, best: Row | None) -> tuple[str, ...]:
    title = f"**{row.contender.title}**" if row.contender.is_aspira else row.contender.title
    ratio = f"{row.rate.middle / best.rate.middle:.2f}" if best else _MISSING
    return (
        title,
        row.rate.show().strip(),
        row.rate.show_range(),
        row.p50_ms.show(2).strip(),
        row.p99_ms.show(2).strip(),
        row.cpu_us.show().strip(),
        row.memory_mib.show().strip(),
        f"x {ratio}",
    )


def _format_limits(run: Run) -> str:
    rows = []
    for way in BARE_WAYS:
        names = ("half_plus_two", "mlp", "mobilenet")
        spreads = [run.figures.try_spread(f"{name}/bare/{way.way}") for name in names]
        if any(spreads):
            shown = [spread.show().strip() if spread else _MISSING for spread in spreads]
            rows.append((way.title, *shown))
    if not rows:
        return ""
    header = ("calls/s, in process", "half_plus_two", "MLP", "MobileNetV2")
    return "### Limits: the runtimes with nothing around them\n" + format_table(header, rows=rows)


def _format_verdict(run: Run) -> str:
    defeats = list_defeats(run)
    if not defeats:
        return "## Where a peer is ahead of Aspira\nNowhere, of the small models in this run."
    return "## Where a peer is ahead of Aspira\n" + "\n".join(f"- {line}." for line in defeats)


def _format_absent(run: Run) -> str:
    lines = [f"- {title}: {reason}" for title, reason in run.absent.items()]
    lines += [f"- {error}" for error in run.errors()]
    return "## What did not run\n" + ("\n".join(lines) or "Everything ran.")


_INTRODUCTION = """\
# Aspira beside its peers

Other servers of models in Python, and Aspira, with the same models on the same machine in one run.
The page is written by the benchmark.

## Running it
```
apt-get install nghttp2-client wrk
scripts/bench peers                           # makes the peers' environments the first time
scripts/bench peers --peers mosec,fastapi     # some of them
scripts/bench peers --aspira 'Aspira:' --aspira 'Aspira, batching: --enable_batching=true'
scripts/bench peers --publish                 # writes this page, its plot and its raw figures
```
Each peer has an environment of its own, in the user's cache, from the pinned packages in
`benchmarks/peers/<peer>/requirements.txt`; its serving file lies beside them.

## What is measured
- The models are SavedModels: half_plus_two, a multilayer perceptron, MobileNetV2 with random
  weights. Every peer serves all three at once, through the same TensorFlow, called in the way that
  Aspira calls it: faster than any of them comes with. What is compared is the servers.
- Each peer is set up as its manual recommends for throughput, and given the faster way where there
  is a choice. Raw floats in a body, as some get MobileNetV2's image, need no parsing at all.
- One client for all: wrk (REST) and h2load (gRPC), one thread, a fixed number of requests in
  flight, on the same CPUs. The same numbers travel in each server's own form.
- Each server runs alone. Aspira is measured again and again, right before or after each peer; if it
  is there with several settings, these take turns. Every second round goes backwards.
- An endpoint is first called once and its answer compared with TensorFlow's, then warmed up, then
  measured. A run counts only if every single answer was good.
- Memory is that of all processes of a server after the measurement, shared pages once (PSS).
"""

_READING = """\
## Reading it
- The last column is the rate over that of the fastest Aspira.
- A figure marked * was disturbed by other processes, and there is none from a quiet machine.
- Figures of one table compare servers, not protocols: gRPC's client costs more than wrk does.
- The load generator takes its part of the same cores: who needs less CPU for a request leaves more
  to it. That is as it is with any neighbour, but it flatters nobody at the same rate.
- p99 comes from all requests in flight at once: a server that makes batches has them wait for each
  other, and a process for each core shares connections out unevenly."""
