"""Prints what was measured as tables for a terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from plan import BareProgram, Ratio, Section
from serving import QUIET_CPUS, Record

_MISSING = "-"


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the rounds; disturbed if there is none from a quiet machine."""

    low: float
    middle: float
    high: float
    is_disturbed: bool

    def show(self, decimals: int = 0) -> str:
        """The median, marked if it is disturbed."""
        return f"{self.middle:,.{decimals}f}{'*' if self.is_disturbed else ' '}"

    def show_range(self, decimals: int = 0) -> str:
        if self.low == self.high:
            return _MISSING
        return f"{self.low:,.{decimals}f} - {self.high:,.{decimals}f}"

    def times(self, factor: float) -> "Spread":
        return Spread(
            self.low * factor, self.middle * factor, self.high * factor, self.is_disturbed
        )

    def divide(self, under: "Spread") -> "Spread":
        """The ratio, from the least to the most that the two leave open."""
        return Spread(
            self.low / under.high,
            middle=self.middle / under.middle,
            high=self.high / under.low,
            is_disturbed=self.is_disturbed or under.is_disturbed,
        )


class Figures:
    """The records of a run, by key. Disturbed ones count only where there is no quiet one."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = tuple(records)

    def try_spread(self, key: str, *, field: str = "requests_per_s") -> Spread | None:
        good = [record for record in self._records if record.key == key and not record.error]
        quiet = [record for record in good if record.is_quiet]
        values = [getattr(record, field) for record in quiet or good]
        if not values:
            return None
        return Spread(min(values), middle=median(values), high=max(values), is_disturbed=not quiet)

    def try_ratio(self, over: str, *, under: str, scale: float = 1.0) -> Spread | None:
        """Rate over rate, one of the latter counting for `scale`."""
        above, below = self.try_spread(over), self.try_spread(under)
        return above.divide(below.times(scale)) if above and below else None

    def others_cpus(self) -> list[float]:
        return [record.others_cpus for record in self._records if not record.error]

    def errors(self, key: str) -> list[str]:
        return [
            f"round {record.round}: {record.error}"
            for record in self._records
            if record.key == key and record.error
        ]

    def has_any(self, section: Section) -> bool:
        """Whether one of its servers was measured, or at least tried."""
        keys = {case.key for server in section.servers for case in server.cases}
        return any(record.key in keys for record in self._records)

    @property
    def has_errors(self) -> bool:
        return any(record.error for record in self._records)


def format_report(
    sections: Iterable[Section], *, figures: Figures, facts: dict[str, str], how: str
) -> str:
    """The whole report."""
    parts = [how, _format_facts(facts)]
    for section in sections:
        if not figures.has_any(section):
            continue
        parts.append(section.title)
        parts.append(_format_cases(section, figures=figures))
        if section.ratios:
            parts.append(_format_ratios(section.ratios, figures=figures))
        if section.bare:
            parts.append(_format_bare(section.bare, figures=figures))
    parts.append(_format_noise(figures))
    return "\n\n".join(parts)


def format_table(header: Sequence[str], *, rows: Iterable[Sequence[str]]) -> str:
    """Columns of equal width: the first to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    return "\n".join(
        "  "
        + "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _format_facts(facts: dict[str, str]) -> str:
    named = [f"{name} {value}" for name, value in facts.items() if name not in {"date", "CPU"}]
    half = (len(named) + 1) // 2
    lines = (f"{facts['date']}, {facts['CPU']}", ", ".join(named[:half]), ", ".join(named[half:]))
    return "\n".join(f"  {line}" for line in lines)


def _format_cases(section: Section, *, figures: Figures) -> str:
    header = (
        "",
        "requests/s ",
        "low - high",
        "p50 ms ",
        "p99 ms ",
        "server CPU us/request ",
        "rows/run",
    )
    cases = [case for server in section.servers for case in server.cases]
    rows = [
        (
            case.title,
            *_show(figures.try_spread(case.key)),
            _show(figures.try_spread(case.key, field="p50_ms"), decimals=2)[0],
            _show(figures.try_spread(case.key, field="p99_ms"), decimals=2)[0],
            _show(figures.try_spread(case.key, field="server_cpu_us"))[0],
            _show_rows(figures.try_spread(case.key, field="rows_per_run")),
        )
        for case in cases
    ]
    errors = [
        f"  ERROR {case.title}: {error}" for case in cases for error in figures.errors(case.key)
    ]
    return "\n".join([format_table(header, rows=rows), *errors])


def _format_ratios(ratios: Iterable[Ratio], *, figures: Figures) -> str:
    header = ("ratio of requests/s", "median ", "low - high", "target", "")
    rows = []
    for ratio in ratios:
        spread = figures.try_ratio(ratio.over, under=ratio.under, scale=ratio.scale)
        rows.append((ratio.title, *_show(spread, decimals=2), *_judge(ratio, spread=spread)))
    return format_table(header, rows=rows)


def _judge(ratio: Ratio, *, spread: Spread | None) -> tuple[str, str]:
    if ratio.target is None:
        return "", ""
    if spread is None:
        return f">= {ratio.target:g}", "not measured"
    verdict = "met" if spread.middle >= ratio.target else "NOT MET"
    return f">= {ratio.target:g}", f"{verdict}, but disturbed" if spread.is_disturbed else verdict


def _format_bare(bare: BareProgram, *, figures: Figures) -> str:
    header = (bare.title, "calls/s ", "low - high", "served gRPC / bare ", "REST / bare ")
    rows = []
    errors = []
    for way in bare.ways:
        key = way.key(bare.model)
        ratios = [
            figures.try_ratio(f"{bare.model.name}/{over}", under=key) for over in ("grpc", "rest")
        ]
        shown = [_show(ratio, decimals=2)[0] for ratio in ratios]
        rows.append((way.title, *_show(figures.try_spread(key)), *shown))
        errors += [f"  ERROR {way.title}: {error}" for error in figures.errors(key)]
    return "\n".join([format_table(header, rows=rows), *errors])


def _show_rows(spread: Spread | None) -> str:
    return spread.show(1) if spread is not None and spread.middle else _MISSING


def _show(spread: Spread | None, *, decimals: int = 0) -> tuple[str, str]:
    if spread is None:
        return f"{_MISSING} ", _MISSING
    return spread.show(decimals), spread.show_range(decimals)


def _format_noise(figures: Figures) -> str:
    others = figures.others_cpus()
    if not others:
        return "Nothing was measured."
    num_disturbed = sum(cpus > QUIET_CPUS for cpus in others)
    return (
        f"Noise: in {num_disturbed} of {len(others)} measurements processes outside the benchmark "
        f"kept more than {QUIET_CPUS:g} CPUs busy\n"
        f"(median {median(others):.2f}, worst {max(others):.2f}). Such figures are left out, or "
        "marked * where there is no other."
    )
