"""What the serving benchmark measures, as data: servers, loads, and which figures to compare."""

import sys
from dataclasses import dataclass
from pathlib import Path

from endpoints import Endpoint, Protocol
from load import Load
from models import Model, echo_of, grpc_predict, make_toy_model, rest_predict
from servers import CommandMaker, Ports

_HERE = Path(__file__).parent
_PROGRAMS = Path(sys.executable).parent
_HIGH = Load(4, num_streams=32)
_HIGH_REST = Load(64)
_SLOW_MODEL = Load(2, num_streams=4)
_SINGLE = Load(1)
_MIN_GRPC_RATIO = 1.5
_MIN_REST_RATIO = 0.4


@dataclass(frozen=True, slots=True)
class Case:
    """One endpoint under one load; `key` names its figures."""

    key: str
    title: str
    endpoint: Endpoint
    load: Load


@dataclass(frozen=True, slots=True)
class Server:
    """A server to start, and the cases measured while it runs alone."""

    title: str
    make_command: CommandMaker
    cases: tuple[Case, ...]
    has_rest_port: bool = True
    """Otherwise REST is answered where gRPC is."""

    tells_batches: bool = False
    """Its REST port has metrics, in which the sizes of batches are counted."""

    def choose_port(self, ports: Ports, *, protocol: Protocol) -> int:
        is_rest = protocol is Protocol.REST and self.has_rest_port
        return ports.rest if is_rest else ports.grpc


@dataclass(frozen=True, slots=True)
class Ratio:
    """Rates of two cases."""

    title: str
    over: str
    under: str
    target: float | None = None
    """The ratio should be no less."""

    scale: float = 1.0
    """What one of `under` counts for, such as the rows of a batch."""


@dataclass(frozen=True, slots=True)
class BareWay:
    """A way to call the bare runtime; `way` is what its program calls it."""

    way: str
    title: str

    def key(self, model: Model) -> str:
        return f"{model.name}/bare/{self.way}"


BARE_TENSORFLOW_WAYS = (
    BareWay("session_run", "session.run, 1 thread"),
    BareWay("callable", "session callable, 1 thread"),
    BareWay("optimized_callable", "optimized callable, 1 thread"),
    BareWay("optimized_callable_2", "optimized callable, 2 threads"),
)


@dataclass(frozen=True, slots=True)
class BareProgram:
    """Runs a model in a loop with nothing around it, in each way that it is told."""

    title: str
    command: tuple[str, ...]
    """Gets the length of a measurement, in seconds, as a last argument."""

    model: Model
    ways: tuple[BareWay, ...]

    def keys(self) -> list[str]:
        return [way.key(self.model) for way in self.ways]


Step = Server | BareProgram
"""What is started, measured and ended."""


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the report."""

    title: str
    servers: tuple[Server, ...]
    ratios: tuple[Ratio, ...] = ()
    bare: BareProgram | None = None
    """The same model without a server around it."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.servers, *((self.bare,) if self.bare else ()))


def plan_layers() -> Section:
    """Aspira around a model that costs nothing, beside servers that do nothing."""
    toy = make_toy_model()
    return Section(
        "Layers: Aspira around a model that costs nothing, and bare servers that echo",
        servers=(
            Server("Aspira with the toy", _toy_command, _predict_cases(toy, high=_HIGH)),
            Server("bare grpc.aio", _grpc_aio_command, _echo_grpc_cases("grpc.aio", model=toy)),
            Server(
                "bare pyvoy",
                _pyvoy_command,
                (*_echo_grpc_cases("pyvoy", model=toy), _echo_rest_case("pyvoy", model=toy)),
                has_rest_port=False,
            ),
        ),
        ratios=(
            Ratio("Aspira / grpc.aio echo, gRPC", "toy/grpc", "grpc.aio/grpc", _MIN_GRPC_RATIO),
            Ratio("Aspira / pyvoy echo, REST", "toy/rest", "pyvoy/rest", _MIN_REST_RATIO),
            Ratio("Aspira / pyvoy echo, gRPC", "toy/grpc", "pyvoy/grpc"),
        ),
    )


