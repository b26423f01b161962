"""What `scripts/bench peers` measures, as data: who serves, how each is called, in which order."""

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, zip_longest
from pathlib import Path

from endpoints import Endpoint, Protocol
from load import Load
from models import Model, models_directory
from peer_environments import PEERS
from peer_requests import base64_json, infer_grpc, infer_json, predict_grpc, raw, rows_json
from plan import BARE_TENSORFLOW_WAYS, BareProgram, BareWay, Case, Server, Step, bare_tensorflow
from servers import CommandMaker, Ports

_HERE = Path(__file__).parent
_PROGRAMS = Path(sys.executable).parent
_SLOW_MODEL = "mobilenet"
_LOADS = {Protocol.REST: Load(64), Protocol.GRPC: Load(16, num_streams=4)}
_SLOW_LOADS = {Protocol.REST: Load(8), Protocol.GRPC: Load(4, num_streams=2)}

MakeEndpoints = Callable[[Model], list[Endpoint]]


@dataclass(frozen=True, slots=True)
class Subject:
    """A server that is compared. Its cases' keys end with its name."""

    name: str
    title: str
    how: str
    """How it is set up, for the report: a sentence."""

    make_endpoints: MakeEndpoints
    is_process_per_core: bool = False
    """TensorFlow gets one thread in each of its processes then."""


@dataclass(frozen=True, slots=True)
class Aspira:
    """Aspira with flags beyond those that name models and ports."""

    title: str
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.title.lower().replace(" ", "_")


def key_of(model: Model, *, protocol: Protocol, name: str) -> str:
    """What a subject's figures are found by. A slow model has one group, whatever the protocol."""
    group = "binary" if model.name == _SLOW_MODEL else protocol.value.lower()
    return f"{model.name}/{group}/{name}"


def _tensorflow_serving(model: Model) -> list[Endpoint]:
    if model.name == _SLOW_MODEL:
        return [predict_grpc(model)]
    path = f"/v1/models/{model.name}:predict"
    return [rows_json(model, path=path), predict_grpc(model)]


def _json_or_raw(model: Model) -> list[Endpoint]:
    make = raw if model.name == _SLOW_MODEL else rows_json
    return [make(model, path=f"/v1/models/{model.name}:predict")]


def _json_or_base64(model: Model) -> list[Endpoint]:
    make = base64_json if model.name == _SLOW_MODEL else rows_json
    return [make(model, path=f"/v1/models/{model.name}:predict")]


def _short_paths(model: Model) -> list[Endpoint]:
    make = raw if model.name == _SLOW_MODEL else rows_json
    return [make(model, path=f"/{model.name}")]


def _ray(model: Model) -> list[Endpoint]:
    grpc = predict_grpc(model, metadata=(("application", model.name),))
    return [grpc] if model.name == _SLOW_MODEL else [rows_json(model, path=f"/{model.name}"), grpc]


def _open_inference(model: Model) -> list[Endpoint]:
    grpc = infer_grpc(model)
    return [grpc] if model.name == _SLOW_MODEL else [infer_json(model), grpc]


def _kserve(model: Model) -> list[Endpoint]:
    rest = () if model.name == _SLOW_MODEL else _json_or_raw(model)
    return [*rest, infer_grpc(model)]


SUBJECTS = (
    Subject(
        "mosec",
        "mosec",
        "HTTP in Rust, batches of up to 32 after at most 1 ms, a process a core and model; JSON by "
        "msgspec; MobileNetV2 as raw floats",
        _json_or_raw,
        is_process_per_core=True,
    ),
    Subject(
        "litserve",
        "LitServe",
        "batches of up to 32 after at most 1 ms, a worker a core and model, an HTTP process a "
        "core, the fast queue (ZeroMQ); MobileNetV2 as base64 in JSON",
        _json_or_base64,
        is_process_per_core=True,
    ),
    Subject(
        "mlserver",
        "MLServer",
        "adaptive batching of up to 32 within 1 ms, no worker processes; Open Inference Protocol",
        _open_inference,
    ),
    Subject(
        "bentoml",
        "BentoML",
        "adaptive batching of up to 32, a worker a core, access log off; MobileNetV2 as raw floats",
        _short_paths,
        is_process_per_core=True,
    ),
    Subject(
        "ray",
        "Ray Serve",
        "HAProxy and throughput mode, batches of up to 32 after at most 1 ms, a replica a core and "
        "model, access log off; over gRPC TensorFlow Serving's Predict",
        _ray,
        is_process_per_core=True,
    ),
    Subject(
        "kserve",
        "KServe",
        "its Python server, one process, V1 over REST, Open Inference Protocol over gRPC, no line "
        "logged for each request",
        _kserve,
    ),
    Subject(
        "pytriton",
        "PyTriton",
        "Triton's C++ frontends and batcher (up to 32, after at most 1 ms), an instance a core; "
        "Open Inference Protocol",
        _open_inference,
    ),
    Subject(
        "fastapi",
        "FastAPI",
        "uvicorn with uvloop and httptools, a worker a core, no batching; JSON by orjson; "
        "MobileNetV2 as raw floats",
        _json_or_raw,
        is_process_per_core=True,
    ),
)

_OPENVINO_WAYS = (
    BareWay("openvino_latency", "OpenVINO, one run at a time"),
    BareWay("openvino_throughput", "OpenVINO, asynchronous runs"),
)
_TENSORFLOW_WAYS = tuple(
    replace(way, title=f"TensorFlow, {way.title}")
    for way in BARE_TENSORFLOW_WAYS
    if way.way.startswith("optimized_callable")
)
BARE_WAYS = (*_TENSORFLOW_WAYS, *_OPENVINO_WAYS)


