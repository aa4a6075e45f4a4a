"""Job completion times compared with a fair share of the GPUs and with the best baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from slurm_tiresias.core.fair_share import SharedJob, fair_ends_s
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.baselines import to_choose_from
from slurm_tiresias.simulator.report import Result, best_of, figures, how_saved, multiples_of
from slurm_tiresias.simulator.sim_cluster import SimCluster
from slurm_tiresias.simulator.sizes import WIDTHS, width_title
from slurm_tiresias.simulator.workload import TraceJob, Workload

if TYPE_CHECKING:
    import pandas as pd

    Frame: TypeAlias = "pd.DataFrame"
    Seconds: TypeAlias = "pd.Series[float]"

SHORTEST_S = 10.0
"""The shortest completion time that is used as a reference."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Completion times of some jobs as multiples of those under another schedule."""

    name: str
    """A size, a user or an account: the latter two are untrusted, and empty if unknown."""
    jobs: int
    median: float | None
    p99: float | None
    most: float | None
    above_twice: int
    """How many jobs took more than ``simulator.report.PAYS_ABOVE`` times as long."""
    mean_jct_s: float | None
    other_mean_jct_s: float | None
    """The average completion time under the other schedule."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The jobs that ended in the period, against another schedule of the same jobs."""

    gpus: int
    all: Compared
    by_gpus: tuple[Compared, ...]
    users: tuple[Compared, ...]
    """The users or accounts whose jobs took longest first, by the 99th percentile."""
    accounts: tuple[Compared, ...]
    baseline: str = ""
    """The simulated policy, if the other schedule was simulated."""
    saves: str = ""
    """How the jobs were assumed to save."""


def against_fair_share(jobs: Frame, completed: Frame, gpus: int) -> Comparison:
    """Compare the completed jobs with a fair share of this many GPUs among all jobs.

    ``jobs`` are all of the period; those that have not ended share until its end.
    """
    ran = jobs[jobs["runs"] > 0]
    ends_s = fair_ends_s(
        [
            SharedJob(submitted_s, max(1, int(width)), ran_s if end_s == end_s else math.inf)
            for submitted_s, width, ran_s, end_s in zip(
                ran["submitted_s"], ran["gpus"], ran["ran_s"], ran["end_s"], strict=True
            )
        ],
        gpus,
    )
    fair_jct_s = dict(zip(ran["job_id"], np.array(ends_s) - ran["submitted_s"], strict=True))
    return _compared(completed, completed["job_id"].map(fair_jct_s), gpus)


def against_best_baseline(
    jobs: Frame,
    completed: Frame,
    cluster: SimCluster,
    since_s: float,
    progress: Callable[[int], None],
) -> Comparison:
    """Compare the jobs that came and ended in the period with the best baseline, simulated.

    ``jobs`` are all of the period, with ``need_s``: how long each ran in it, less the work that
    preemptions made it do again. Jobs that were there before ``since_s`` are submitted at that
    time, in their order. Jobs that the cluster cannot run are left out of both sides.
    """
    ran = jobs[(jobs["runs"] > 0) & (jobs["need_s"] > 0)].sort_values("submitted_s")
    columns = ("job_id", "submitted_s", "gpus", "need_s", "time_limit_s")
    trace = tuple(
        TraceJob(
            job_id,
            max(0.0, submitted_s - since_s),
            max(1, int(gpus)),
            need_s,
            limit_s=limit_s if limit_s > 0 else None,
        )
        for job_id, submitted_s, gpus, need_s, limit_s in zip(
            *(ran[column] for column in columns), strict=True
        )
    )
    workload, _ = run.fitting(Workload("report", trace), cluster)
    setup = run.for_baselines(cluster)
    best = best_of(
        [
            Result(name, outcomes, figures(outcomes, cluster.gpus))
            for name in to_choose_from(workload)
            for outcomes in [run.simulate(workload, name, setup, progress)]
        ]
    )
    stock_jct_s = {one.job.job_id: one.jct_s for one in best.outcomes}
    came = completed[
        (completed["submitted_s"] >= since_s) & completed["job_id"].isin(stock_jct_s.keys())
    ]
    return replace(
        _compared(came, came["job_id"].map(stock_jct_s), cluster.gpus),
        baseline=best.baseline or "",
        saves=how_saved(setup.costs.saves),
    )


def by_width(jobs: Frame) -> Iterator[tuple[str, Frame]]:
    """Yield the title of each class of widths and its jobs, which may be none."""
    for low, high in WIDTHS:
        yield width_title(low, high), jobs[jobs["gpus"].between(low, high or math.inf)]


def _compared(completed: Frame, other_jct_s: Seconds, gpus: int) -> Comparison:
    other_s = other_jct_s.clip(lower=SHORTEST_S)
    completed = completed.assign(
        other_jct_s=other_jct_s, multiple=completed["jct_s"].clip(lower=SHORTEST_S) / other_s
    )
    return Comparison(
        gpus,
        _multiples("all", completed),
        tuple(_multiples(title, part) for title, part in by_width(completed) if len(part)),
        _worst_first(_multiples(str(name), part) for name, part in completed.groupby("user")),
        _worst_first(_multiples(str(name), part) for name, part in completed.groupby("account")),
    )


def _multiples(name: str, completed: Frame) -> Compared:
    ratios = completed["multiple"].to_numpy(dtype=np.float64)
    if not ratios.size:
        return Compared(name, 0, None, None, None, 0, None, None)
    found = multiples_of(ratios)
    return Compared(
        name,
        len(ratios),
        found.median,
        found.p99,
        found.most,
        found.above_twice,
        float(completed["jct_s"].mean()),
        float(completed["other_jct_s"].mean()),
    )


def _worst_first(parties: Iterable[Compared]) -> tuple[Compared, ...]:
    return tuple(sorted(parties, key=lambda one: (-(one.p99 or 0.0), one.name)))
