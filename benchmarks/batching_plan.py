"""What the batching benchmark measures: batching and accelerators, beside the bare runtime."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from load import Load
from models import Model, grpc_predict
from plan import BareProgram, BareWay, Case, Ratio, Section, Server, aspira_command

BATCHING_TITLES = {
    "fixed_cost": "A model whose runs cost the same for any number of rows",
    "mlp": "MLP 128-512-256-1, batch 1",
    "mobilenet": "MobileNetV2 224x224, batch 1",
    "linear_short": "A model of 0.5 ms of CPU a row",
    "linear_medium": "A model of 2.5 ms of CPU a row",
    "linear_long": "A model of 10 ms of CPU a row",
}

_HERE = Path(__file__).parent
_CROWD = Load(4, num_streams=32)
_MEDIUM = Load(2, num_streams=16)
_FEW = Load(2, num_streams=2)
_SINGLE = Load(1)
_IDEAL_ROWS = 16
# Enough for two batches that run and two that gather.
_IDEAL = Load(4, num_streams=_IDEAL_ROWS)
_SESSION_RUN = BareWay("session_run", "session.run, 1 thread")
_TWO_THREADS = BareWay("optimized_callable_2", "optimized callable, 2 threads")


def plan_batching(models: Sequence[Model]) -> list[Section]:
    """One section for each model."""
    fixed_cost, mlp, mobilenet, *linear = models
    return [
        _plan_fixed_cost(fixed_cost),
        _plan_mlp(mlp),
        _plan_mobilenet(mobilenet),
        *map(_plan_ideal, linear),
    ]


def _plan_fixed_cost(model: Model) -> Section:
    return Section(
        model.title,
        servers=(
            _serve(model, "alone", loads=(_SINGLE, _MEDIUM)),
            _serve(model, "batched", "--enable_batching", loads=(_MEDIUM, _CROWD)),
            _serve(
                model,
                "auto",
                "--batching=auto",
                "--latency_target_ms=20",
                loads=(_MEDIUM, _CROWD),
            ),
            _serve_ideal(model),
        ),
        ratios=(
            Ratio(
                "batched / alone, 32 in flight",
                f"{model.name}/batched/32",
                f"{model.name}/alone/32",
                8.0,
            ),
            _ideal_ratio(model),
        ),
        bare=_bare_rows(model),
    )


def _plan_ideal(model: Model) -> Section:
    return Section(
        model.title,
        servers=(_serve_ideal(model),),
        ratios=(_ideal_ratio(model),),
        bare=_bare_rows(model),
    )


def _serve_ideal(model: Model) -> Server:
    """Batches of as many rows as the bare loop has, in as many threads; always enough waits."""
    parameters = model.directory / "batching.config"
    parameters.write_text(
        f"max_batch_size {{ value: {_IDEAL_ROWS} }}\nnum_batch_threads {{ value: 2 }}\n"
    )
    monitoring = model.directory / "monitoring.config"
    monitoring.write_text("prometheus_config { enable: true }\n")
    flags = (
        "--enable_batching",
        f"--batching_parameters_file={parameters}",
        f"--monitoring_config_file={monitoring}",
    )
    server = _serve(model, f"batches of {_IDEAL_ROWS}", *flags, loads=(_IDEAL,))
    return replace(server, tells_batches=True)


def _ideal_ratio(model: Model) -> Ratio:
    in_flight = _IDEAL.num_connections * _IDEAL.num_streams
    return Ratio(
        f"batches of {_IDEAL_ROWS} / bare loop over {_IDEAL_ROWS} rows, 2 threads",
        f"{model.name}/batches of {_IDEAL_ROWS}/{in_flight}",
        f"{model.name}/x{_IDEAL_ROWS}/bare/{_TWO_THREADS.way}",
        0.9,
        scale=_IDEAL_ROWS,
    )


def _plan_mlp(model: Model) -> Section:
    return Section(
        model.title,
        servers=(
            _serve(model, "alone", loads=(_CROWD,)),
            _serve(model, "batched", "--enable_batching", loads=(_CROWD,)),
        ),
        ratios=(
            Ratio(
                "batched / alone, 128 in flight",
                f"{model.name}/batched/128",
                f"{model.name}/alone/128",
                4.0,
            ),
            Ratio(
                "batched / bare session.run",
                f"{model.name}/batched/128",
                _SESSION_RUN.key(model),
                4.0,
            ),
        ),
        bare=_bare(model),
    )


def _plan_mobilenet(model: Model) -> Section:
    return Section(
        model.title,
        servers=(
            _serve(model, "tensorflow", "--accelerator=tensorflow", loads=(_FEW,)),
            _serve(model, "f32", "--accelerator=auto", loads=(_FEW,)),
            _serve(model, "bf16", "--accelerator=auto", "--precision=bf16", loads=(_FEW,)),
        ),
        ratios=(
            Ratio(
                "OpenVINO f32 / bare session.run",
                f"{model.name}/f32/4",
                _SESSION_RUN.key(model),
                4.0,
            ),
            Ratio(
                "OpenVINO bf16 / bare session.run",
                f"{model.name}/bf16/4",
                _SESSION_RUN.key(model),
                7.0,
            ),
        ),
        bare=_bare(model),
    )


def _serve(model: Model, variant: str, *flags: str, loads: tuple[Load, ...]) -> Server:
    endpoint = grpc_predict(model)
    cases = []
    for load in loads:
        in_flight = load.num_connections * load.num_streams
        title = f"Aspira, {variant}, {in_flight} in flight"
        cases.append(Case(f"{model.name}/{variant}/{in_flight}", title, endpoint, load))
    title = f"Aspira with {model.name}, {variant}"
    return Server(title, aspira_command(model, *flags), tuple(cases))


def _bare(model: Model) -> BareProgram:
    program = _HERE / "yardsticks" / "bare_tensorflow.py"
    files = (str(model.version_directory), str(model.input_file))
    ways = (_SESSION_RUN, _TWO_THREADS)
    return BareProgram("bare TensorFlow", (sys.executable, str(program), *files), model, ways)


def _bare_rows(model: Model) -> BareProgram:
    """The same loop with a batch of rows; its rates are of batches."""
    rows = model.directory / f"input{_IDEAL_ROWS}.npy"
    np.save(rows, np.repeat(model.input, _IDEAL_ROWS, axis=0))
    program = _HERE / "yardsticks" / "bare_tensorflow.py"
    files = (str(model.version_directory), str(rows))
    batches = replace(model, name=f"{model.name}/x{_IDEAL_ROWS}")
    title = f"bare TensorFlow, batches of {_IDEAL_ROWS}"
    ways = (_SESSION_RUN, _TWO_THREADS)
    return BareProgram(title, (sys.executable, str(program), *files), batches, ways)
