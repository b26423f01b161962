"""The `tensorflow_model_server` command, for scripts that start TensorFlow Serving's binary."""

import sys
from dataclasses import replace

from aspira.cli.flag_table import server_flags
from aspira.cli.flags import parse_flags, usage
from aspira.cli.foreign_flags import FOREIGN_FLAGS, ForeignArguments, take_foreign_flags
from aspira.cli.main import version_text
from aspira.cli.serve import EXIT_FAILED, report, serve
from aspira.contracts.errors import InvalidArgument
from aspira.frontends.listeners.options import ListenerOptions
from aspira.settings import ProcessOptions, Settings

_VERSION_FLAGS = frozenset({"--version", "--version=true", "--version=1"})


def main() -> None:
    """Entry point of the console command."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Serve as the original does: REST and metrics off by default, unknown flags tolerated."""
    flags = server_flags(default_rest_port=0)
    help_text = usage((*flags, *FOREIGN_FLAGS), program="tensorflow_model_server")
    settings = replace(
        Settings(),
        listener=ListenerOptions(rest_port=0),
        process=ProcessOptions(is_metrics_default=False),
    )
    try:
        parsed = parse_flags(arguments, flags=flags, settings=settings)
        foreign = take_foreign_flags(parsed.unknown)
    except InvalidArgument as error:
        report(error.message)
        print(help_text, end="")
        return EXIT_FAILED
    if foreign.unknown[:1] == ("--help",):
        print(help_text, end="")
        return EXIT_FAILED
    if any(argument.lower() in _VERSION_FLAGS for argument in foreign.unknown):
        print(version_text())
        return 0
    if foreign.unknown:
        print(f"unknown argument: {foreign.unknown[0]}\n{help_text}", end="", flush=True)
    _report_ignored(foreign)
    return serve(parsed.settings)


def _report_ignored(foreign: ForeignArguments) -> None:
    for argument in foreign.unknown:
        report(f"WARNING: ignoring unknown argument {argument}: it has NO EFFECT here")
    for flag in foreign.unsupported:
        report(f"WARNING: --{flag.name} is NOT SUPPORTED and has NO EFFECT here: {flag.reason}")
    for flag in foreign.without_effect:
        report(f"INFO: --{flag.name} has no effect here: {flag.reason}")
