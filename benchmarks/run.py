"""The command line of the benchmarks; see `scripts/bench --help`."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

# TensorFlow's chatter would bury the report. Set before anything imports it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from machine import read_facts
from models import prepare_models
from plan import Section, plan_layers, plan_model
from report import Figures, format_report
from serving import Bench, BenchOptions

_HERE = Path(__file__).parent
_EXIT_INTERRUPTED = 130
_DESCRIPTION = """\
serving: requests per second and latency of Aspira, beside bare servers and the bare runtime.
Servers listen on 127.0.0.1 and end with the benchmark. The report goes to the standard output,
progress to the standard error, raw figures and the servers' logs to the output directory.
Exit status: 0, or 1 if a measurement failed; a missed target is no failure.
"""


def main() -> int:
    options = _parse_arguments(sys.argv[1:])
    options.output.mkdir(parents=True, exist_ok=True)
    # As for Ctrl-C: unwind, so that every server is ended.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    _let_children_import_benchmarks()
    log = options.output / "preparation.log"
    with _divert_standard_error(log):
        # TensorFlow's own messages, which its log level does not silence.
        import tensorflow  # noqa: F401
    sections = [plan_layers(), *map(plan_model, prepare_models(log))]
    bench = Bench(options)
    try:
        bench.run(sections)
    except KeyboardInterrupt:
        print("Interrupted; this is what was measured so far.\n", file=sys.stderr)
        _finish(bench, sections=sections, options=options)
        return _EXIT_INTERRUPTED
    return _finish(bench, sections=sections, options=options)


def _parse_arguments(arguments: Sequence[str]) -> BenchOptions:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("benchmark", choices=["serving"], help="what to measure")
    parser.add_argument("--rounds", type=int, metavar="N", help="repetitions (3)")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of a measurement (4)")
    parser.add_argument("--quick", action="store_true", help="1 round of 2 s, for a first look")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        default=_HERE.parent / "bench-results",
        help="where raw figures and logs go (bench-results)",
    )
    parsed = parser.parse_args(arguments)
    default_rounds, default_seconds = (1, 2.0) if parsed.quick else (3, 4.0)
    num_rounds = default_rounds if parsed.rounds is None else parsed.rounds
    seconds = default_seconds if parsed.seconds is None else parsed.seconds
    if num_rounds < 1 or seconds < 1:
        parser.error("--rounds and --seconds must be at least 1")
    num_tries = 1 if parsed.quick else 2
    return BenchOptions(num_rounds, seconds=seconds, num_tries=num_tries, output=parsed.output)


def _let_children_import_benchmarks() -> None:
    paths = [str(_HERE), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


@contextmanager
def _divert_standard_error(log: Path) -> Iterator[None]:
    """Native code's output too goes to `log` within the block."""
    terminal = os.dup(2)
    with log.open("ab") as output:
        os.dup2(output.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def _finish(bench: Bench, *, sections: Sequence[Section], options: BenchOptions) -> int:
    facts = read_facts()
    raw = {
        "machine": facts,
        "rounds": options.num_rounds,
        "seconds": options.seconds,
        "records": [asdict(record) for record in bench.records],
    }
    (options.output / "serving.json").write_text(json.dumps(raw, indent=1) + "\n")
    figures = Figures(bench.records)
    rounds = f"{options.num_rounds} rounds" if options.num_rounds > 1 else "1 round"
    how = (
        f"Serving benchmark: medians of {rounds} of {options.seconds:g} s, "
        "one server at a time, load generator on the same machine"
    )
    print(format_report(sections, figures=figures, facts=facts, how=how), flush=True)
    return int(figures.has_errors)


if __name__ == "__main__":
    sys.exit(main())