@dataclass(frozen=True, slots=True)
class Places:
    """Where a run keeps things: all of it is removed after the run, but for the output."""

    scratch: Path
    """Home and temporary directory of the peers, some of which write there."""

    model_config: Path


def plan_peers(
    pythons: dict[str, Path], *, models: Sequence[Model], aspiras: Sequence[Aspira], places: Places
) -> list[Step]:
    """Peer, Aspira, peer; peer, Aspira, peer: each is next to an Aspira, whose variants take turns.

    `pythons` names the interpreters of the peers that there are.
    """
    peers: list[Step] = [
        _serve_peer(subject, python=pythons[subject.name], models=models, places=places)
        for subject in SUBJECTS
        if subject.name in pythons
    ]
    num_turns = max(math.ceil(len(peers) / 2), len(aspiras))
    turns = islice(cycle(aspiras), num_turns)
    ours = (_serve_aspira(aspira, models=models, places=places) for aspira in turns)
    pairs = zip_longest(peers[::2], ours, peers[1::2])
    return [step for pair in pairs for step in pair if step]


def plan_limits(models: Iterable[Model], *, openvino: Path | None) -> list[BareProgram]:
    """The runtimes with nothing around them. `openvino` is the interpreter that has it."""
    programs = [bare_tensorflow(model, ways=_TENSORFLOW_WAYS) for model in models]
    if openvino:
        programs += [_bare_openvino(model, python=openvino) for model in models]
    return programs


def format_model_config(models: Iterable[Model]) -> str:
    """All models for one Aspira, as its --model_config_file."""
    entries = "\n".join(
        f'  config {{ name: "{model.name}" base_path: "{model.version_directory.parent}" '
        'model_platform: "tensorflow" }'
        for model in models
    )
    return f"model_config_list {{\n{entries}\n}}\n"


def parse_aspira(text: str) -> Aspira:
    """`NAME: FLAG FLAG ...`, flags as `aspira serve` takes them.

    Raises:
        ValueError: it is not of that form.
    """
    title, colon, flags = text.partition(":")
    words = tuple(flags.split())
    if not title.strip() or not colon or not all(word.startswith("--") for word in words):
        raise ValueError(f"{text!r} is not of the form 'NAME: --flag=value'")
    return Aspira(title.strip(), words)


def _serve_aspira(aspira: Aspira, *, models: Sequence[Model], places: Places) -> Server:
    def make_command(ports: Ports) -> list[str]:
        return [
            str(_PROGRAMS / "aspira"),
            "serve",
            "--host=127.0.0.1",
            f"--port={ports.grpc}",
            f"--rest_api_port={ports.rest}",
            f"--model_config_file={places.model_config}",
            *aspira.flags,
        ]

    cases = _make_cases(aspira.name, title=aspira.title, models=models, make=_tensorflow_serving)
    return Server(aspira.title, make_command, cases)


def _serve_peer(
    subject: Subject, *, python: Path, models: Sequence[Model], places: Places
) -> Server:
    cases = _make_cases(
        subject.name, title=subject.title, models=models, make=subject.make_endpoints
    )
    make_command = _peer_command(subject, python=python, places=places)
    return Server(subject.title, make_command, cases)


def _make_cases(
    name: str, *, title: str, models: Sequence[Model], make: MakeEndpoints
) -> tuple[Case, ...]:
    cases = []
    for model in models:
        loads = _SLOW_LOADS if model.name == _SLOW_MODEL else _LOADS
        for endpoint in make(model):
            key = key_of(model, protocol=endpoint.protocol, name=name)
            cases.append(Case(key, title, endpoint, loads[endpoint.protocol]))
    return tuple(cases)


def _peer_command(subject: Subject, *, python: Path, places: Places) -> CommandMaker:
    def make_command(ports: Ports) -> list[str]:
        environment = {
            "PYTHONPATH": f"{PEERS / 'shared'}:{_HERE / 'yardsticks'}",
            "PYTHONUNBUFFERED": "1",
            "HOME": str(places.scratch),
            "TMPDIR": str(places.scratch),
            # Some would tell their makers that they run.
            "BENTOML_DO_NOT_TRACK": "True",
            "RAY_USAGE_STATS_ENABLED": "0",
            "BENCH_MODELS": str(models_directory()),
            "BENCH_GRPC_PORT": str(ports.grpc),
            "BENCH_REST_PORT": str(ports.rest),
        }
        if subject.is_process_per_core:
            environment["TF_NUM_INTRAOP_THREADS"] = "1"
        settings = [f"{name}={value}" for name, value in environment.items()]
        directory = f"--chdir={PEERS / subject.name}"
        return ["env", directory, *settings, str(python), *_program(subject.name, ports=ports)]

    return make_command


def _program(peer: str, *, ports: Ports) -> list[str]:
    if peer != "bentoml":
        return ["serve.py"]
    # BentoML starts services by its own command line.
    address = ["--host", "127.0.0.1", "--port", str(ports.rest)]
    return ["-m", "bentoml", "serve", "serve:Inference", *address]


def _bare_openvino(model: Model, *, python: Path) -> BareProgram:
    program = _HERE / "yardsticks" / "bare_openvino.py"
    command = (str(python), str(program), str(model.version_directory), str(model.input_file))
    return BareProgram("bare OpenVINO", command, model=model, ways=_OPENVINO_WAYS)
