"""Time and memory of one decision by number of jobs and nodes, and how both grow."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import click

from scripts.testbed.kept_engine import KeptEngine
from scripts.tools.bench.record import in_its_own_process, record
from scripts.tools.bench.synthetic import (
    CHANGED,
    LOAD_MIXES,
    SETTLED,
    THRESHOLDS_GPU_S,
    LoadMix,
    all_run_on,
    settle,
    snapshot,
    with_others,
)
from scripts.tools.document import markdown
from slurm_tiresias.config import parse
from slurm_tiresias.controller.cycle import collect_seldom
from slurm_tiresias.core.engine import decide
from slurm_tiresias.core.features.make import make_policy
from slurm_tiresias.core.job import Snapshot
from slurm_tiresias.model import JobState

STEPS = 30
"""Decisions of a kept engine, alternating with as many by new engines on the same snapshots."""

JOBS = (1_000, 10_000, 100_000)
NODES = (100, 1_000, 10_000)
SCRIPTS, MANY_SCRIPTS = 40, 400
SEED = 1
PROCESSES = 2
"""Processes for every case; the shortest of their times counts."""
DECISIONS = 3
"""Decisions in each process after the first, cold one."""


@dataclass(frozen=True)
class Case:
    """One case. ``scripts``: the number of different requests among the jobs."""

    mix: LoadMix
    jobs: int
    nodes: int
    scripts: int = SCRIPTS


@dataclass(frozen=True)
class Measured:
    running: int
    starts: int
    preemptions: int
    cold_s: float
    next_s: float
    """Time of a decision when a few jobs have changed since the previous one."""
    peak_mb: float


@click.command("decide")
def one_decision() -> None:
    """Time of one decision, by jobs and nodes."""
    cases = [Case(mix, jobs, nodes) for mix in LOAD_MIXES for jobs in JOBS for nodes in NODES]
    cases += [Case(mix, JOBS[1], NODES[1], MANY_SCRIPTS) for mix in LOAD_MIXES]
    rows = []
    found: dict[Case, Measured] = {}
    for case in cases:
        one = found[case] = _best(case)
        rows.append(_row(case, one))
        print(" | ".join(rows[-1]), flush=True)
    header = ("snapshot, scripts", "jobs", "nodes", "run", "start", "preempted")
    table = markdown((*header, "cold ms", "next ms", "peak MB"), rows)
    record("One decision", table, _text(found))


@click.command("decide-next")
def next_decision() -> None:
    """Time of a decision when few jobs have changed since the last."""
    collect_seldom()
    first = snapshot(SETTLED, JOBS[1], NODES[1], SCRIPTS, SEED)
    rows = []
    for differs, next_of in (
        (f"{CHANGED} waiting jobs", _others_wait),
        (f"{CHANGED} waiting jobs, and the service of all that run", _others_wait_and_all_run_on),
    ):
        kept_s, anew_s = _kept_and_anew(first, next_of)
        kept_ms = (f"{of(kept_s) * 1000:,.1f}" for of in (median, min, max))
        ratio = median(anew_s) / median(kept_s)
        rows.append((differs, *kept_ms, f"{median(anew_s) * 1000:,.0f}", f"{ratio:,.0f}"))
        print(" | ".join(rows[-1]), flush=True)
    header = ("what differs", "kept ms", "least", "most", "anew ms", "times as long")
    text = (
        "CPU time of a decision of the controller's engine, which keeps what it knows from one "
        "cycle to the next, and of a new one for the same snapshot, in alternation in one process "
        f"(medians of {STEPS} each; for the kept one the least and the most too). A settled "
        f"snapshot of {JOBS[1]:,} jobs on {NODES[1]:,} nodes, of {SCRIPTS} scripts. Each plan of "
        "the kept engine is checked to be that of the new one."
    )
    record("The next decision", markdown(header, rows), text)


def _others_wait(before: Snapshot, number: int) -> Snapshot:
    return with_others(before, SETTLED, number, JobState.PENDING, 1.0)


def _others_wait_and_all_run_on(before: Snapshot, number: int) -> Snapshot:
    return all_run_on(_others_wait(before, number))


def _kept_and_anew(
    given: Snapshot, next_of: Callable[[Snapshot, int], Snapshot]
) -> tuple[list[float], list[float]]:
    """Return the CPU seconds of decisions by a kept engine, and by new ones."""
    config = parse({"policy": {"thresholds_gpu_s": list(THRESHOLDS_GPU_S)}})
    engine = KeptEngine(make_policy(config.policy), config)
    while (plan := engine.plan(given)).starts:
        given = settle(given, plan)
    kept_s: list[float] = []
    anew_s: list[float] = []
    for number in range(STEPS):
        given = next_of(given, number)
        began_s = time.process_time()
        plan = engine.plan(given)
        planned_s = time.process_time()
        expected = decide(given, make_policy(config.policy), config)
        anew_s.append(time.process_time() - planned_s)
        kept_s.append(planned_s - began_s)
        if plan != expected:
            raise AssertionError("the plans of the kept engine and of a new one differ")
    return kept_s, anew_s


def _text(found: Mapping[Case, Measured]) -> str:
    return (
        "CPU time of `decide` alone, in one process: `cold` is the first decision of a process, "
        f"`next` one on a snapshot in which {CHANGED} jobs differ from the one decided before "
        "(with nothing kept from one decision to the next). The least of "
        f"{PROCESSES} processes; `peak MB` is what the decision takes beside its snapshot at the "
        "most. In a contested snapshot many waiting jobs rank above running ones, and as many are "
        "preempted as may be in one cycle; in a settled one none does, as in most cycles. "
        "Jobs are of so many scripts, each with its own GPUs, CPUs, memory, GPU type and features; "
        "nodes have 4 or 8 GPUs.\n\n" + " ".join(_growth(found, mix) for mix in LOAD_MIXES)
    )


def _growth(found: Mapping[Case, Measured], mix: LoadMix) -> str:
    def exponent(*cases: Case) -> float:
        first, last = (found[case].next_s for case in cases)
        return math.log10(last / first)

    few, some, many = (Case(mix, jobs, nodes) for jobs, nodes in zip(JOBS, NODES, strict=True))
    more_jobs = Case(mix, JOBS[2], NODES[1])
    more_nodes = Case(mix, JOBS[1], NODES[2])
    return (
        f"{mix.name.capitalize()}: with ten times the jobs and the nodes the time grows by a "
        f"power of {exponent(few, some):.2f} from {JOBS[0]:,} jobs and of "
        f"{exponent(some, many):.2f} from {JOBS[1]:,} (n log n would be {_n_log_n(JOBS[0]):.2f} "
        f"and {_n_log_n(JOBS[1]):.2f}); from {JOBS[1]:,} jobs on {NODES[1]:,} nodes by "
        f"{exponent(some, more_jobs):.2f} with the jobs alone, by "
        f"{exponent(some, more_nodes):.2f} with the nodes alone."
    )


def _n_log_n(jobs: int) -> float:
    return 1 + math.log10(math.log(10 * jobs) / math.log(jobs))


def _row(case: Case, one: Measured) -> Sequence[str]:
    counts = (case.jobs, case.nodes, one.running, one.starts, one.preemptions)
    figures = (*counts, one.cold_s * 1000, one.next_s * 1000, one.peak_mb)
    return (f"{case.mix.name}, {case.scripts}", *(f"{figure:,.0f}" for figure in figures))


def _best(case: Case) -> Measured:
    runs = [in_its_own_process(_measured, case) for _ in range(PROCESSES)]
    cold_s, next_s = (min(getattr(run, name) for run in runs) for name in ("cold_s", "next_s"))
    return replace(runs[0], cold_s=cold_s, next_s=next_s)


def _measured(case: Case) -> Measured:
    collect_seldom()  # as the controller does
    config = parse({"policy": {"thresholds_gpu_s": list(THRESHOLDS_GPU_S)}})
    policy = make_policy(config.policy)

    def seconds(given: Snapshot) -> float:
        began_s = time.process_time()
        decide(given, policy, config)
        return time.process_time() - began_s

    given = snapshot(case.mix, case.jobs, case.nodes, case.scripts, SEED)
    cold_s = seconds(given)
    later = [
        with_others(given, case.mix, seed, JobState.RUNNING, 10.0) for seed in range(DECISIONS)
    ]
    next_s = min(map(seconds, later))
    tracemalloc.start()
    plan = decide(given, policy, config)
    _, peak_bytes = tracemalloc.get_traced_memory()
    return Measured(
        running=sum(job.state is JobState.RUNNING for job in given.jobs),
        starts=len(plan.starts),
        preemptions=len(plan.preemptions),
        cold_s=cold_s,
        next_s=next_s,
        peak_mb=peak_bytes / 2**20,
    )
