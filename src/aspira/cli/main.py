"""The `aspira` command."""

import os
import sys
from importlib import metadata

from aspira.cli.flag_table import server_flags
from aspira.cli.flags import guess_meant, parse_flags, usage
from aspira.cli.foreign_flags import FOREIGN_FLAGS, take_foreign_flags
from aspira.cli.serve import EXIT_FAILED, report, serve
from aspira.cli.signals import EXIT_FORCED
from aspira.contracts.errors import InvalidArgument
from aspira.settings import Settings

_REST_PORT = 8501
_USAGE = """\
Aspira: a model server, drop-in for TensorFlow Serving.

usage: aspira COMMAND [--flag=value ...]

Commands:
  serve     serve models: aspira serve --model_name=NAME --model_base_path=/DIR
  demo      make small models and serve them
  warmup    record what a model is asked, as warm-up of its next version:
            aspira warmup record --admin=http://HOST:PORT --model=NAME
  chat      chat with a language model: aspira chat --url=http://HOST:PORT
  export    write a language model in another form:
            aspira export --to=openvino SOURCE DESTINATION
  version   print versions

`aspira serve --help` lists the flags.
"""


def main() -> None:
    """Entry point of the console command."""
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads what we print has seen enough; the last flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = EXIT_FAILED
    except KeyboardInterrupt:
        status = EXIT_FORCED
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    match command:
        case "serve":
            return _serve(rest)
        case "demo":
            from aspira.cli.demo import serve_demo

            return serve_demo(rest)
        case "warmup":
            from aspira.cli.warmup import run_warmup

            return run_warmup(rest)
        case "chat":
            from aspira.cli.chat import run_chat

            return run_chat(rest)
        case "export":
            from aspira.cli.export import run_export

            return run_export(rest)
        case "version" | "--version":
            print(version_text())
            return 0
        case "help" | "--help" | "-h":
            print(_USAGE, end="")
            return 0
    print(f"aspira: no command {command!r}\n\n{_USAGE}", end="", file=sys.stderr)
    return EXIT_FAILED


def version_text() -> str:
    """Ours and TensorFlow's versions, in TensorFlow Serving's form."""
    try:
        tensorflow = metadata.version("tensorflow")
    except metadata.PackageNotFoundError:
        tensorflow = "not installed"
    return (
        f"TensorFlow ModelServer: Aspira {metadata.version('aspira')}\n"
        f"TensorFlow Library: {tensorflow}"
    )


def _serve(arguments: list[str]) -> int:
    flags = server_flags(default_rest_port=_REST_PORT)
    try:
        parsed = parse_flags(arguments, flags=flags, settings=Settings())
        foreign = take_foreign_flags(parsed.unknown)
    except InvalidArgument as error:
        return _refuse(error.message)
    if foreign.unknown[:1] in {("--help",), ("-h",)}:
        print(usage((*flags, *FOREIGN_FLAGS), program="aspira serve"), end="")
        return 0
    if foreign.unknown[:1] == ("--version",):
        print(version_text())
        return 0
    if foreign.unknown:
        argument = foreign.unknown[0]
        meant = guess_meant(argument, flags=(*flags, *FOREIGN_FLAGS))
        return _refuse(
            f"unknown argument: {argument}{meant} (flags are written --name=value; "
            "`aspira serve --help` lists them)"
        )
    for flag in foreign.unsupported:
        return _refuse(f"--{flag.name} is not supported: {flag.reason}")
    for flag in foreign.without_effect:
        report(f"INFO: --{flag.name} has no effect here: {flag.reason}")
    return serve(parsed.settings)


def _refuse(message: str) -> int:
    print(f"aspira serve: {message}", file=sys.stderr)
    return EXIT_FAILED
