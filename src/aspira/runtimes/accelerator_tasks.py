"""What of a SavedModel an accelerator may be given: the signatures that hold no state."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from aspira.contracts.errors import FailedPrecondition, InvalidArgument
from aspira.contracts.signatures import Signature
from aspira.contracts.tensors import Tensors
from aspira.runtimes.accelerator import CompileTask
from aspira.runtimes.accelerator_options import AcceleratorOptions
from aspira.runtimes.compile_cache import digest_files, digest_texts
from aspira.runtimes.graph_review import find_state, find_writer
from aspira.runtimes.signature_graph import SignatureGraph, StaysOnTensorflow, cut_graph
from aspira.runtimes.tensorflow import OpenModel
from aspira.runtimes.warmup_records import (
    RecordedRequest,
    parse_record,
    read_records,
    warmup_file,
)

# Quantization gains nothing from more.
_MAX_RECORDED = 300

Recorded = Mapping[str, tuple[Tensors, ...]]


def make_tasks(
    opened: OpenModel, *, path: Path, recorded: Recorded
) -> dict[str, CompileTask | StaysOnTensorflow]:
    """For each signature what is to be compiled, or why it cannot be."""
    signatures = opened.servable.signatures
    graphs = {name: _try_cut(opened, signature=each) for name, each in signatures.items()}
    whole = opened.meta_graph.graph_def
    writer = find_writer(
        # Of a signature that cannot be told from the rest of the model, the worst is assumed.
        {
            name: graph.graph_def if isinstance(graph, SignatureGraph) else whole
            for name, graph in graphs.items()
        }
    )
    digest = digest_model(path)
    tasks: dict[str, CompileTask | StaysOnTensorflow] = {}
    for name, graph in graphs.items():
        if isinstance(graph, SignatureGraph):
            if state := find_state(graph.graph_def, writer=writer):
                tasks[name] = StaysOnTensorflow(state)
                continue
            tasks[name] = CompileTask(
                name=name,
                signature=signatures[name],
                graph=graph,
                session=opened.session,
                digest=digest_texts(digest, *opened.meta_graph.meta_info_def.tags, name),
                recorded=recorded.get(name, ()),
            )
        else:
            tasks[name] = graph
    return tasks


def read_recorded(
    path: Path, *, options: AcceleratorOptions, signatures: Mapping[str, Signature]
) -> dict[str, tuple[Tensors, ...]]:
    """The inputs that were recorded for each signature; records that fit none are left out.

    Raises:
        FailedPrecondition: there are none, and int8 needs some.
        ServingError: a record cannot be read.
    """
    file = Path(options.calibration_file) if options.calibration_file else warmup_file(path)
    found: dict[str, list[Tensors]] = {}
    if file.is_file():
        for name, inputs in islice(_bound_inputs(file, signatures=signatures), _MAX_RECORDED):
            found.setdefault(name, []).append(inputs)
    if options.precision == "int8" and not found:
        raise FailedPrecondition(
            f"--precision=int8 finds the ranges of values in recorded requests, and {file} has "
            "none for this model; record some there, or name a file of PredictionLog records with "
            "--calibration_file"
        )
    return {name: tuple(inputs) for name, inputs in found.items()}


def digest_model(path: Path) -> str:
    """One digest of the files that decide what a model computes."""
    files = (file for file in path.rglob("*") if file.is_file())
    return digest_files(
        [file for file in files if "assets.extra" not in file.relative_to(path).parts], root=path
    )


def _bound_inputs(
    file: Path, *, signatures: Mapping[str, Signature]
) -> Iterator[tuple[str, Tensors]]:
    for record in read_records(file):
        recorded = parse_record(record, file=file, is_session_run_refused=False)
        if not isinstance(recorded, RecordedRequest):
            continue
        for task in recorded.tasks:
            if task.signature_name in signatures:
                with suppress(InvalidArgument):
                    inputs = signatures[task.signature_name].bind_inputs(recorded.inputs)
                    yield task.signature_name, inputs


def _try_cut(opened: OpenModel, *, signature: Signature) -> SignatureGraph | StaysOnTensorflow:
    try:
        return cut_graph(opened.meta_graph, signature=signature)
    except StaysOnTensorflow as reason:
        return reason