def plan_model(model: Model) -> Section:
    """A model served with default flags, and the same model in a bare loop."""
    is_slow = model.name == "mobilenet"
    cases = _predict_cases(model, high=_SLOW_MODEL if is_slow else _HIGH)
    if is_slow:
        # As JSON its input is five times the size, and parsing it is all that would be measured.
        cases = tuple(case for case in cases if case.endpoint.protocol is Protocol.GRPC)
    server = Server(f"Aspira with {model.name}", aspira_command(model), cases)
    return Section(model.title, servers=(server,), bare=bare_tensorflow(model))


def bare_tensorflow(
    model: Model, *, ways: tuple[BareWay, ...] = BARE_TENSORFLOW_WAYS
) -> BareProgram:
    program = _HERE / "yardsticks" / "bare_tensorflow.py"
    files = (str(model.version_directory), str(model.input_file))
    return BareProgram(
        "bare TensorFlow", (sys.executable, str(program), *files), model=model, ways=ways
    )


def _predict_cases(model: Model, *, high: Load) -> tuple[Case, ...]:
    endpoint = grpc_predict(model)
    return (
        _grpc_case(f"{model.name}/grpc", who="Aspira", endpoint=endpoint, load=high),
        _rest_case(f"{model.name}/rest", who="Aspira", endpoint=rest_predict(model)),
        _grpc_case(f"{model.name}/single", who="Aspira", endpoint=endpoint, load=_SINGLE),
    )


def _echo_grpc_cases(name: str, *, model: Model) -> tuple[Case, ...]:
    who, endpoint = f"{name} echo", echo_of(grpc_predict(model))
    return (
        _grpc_case(f"{name}/grpc", who=who, endpoint=endpoint, load=_HIGH),
        _grpc_case(f"{name}/single", who=who, endpoint=endpoint, load=_SINGLE),
    )


def _echo_rest_case(name: str, *, model: Model) -> Case:
    endpoint = echo_of(rest_predict(model))
    return _rest_case(f"{name}/rest", who=f"{name} echo", endpoint=endpoint)


def _grpc_case(key: str, *, who: str, endpoint: Endpoint, load: Load) -> Case:
    in_flight = "1" if load == _SINGLE else f"{load.num_connections} x {load.num_streams}"
    return Case(key, f"{who}, gRPC, {in_flight} in flight", endpoint, load)


def _rest_case(key: str, *, who: str, endpoint: Endpoint) -> Case:
    return Case(key, f"{who}, REST, {_HIGH_REST.num_connections} in flight", endpoint, _HIGH_REST)


def _toy_command(ports: Ports) -> list[str]:
    return [sys.executable, str(_HERE / "toy_server.py"), str(ports.grpc), str(ports.rest)]


def _grpc_aio_command(ports: Ports) -> list[str]:
    return [sys.executable, str(_HERE / "yardsticks" / "grpc_aio_echo.py"), str(ports.grpc)]


def _pyvoy_command(ports: Ports) -> list[str]:
    program = str(_PROGRAMS / "pyvoy")
    application = "yardsticks.pyvoy_echo:application"
    # One port speaks HTTP/1 and HTTP/2; the other is left closed.
    return [program, application, "--no-lifespan", "--port", str(ports.grpc)]


def aspira_command(model: Model, *flags: str) -> CommandMaker:
    """Aspira with one model, and flags beyond those that name it and the ports."""

    def make_command(ports: Ports) -> list[str]:
        return [
            str(_PROGRAMS / "aspira"),
            "serve",
            "--host=127.0.0.1",
            f"--port={ports.grpc}",
            f"--rest_api_port={ports.rest}",
            f"--model_name={model.name}",
            f"--model_base_path={model.version_directory.parent}",
            *flags,
        ]

    return make_command
