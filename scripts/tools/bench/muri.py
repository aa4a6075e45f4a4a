"""The published testbed runs of Muri's authors, reproduced job by job.

Their trace and results are read from a clone of github.com/Rivendile/Muri, whose ``cluster_exp``
ran 400 jobs on 64 GPUs under Tiresias, SRSF and SRTF.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

from scripts.tools.bench.clones import clone_option, content
from scripts.tools.bench.record import record
from scripts.tools.document import markdown
from slurm_tiresias.config import parse
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.baselines.dlas import ROUND_S
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.workload import TraceJob, Workload

Floats = npt.NDArray[np.float64]

CLUSTER = "8x8"
THRESHOLDS_GPU_S = (3250, 7200)
"""``queue_limit`` in their jobs.py; the third limit there is not used."""
TRACE = "cluster_exp/trace-data/cluster_trace.csv"
RESULTS = "cluster_exp/results/{}/job.csv"
SCHEDULERS = {"tiresias": "dlas", "SRSF": "srsf", "SRTF": "srtf"}
"""Our policy by the name of their results."""
NEAR = 0.05

THEIR_QUEUES = parse(
    {
        "policy": {"thresholds_gpu_s": list(THRESHOLDS_GPU_S), "estimates": []},
        "preemption": {"min_run_s": 0, "budget_share": 0},
    }
)


@dataclass(frozen=True)
class Testbed:
    """One of their runs."""

    durations: Workload
    """The jobs with the durations of the trace."""
    measured: Workload
    """The jobs with the running times of this run."""
    jct_s: Mapping[str, float]


@dataclass(frozen=True)
class Agreement:
    """How our job completion times agree with the published ones."""

    rank_correlation: float
    """Spearman's."""
    near: int
    """Number of jobs that differ by no more than ``NEAR``."""
    jobs: int
    ours_s: Floats
    theirs_s: Floats


@click.command("muri")
@clone_option("Rivendile/Muri")
def muri(clone: Path) -> None:
    """The testbed runs that the authors of Muri published, job by job."""
    testbeds = {name: load(clone, name) for name in SCHEDULERS}
    rows = [
        _row(name, "measured", agreement(testbed.jct_s, simulated(testbed.measured, policy)))
        for (name, policy), testbed in zip(SCHEDULERS.items(), testbeds.values(), strict=True)
    ]
    theirs = testbeds["tiresias"]
    of_trace = agreement(theirs.jct_s, simulated(theirs.durations, SCHEDULERS["tiresias"]))
    rows.append(_row("tiresias", "of the trace", of_trace))
    header = (
        "there",
        "here",
        "running times",
        "rank correlation",
        f"within {NEAR:.0%}",
        "average JCT there, s",
        "here, s",
        "median there, s",
        "here, s",
    )
    record(
        "Muri's testbed, job by job",
        markdown(header, rows),
        f"{of_trace.jobs} jobs on {CLUSTER} GPUs. `there` is what the authors published: their "
        "testbed ran the first 60 iterations of each job in a round and skipped the time of the "
        "others. `measured`: each job runs as long here as it ran there, restarts included, so "
        "that only the order and the waiting are simulated; `of the trace`: as long as their trace "
        f"says, without restarts. Decisions every {ROUND_S:.0f} s, queues cut at "
        f"{THRESHOLDS_GPU_S[0]:,} and {THRESHOLDS_GPU_S[1]:,} GPU-seconds.",
        "### What other rules change",
        _others(theirs.measured),
        "The running times measured under Tiresias, and preemptions at no cost. `the same queues`: "
        f"the same thresholds and decisions every {ROUND_S:.0f} s, without protections and "
        f"estimates. With default settings, decisions every {Config().controller.interval_s:g} s. "
        "The trace names no users, so that estimates take all jobs for runs of one program. Under "
        "dlas, a job that crosses a threshold goes behind those that already wait in the next "
        "queue, and gives them its GPUs; under tiresias-l it keeps them until a higher tier needs "
        "them.",
    )


def load(clone: Path, name: str) -> Testbed:
    """Read the trace, and the results of one scheduler."""
    results = {row["job_id"]: row for row in _rows(clone, RESULTS.format(name))}
    trace = sorted(_rows(clone, TRACE), key=lambda row: float(row["submit_time"]))

    def workload(duration_s: Mapping[str, float]) -> Workload:
        jobs = (
            TraceJob(
                row["job_id"],
                float(row["submit_time"]) / 1000,
                int(row["num_gpu"]),
                duration_s[row["job_id"]],
            )
            for row in trace
        )
        return Workload("Muri", tuple(jobs))

    return Testbed(
        workload({row["job_id"]: float(row["duration"]) / 1000 for row in trace}),
        workload({job_id: float(row["real_executed_time"]) for job_id, row in results.items()}),
        {job_id: float(row["JCT"]) for job_id, row in results.items()},
    )


def _rows(clone: Path, path: str) -> Sequence[Mapping[str, str]]:
    return list(csv.DictReader(content(clone, path).decode().splitlines()))


def simulated(
    workload: Workload, policy: str, config: Config = THEIR_QUEUES, interval_s: float = ROUND_S
) -> Sequence[Outcome]:
    """Simulate a policy on their cluster, without costs of preemptions."""
    site = parse_cluster(CLUSTER, "consolidate")
    costs = Costs(site, speeds=False, flat_s=0.0)
    return run.simulate(workload, policy, run.Setup(site, config, costs, Timing(interval_s)))


def agreement(jct_s: Mapping[str, float], outcomes: Sequence[Outcome]) -> Agreement:
    """Compare the published completion times with those of a simulation."""
    ours_s = np.array([outcome.jct_s for outcome in outcomes])
    theirs_s = np.array([jct_s[outcome.job.job_id] for outcome in outcomes])
    return Agreement(
        float(np.corrcoef(ranks(ours_s), ranks(theirs_s))[0, 1]),
        int(np.count_nonzero(np.abs(ours_s / theirs_s - 1) <= NEAR)),
        len(outcomes),
        ours_s,
        theirs_s,
    )


def ranks(values: Floats) -> Floats:
    """Return the ranks; equal values have the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[which]
    return ranks


def _row(name: str, source: str, found: Agreement) -> Sequence[str]:
    return (
        name,
        SCHEDULERS[name],
        source,
        f"{found.rank_correlation:.6f}",
        f"{found.near} of {found.jobs}",
        f"{np.mean(found.theirs_s):,.0f}",
        f"{np.mean(found.ours_s):,.0f}",
        f"{np.median(found.theirs_s):,.0f}",
        f"{np.median(found.ours_s):,.0f}",
    )


def _others(workload: Workload) -> str:
    default, every_s = Config(), Config().controller.interval_s
    attained = replace(default, policy=replace(default.policy, estimates=()))
    found = {
        "dlas": simulated(workload, "dlas"),
        "tiresias-l, the same queues": simulated(workload, "tiresias-l"),
        "tiresias-l, default settings": simulated(workload, "tiresias-l", default, every_s),
        "the same without estimates": simulated(workload, "tiresias-l", attained, every_s),
        "best-effort": simulated(workload, "best-effort"),
        "srsf": simulated(workload, "srsf"),
    }
    rows = []
    for title, outcomes in found.items():
        jct_s = [outcome.jct_s for outcome in outcomes]
        preemptions = sum(outcome.preemptions for outcome in outcomes)
        rows.append(
            (title, f"{np.mean(jct_s):,.0f}", f"{np.median(jct_s):,.0f}", f"{preemptions:,}")
        )
    return markdown(("policy", "average JCT, s", "median JCT, s", "preemptions"), rows)
