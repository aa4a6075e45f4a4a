"""Who pays: completion times compared with a fair share and with what a site could run
instead, by size, user, account.

Every job is compared with itself: with its completion time if all jobs shared the GPUs evenly, and
with the one under another policy on the same jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from slurm_tiresias.simulator.baselines import BEST, STOCK
from slurm_tiresias.simulator.report import Multiples, Report, Result, multiples_of
from slurm_tiresias.simulator.sizes import width_of
from slurm_tiresias.simulator.workload import TraceJob

MOST_LISTED = 100
SHORTEST_S = 1e-9

BY: Mapping[str, Callable[[TraceJob], str]] = {
    "gpus": lambda job: width_of(job.gpus),
    "user": lambda job: job.user,
    "account": lambda job: job.account,
}
"""What jobs can be grouped by; the names of users and accounts are untrusted."""


@dataclass(frozen=True, slots=True)
class Group:
    """The jobs of one size, user or account."""

    name: str
    jobs: int
    over_fair_share: Multiples
    over_stock: Multiples | None
    """Over ``baseline_of`` the report; None if it has none."""


def baseline_of(report: Report) -> Result | None:
    """Return the best baseline, or else stock Slurm, if it was simulated."""
    results = {result.policy: result for result in report.results}
    return results.get(BEST, results.get(STOCK))


def who_pays(report: Report, result: Result, by: str) -> tuple[Group, ...]:
    """Return the groups of jobs under a policy, those with the longest times relative to a fair
    share first."""
    stock = baseline_of(report)
    stock_s = {one.job.job_id: one.jct_s for one in stock.outcomes} if stock else {}
    found: dict[str, list[tuple[float, float]]] = {}
    for one in result.outcomes:
        job_id = one.job.job_id
        times = (
            one.jct_s / max(SHORTEST_S, report.fair_jct_s[job_id]),
            one.jct_s / max(SHORTEST_S, stock_s.get(job_id, one.jct_s)),
        )
        found.setdefault(BY[by](one.job), []).append(times)
    groups = [
        Group(
            name,
            len(times),
            multiples_of(np.array([fair for fair, _ in times])),
            multiples_of(np.array([over for _, over in times])) if stock else None,
        )
        for name, times in found.items()
    ]
    groups.sort(key=lambda one: (-one.over_fair_share.p99, -one.jobs, one.name))
    return tuple(groups[:MOST_LISTED])
