"""Who pays: completion times against a fair share and against stock Slurm, by size, user, account.

Every job is compared with itself: with its completion time if all jobs shared the GPUs evenly, and
with the one under another policy on the same jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slurm_tiresias.simulator.report import PAYS_ABOVE, Report, Result, median, percentile
from slurm_tiresias.simulator.sizes import width_of
from slurm_tiresias.simulator.workload import TraceJob

STOCK = "slurm"
"""The policy that stands for Slurm as it is."""

MOST_LISTED = 100
SHORTEST_S = 1e-9

BY: Mapping[str, Callable[[TraceJob], str]] = {
    "gpus": lambda job: width_of(job.gpus),
    "user": lambda job: job.user,
    "account": lambda job: job.account,
}
"""What jobs can be grouped by; the names of users and accounts are untrusted."""


@dataclass(frozen=True, slots=True)
class Multiples:
    """Completion times in multiples of others."""

    median: float
    p99: float
    most: float
    above_twice: int
    """How many jobs took more than ``PAYS_ABOVE`` times as long."""


@dataclass(frozen=True, slots=True)
class Group:
    """The jobs of one size, user or account."""

    name: str
    jobs: int
    over_fair_share: Multiples
    over_stock: Multiples | None
    """None if stock Slurm was not simulated."""


def who_pays(report: Report, result: Result, by: str) -> tuple[Group, ...]:
    """Return the groups of jobs under a policy, those that pay most against a fair share first."""
    stock = next((one for one in report.results if one.policy == STOCK), None)
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
            _multiples([fair for fair, _ in times]),
            _multiples([over for _, over in times]) if stock else None,
        )
        for name, times in found.items()
    ]
    groups.sort(key=lambda one: (-one.over_fair_share.p99, -one.jobs, one.name))
    return tuple(groups[:MOST_LISTED])


def _multiples(values: Sequence[float]) -> Multiples:
    ratios = np.array(values)
    return Multiples(
        median(ratios),
        percentile(ratios, 99),
        float(ratios.max()),
        int((ratios > PAYS_ABOVE).sum()),
    )
