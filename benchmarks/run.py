"""The command line of the benchmarks; see `scripts/bench --help`."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

# TensorFlow's chatter would bury the report. Set before anything imports it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from batching_plan import BATCHING_TITLES, plan_batching
from codec_speed import SIZES_MIB, measure_codecs
from isolation import measure_isolation
from machine import read_facts
from models import prepare_models
from overload import measure_overload
from peers_plan import SUBJECTS, Aspira, parse_aspira
from peers_report import format_page
from peers_run import PeersOptions, run_peers, write_pages
from plan import Section, plan_layers, plan_model
from report import Figures, format_report
from serving import Bench, BenchOptions
from tokens.bench import TokensOptions, run_tokens
from tokens.bench import write_pages as write_token_pages
from tokens.page import format_page as format_token_page
from tokens.plan import PEER_NAMES

_HERE = Path(__file__).parent
_PAGES = _HERE.parent / "docs" / "benchmarks"
_EXIT_INTERRUPTED = 130
_DEFAULT_ASPIRA = (
    Aspira("Aspira"),
    # What most peers are set up with, too.
    Aspira("Aspira, one thread a run", ("--tensorflow_intra_op_parallelism=1",)),
)
_DESCRIPTION = """\
serving: requests per second and latency of Aspira, beside bare servers and the bare runtime.
batching: what batching and accelerators gain, beside the bare runtime with the same batches.
overload: what is answered in time at twice the rate that can be.
isolation: how long answers take while other models load and warm up.
codecs: how fast large JSON and protobuf bodies become tensors, and tensors bodies; no server.
peers: the same of Aspira and of other model servers, each in an environment of its own.
tokens: a language model's tokens, beside openvino-genai, vLLM, transformers and llama.cpp.
Servers listen on 127.0.0.1 and end with the benchmark. The report goes to the standard output,
progress to the standard error, raw figures and the servers' logs to the output directory.
Exit status: 0, or 1 if a measurement failed; a missed target is no failure.
"""


def main() -> int:
    parsed = _parse_arguments(sys.argv[1:])
    options = _make_options(parsed)
    options.output.mkdir(parents=True, exist_ok=True)
    # As for Ctrl-C: unwind, so that every server is ended.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    _let_children_import_benchmarks()
    log = options.output / "preparation.log"
    if parsed.has_tensorflow:
        with _divert_standard_error(log):
            # TensorFlow's own messages, which its log level does not silence.
            import tensorflow  # noqa: F401
    exit_status: int = parsed.measure(Bench(options), parsed=parsed, log=log)
    return exit_status


def _measure_serving(bench: Bench, *, parsed: argparse.Namespace, log: Path) -> int:  # noqa: ARG001
    sections = [plan_layers(), *map(plan_model, prepare_models(log))]
    try:
        bench.run([step for section in sections for step in section.steps])
    except KeyboardInterrupt:
        print("Interrupted; this is what was measured so far.\n", file=sys.stderr)
        _finish(bench, sections=sections)
        return _EXIT_INTERRUPTED
    return _finish(bench, sections=sections)


def _measure_batching(bench: Bench, *, parsed: argparse.Namespace, log: Path) -> int:  # noqa: ARG001
    sections = plan_batching(prepare_models(log, titles=BATCHING_TITLES))
    bench.run([step for section in sections for step in section.steps])
    return _finish(bench, sections=sections)


def _measure_overload(bench: Bench, *, parsed: argparse.Namespace, log: Path) -> int:  # noqa: ARG001
    (model,) = prepare_models(log, titles={"fixed_cost": ""})
    print(measure_overload(model, options=bench.options))
    return 0


def _measure_isolation(bench: Bench, *, parsed: argparse.Namespace, log: Path) -> int:  # noqa: ARG001
    mlp, mobilenet = prepare_models(log, titles={"mlp": "", "mobilenet": ""})
    print(measure_isolation(mlp, loaded=mobilenet, options=bench.options))
    return 0


def _measure_codecs(bench: Bench, *, parsed: argparse.Namespace, log: Path) -> int:  # noqa: ARG001
    sizes_mib = SIZES_MIB[:1] if parsed.quick else SIZES_MIB
    report = measure_codecs(sizes_mib, num_rounds=bench.options.num_rounds)
    (bench.options.output / "codecs.md").write_text(f"{report}\n")
    print(report)
    return 0


def _measure_peers(bench: Bench, *, parsed: argparse.Namespace, log: Path) -> int:
    pages = _PAGES if parsed.publish else bench.options.output
    options = PeersOptions(
        tuple(parsed.peers), aspiras=tuple(parsed.aspira or _DEFAULT_ASPIRA), pages=pages
    )
    run = run_peers(prepare_models(log), options=options, bench=bench)
    write_pages(run, bench=bench, pages=pages)
    print(format_page(run), flush=True)
    return int(run.figures.has_errors or bool(run.absent))


def _measure_tokens(bench: Bench, *, parsed: argparse.Namespace, log: Path) -> int:  # noqa: ARG001
    output = bench.options.output
    options = TokensOptions(
        tuple(parsed.peers),
        num_rounds=bench.options.num_rounds,
        is_quick=parsed.quick,
        output=output,
        pages=_PAGES if parsed.publish else output,
    )
    run = run_tokens(options)
    write_token_pages(run, options=options)
    print(format_token_page(run), flush=True)
    return int(bool(run.records.errors or run.absent))


def _parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(has_tensorflow=True)
    benchmarks = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    serving = benchmarks.add_parser("serving", help="Aspira and what it is made of")
    serving.set_defaults(measure=_measure_serving, usual=(3, 4), num_tries=2)
    _add_common_arguments(serving)
    for name, about, measure, usual in (
        ("batching", "what batching and accelerators gain", _measure_batching, (3, 4)),
        ("overload", "twice the load that can be answered", _measure_overload, (1, 60)),
        ("isolation", "answers while other models load", _measure_isolation, (3, 20)),
    ):
        one = benchmarks.add_parser(name, help=about)
        one.set_defaults(measure=measure, usual=usual, num_tries=1)
        _add_common_arguments(one)
    codecs = benchmarks.add_parser("codecs", help="large bodies to tensors and back, in process")
    codecs.set_defaults(measure=_measure_codecs, usual=(1, 1), num_tries=1, seconds=None)
    _add_output_arguments(codecs, quick="1 MiB only")
    peers = benchmarks.add_parser("peers", help="Aspira and other model servers")
    # Shorter, since there are many of them.
    peers.set_defaults(measure=_measure_peers, usual=(2, 2), num_tries=1)
    _add_common_arguments(peers)
    _add_peers_arguments(peers)
    tokens = benchmarks.add_parser("tokens", help="a language model's tokens, beside other engines")
    tokens.set_defaults(
        measure=_measure_tokens, usual=(3, 1), num_tries=1, has_tensorflow=False, seconds=None
    )
    _add_output_arguments(tokens, quick="1 round, answers of 32 tokens, no loads at random")
    _add_choice_of_peers(tokens, names=PEER_NAMES)
    return parser.parse_args(arguments)


def _make_options(parsed: argparse.Namespace) -> BenchOptions:
    num_rounds, seconds = (1, 2) if parsed.quick else parsed.usual
    return BenchOptions(
        num_rounds if parsed.rounds is None else parsed.rounds,
        seconds=seconds if parsed.seconds is None else parsed.seconds,
        num_tries=1 if parsed.quick else parsed.num_tries,
        output=parsed.output,
    )


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    _, seconds = parser.get_default("usual")
    parser.add_argument(
        "--seconds",
        type=_parse_count,
        metavar="S",
        help=f"length of a measurement ({seconds})",
    )
    _add_output_arguments(parser, quick="1 round of 2 s, for a first look")


def _add_output_arguments(parser: argparse.ArgumentParser, *, quick: str) -> None:
    num_rounds, _ = parser.get_default("usual")
    parser.add_argument(
        "--rounds", type=_parse_count, metavar="N", help=f"repetitions ({num_rounds})"
    )
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        default=_HERE.parent / "bench-results",
        help="where raw figures and logs go (bench-results)",
    )


def _add_choice_of_peers(parser: argparse.ArgumentParser, *, names: Sequence[str]) -> None:
    parser.add_argument(
        "--peers",
        type=partial(_parse_peers, known=names),
        default=names,
        metavar="A,B",
        help=f"some of {', '.join(names)} (all)",
    )
    parser.add_argument("--publish", action="store_true", help="write the page to docs/benchmarks")


def _add_peers_arguments(parser: argparse.ArgumentParser) -> None:
    _add_choice_of_peers(parser, names=[subject.name for subject in SUBJECTS])
    parser.add_argument(
        "--aspira",
        type=parse_aspira,
        action="append",
        metavar="'NAME: FLAGS'",
        help="Aspira with these flags; may be repeated (default flags; one thread a run)",
    )


def _parse_peers(text: str, *, known: Sequence[str]) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown)}: unknown; there are {', '.join(known)}"
        )
    return names


def _parse_count(text: str) -> int:
    """h2load and wrk know whole seconds only."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


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


def _finish(bench: Bench, *, sections: Sequence[Section]) -> int:
    options = bench.options
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
        f"Serving benchmark: medians of {rounds} of {options.seconds} s, "
        "one server at a time, load generator on the same machine"
    )
    print(format_report(sections, figures=figures, facts=facts, how=how), flush=True)
    return int(figures.has_errors)


if __name__ == "__main__":
    sys.exit(main())
