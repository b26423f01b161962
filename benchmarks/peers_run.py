"""Runs the benchmark against peers: makes their environments, measures, writes the page."""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from machine import read_facts
from models import Model
from peer_environments import InstallError, prepare_environment, read_pin
from peers_plan import (
    SUBJECTS,
    Aspira,
    Places,
    format_model_config,
    plan_limits,
    plan_peers,
)
from peers_plot import draw_rates
from peers_report import Run, format_page
from report import Figures
from serving import Bench

_LIMITS = "openvino"
_PACKAGES = {"pytriton": "nvidia-pytriton"}


@dataclass(frozen=True, slots=True)
class PeersOptions:
    """What to compare."""

    peers: tuple[str, ...]
    aspiras: tuple[Aspira, ...]
    pages: Path
    """Where the page, the plot and the raw figures go."""


@dataclass(frozen=True, slots=True)
class Environments:
    """Interpreters by peer, and why there is none, by title."""

    pythons: dict[str, Path]
    absent: dict[str, str]


def run_peers(models: Sequence[Model], *, options: PeersOptions, bench: Bench) -> Run:
    """Everything but the writing. Interrupted, it returns what was measured so far."""
    environments = prepare_environments(options.peers, output=bench.options.output)
    try:
        with _make_places(models) as places:
            steps = plan_peers(
                environments.pythons, models=models, aspiras=options.aspiras, places=places
            )
            openvino = environments.pythons.get(_LIMITS)
            bench.run([*steps, *plan_limits(models, openvino=openvino)])
    except KeyboardInterrupt:
        print("Interrupted; this is what was measured so far.", file=sys.stderr)
    return make_run(bench, options=options, environments=environments)


def prepare_environments(peers: Sequence[str], *, output: Path) -> Environments:
    """One for each peer and one for the bare OpenVINO; failures are kept, not raised."""
    titles = {subject.name: subject.title for subject in SUBJECTS} | {_LIMITS: "bare OpenVINO"}
    pythons: dict[str, Path] = {}
    absent: dict[str, str] = {}
    for peer in (*peers, _LIMITS):
        try:
            pythons[peer] = prepare_environment(peer, log=output / f"install-{peer}.log")
        except InstallError as error:
            absent[titles[peer]] = f"cannot be installed: {error}"
    return Environments(pythons, absent)


def make_run(bench: Bench, *, options: PeersOptions, environments: Environments) -> Run:
    versions = {
        peer: read_pin(peer, package=_PACKAGES.get(peer, peer)) for peer in environments.pythons
    }
    rounds = f"{bench.options.num_rounds} rounds" if bench.options.num_rounds > 1 else "1 round"
    return Run(
        figures=Figures(bench.records),
        aspiras=options.aspiras,
        versions=versions,
        absent=environments.absent,
        facts=read_facts(),
        how=f"Medians of {rounds} of {bench.options.seconds} s.",
    )


def write_pages(run: Run, *, bench: Bench, pages: Path) -> None:
    pages.mkdir(parents=True, exist_ok=True)
    raw = {
        "machine": run.facts,
        "versions": run.versions,
        "absent": run.absent,
        "aspira": [asdict(aspira) for aspira in run.aspiras],
        "rounds": bench.options.num_rounds,
        "seconds": bench.options.seconds,
        "records": [asdict(record) for record in bench.records],
    }
    (pages / "peers.json").write_text(json.dumps(raw, indent=1) + "\n")
    (pages / "peers.svg").write_text(draw_rates(run))
    (pages / "peers.md").write_text(format_page(run))


@contextmanager
def _make_places(models: Sequence[Model]) -> Iterator[Places]:
    with tempfile.TemporaryDirectory(prefix="aspira-peers-", ignore_cleanup_errors=True) as name:
        config = Path(name) / "models.config"
        config.write_text(format_model_config(models))
        yield Places(scratch=Path(name), model_config=config)
