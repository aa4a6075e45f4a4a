"""Job completion times compared with a fair share of the GPUs, by size, user and account."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from slurm_tiresias.policy.fair_finish import SharedJob, fair_ends_s
from slurm_tiresias.simulator.report import multiples_of
from slurm_tiresias.simulator.sizes import WIDTHS, width_title

if TYPE_CHECKING:
    import pandas as pd

    Frame: TypeAlias = "pd.DataFrame"

SHORTEST_S = 10.0
"""The shortest fair-share completion time that is used as a reference."""


@dataclass(frozen=True, slots=True)
class FairFigures:
    """Completion times of some jobs as multiples of those with a fair share."""

    name: str
    """A size, a user or an account: the latter two are untrusted, and empty if unknown."""
    jobs: int
    median: float | None
    p99: float | None
    most: float | None
    above_twice: int
    """Number of jobs that took more than ``simulator.report.PAYS_ABOVE`` times as long."""


@dataclass(frozen=True, slots=True)
class AtBound:
    """A job at or near the bound on its slowdown (``policy.max_slowdown``) now."""

    job_id: str
    user: str
    must_run_by_s: float | None
    """The time by which it must run; None if it runs."""


@dataclass(frozen=True, slots=True)
class FairShare:
    """All jobs that ended in the period, compared with a fair share (``policy.fair_finish``)."""

    gpus: int
    all: FairFigures
    by_gpus: tuple[FairFigures, ...]
    users: tuple[FairFigures, ...]
    """The users or accounts whose jobs took longest first, by the 99th percentile."""
    accounts: tuple[FairFigures, ...]


def against_fair_share(jobs: Frame, completed: Frame, gpus: int) -> FairShare:
    """Compare the completed jobs with a fair share of this many GPUs among all jobs.

    ``jobs`` are all jobs of the period; those that have not ended share until its end.
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
    fair_s = completed["job_id"].map(fair_jct_s).clip(lower=SHORTEST_S)
    completed = completed.assign(over_fair=completed["jct_s"].clip(lower=SHORTEST_S) / fair_s)
    return FairShare(
        gpus,
        _figures("all", completed),
        tuple(
            _figures(width_title(low, high), part)
            for low, high in WIDTHS
            if len(part := completed[completed["gpus"].between(low, high or math.inf)])
        ),
        _worst_first(_figures(str(name), part) for name, part in completed.groupby("user")),
        _worst_first(_figures(str(name), part) for name, part in completed.groupby("account")),
    )


def _figures(name: str, completed: Frame) -> FairFigures:
    ratios = completed["over_fair"].to_numpy(dtype=np.float64)
    if not ratios.size:
        return FairFigures(name, 0, None, None, None, 0)
    found = multiples_of(ratios)
    return FairFigures(name, len(ratios), found.median, found.p99, found.most, found.above_twice)


def _worst_first(parties: Iterable[FairFigures]) -> tuple[FairFigures, ...]:
    return tuple(sorted(parties, key=lambda one: (-(one.p99 or 0.0), one.name)))
