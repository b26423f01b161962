"""`aspira export`: writes a language model in another form, as a new version directory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from aspira.cli.flags import FlagValue, PlainFlag, guess_meant, match_flags, parse_value, usage
from aspira.cli.serve import EXIT_FAILED, report
from aspira.contracts.errors import InvalidArgument, ServingError

_PROGRAM = "aspira export"
_PRECISIONS = ("f32", "bf16")
_WEIGHTS = ("f32", "f16", "int8", "int4")


class _Export(Protocol):
    def __call__(self, source: Path, *, destination: Path, values: Mapping[str, Any]) -> None: ...


def _export_saved_model(source: Path, *, destination: Path, values: Mapping[str, Any]) -> None:
    from aspira.llm.saved_decoders.export import export_saved_model

    precision = values["precision"]
    if precision not in _PRECISIONS:
        raise InvalidArgument(
            f"--precision is {precision!r}; a SavedModel has one of {', '.join(_PRECISIONS)}"
        )
    export_saved_model(source, destination=destination, precision=precision)


def _export_openvino(source: Path, *, destination: Path, values: Mapping[str, Any]) -> None:
    from aspira.llm.decoders.export import ExportOrder, describe, export_openvino

    weights = values["weights"]
    if weights not in _WEIGHTS:
        raise InvalidArgument(f"--weights is {weights!r}; name one of {', '.join(_WEIGHTS)}")
    order = ExportOrder(destination, weights)
    if values["text"]:
        order = replace(order, text=Path(values["text"]))
    quality = export_openvino(source, order=order, report=report)
    report(f"{describe(quality)} (kept in aspira_quality.json)")


_TARGETS: Mapping[str, _Export] = MappingProxyType(
    {"openvino": _export_openvino, "savedmodel": _export_saved_model}
)
_FLAGS = (
    PlainFlag("to", "", f"The form to write: {', '.join(_TARGETS)}."),
    PlainFlag("precision", "f32", "savedmodel: what weights and cache are kept in, f32 or bf16."),
    PlainFlag("weights", "int8", f"openvino: what weights are kept in, {', '.join(_WEIGHTS)}."),
    PlainFlag("text", "", "openvino: a file to measure quality on; empty takes one of ours."),
)
# The form that a flag is for, where it is for one alone.
_ONLY_FOR: Mapping[str, str] = MappingProxyType(
    {"precision": "savedmodel", "weights": "openvino", "text": "openvino"}
)


def run_export(arguments: list[str]) -> int:
    """Run `aspira export`; returns the exit status."""
    if {"--help", "-h"} & set(arguments):
        print(usage(_FLAGS, program=f"{_PROGRAM} --to=FORM SOURCE DESTINATION"), end="")
        return 0
    try:
        source, destination, values = _parse(arguments)
        export = _TARGETS.get(str(values["to"]))
        if export is None:
            raise InvalidArgument(f"--to is {values['to']!r}; name one of {', '.join(_TARGETS)}")
        report(f"Exporting {source} to {destination}; this takes a while")
        export(source, destination=destination, values=values)
    except ServingError as error:
        report(f"{_PROGRAM}: {error.message}")
        return EXIT_FAILED
    report(f"Serve it with: aspira serve --model_name=NAME --model_base_path={destination.parent}")
    return 0


def _check_is_for(flag: PlainFlag, *, form: str) -> None:
    """In another form it would do nothing. What is no form at all is told elsewhere."""
    only = _ONLY_FOR.get(flag.name, form)
    if form in _TARGETS and only != form:
        raise InvalidArgument(f"--{flag.name} is for --to={only} alone; leave it out")


def _parse(arguments: Sequence[str]) -> tuple[Path, Path, Mapping[str, FlagValue]]:
    values: dict[str, FlagValue] = {flag.name: flag.default for flag in _FLAGS}
    paths: list[Path] = []
    given: list[PlainFlag] = []
    for argument, flag, text in match_flags(_joined(arguments), flags=_FLAGS):
        if flag is not None:
            values[flag.name] = parse_value(text, flag=flag)
            given.append(flag)
        elif argument.startswith("-"):
            meant = guess_meant(argument, flags=_FLAGS)
            raise InvalidArgument(
                f"unknown argument: {argument}{meant} (`{_PROGRAM} --help` lists them)"
            )
        else:
            paths.append(Path(argument))
    if len(paths) != 2:
        raise InvalidArgument(
            "two directories are wanted: the version directory of a language model, and the one "
            f"to write, such as {_PROGRAM} --to=savedmodel models/chat/1 saved/chat/1"
        )
    for flag in given:
        _check_is_for(flag, form=str(values["to"]))
    return paths[0], paths[1].absolute(), values


def _joined(arguments: Sequence[str]) -> Iterator[str]:
    """`--to savedmodel` is `--to=savedmodel`."""
    names = {f"--{flag.name}" for flag in _FLAGS}
    remaining = iter(arguments)
    for argument in remaining:
        yield f"{argument}={next(remaining, '')}" if argument in names else argument
