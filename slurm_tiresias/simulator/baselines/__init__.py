"""The baselines that Tiresias is compared to: one module each, and all of them by name.

yarn-cs, dlas, gandiva and those on Slurm have their own placement; of the placement settings they
respect only ``pooled``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from slurm_tiresias.core.features.promotion import Promotion
from slurm_tiresias.simulator.baselines import repack
from slurm_tiresias.simulator.baselines.backfill import Backfill
from slurm_tiresias.simulator.baselines.dlas import Dlas
from slurm_tiresias.simulator.baselines.gandiva import Gandiva
from slurm_tiresias.simulator.baselines.head_of_line import HeadOfLine
from slurm_tiresias.simulator.baselines.other_policies import ByRunningTime, BySubmission
from slurm_tiresias.simulator.baselines.slurm_qos import SlurmQos
from slurm_tiresias.simulator.engine import Scheduler
from slurm_tiresias.simulator.limits import ALIKE, with_limits, with_users_limits
from slurm_tiresias.simulator.schedulers import TiresiasScheduler
from slurm_tiresias.simulator.workload import Workload

if TYPE_CHECKING:
    from slurm_tiresias.simulator.run import Setup


def _backfill(setup: Setup, _workload: Workload) -> Backfill:
    return Backfill(setup.cluster.real_nodes(), setup.slurm)


def _best_effort(setup: Setup, _workload: Workload) -> TiresiasScheduler:
    policy = BySubmission(Promotion.of(setup.config.policy))
    return TiresiasScheduler(policy, setup.config, setup.cluster.as_nodes())


def _one_dimensional_las(setup: Setup, _workload: Workload) -> TiresiasScheduler:
    thresholds_s = setup.config.policy.thresholds_gpu_s  # taken as seconds
    policy = ByRunningTime(thresholds_s, Promotion.of(setup.config.policy))
    return TiresiasScheduler(policy, setup.config, setup.cluster.as_nodes())


def _repack(cost: repack.Cost) -> Callable[[Setup, Workload], Scheduler]:
    return lambda setup, _: repack.Repack(cost, setup.cluster.as_nodes())


BASELINES: Mapping[str, Callable[[Setup, Workload], Scheduler]] = {
    "slurm": _backfill,
    "slurm-30d": _backfill,
    "slurm-users": _backfill,
    "slurm-qos": lambda setup, jobs: SlurmQos(setup.cluster.real_nodes(), setup.slurm, jobs),
    "yarn-cs": lambda setup, _: HeadOfLine(setup.cluster.as_nodes()),
    "best-effort": _best_effort,
    "gandiva": lambda setup, workload: Gandiva(setup.cluster.real_nodes(), workload.jobs),
    "sf": _repack(repack.fewest_gpus),
    "srtf": _repack(repack.least_time),
    "srsf": _repack(repack.least_service),
    "las": _one_dimensional_las,
    "dlas": lambda setup, _: Dlas(setup.config.policy.thresholds_gpu_s, setup.cluster.as_nodes()),
}
"""Constructors by the names used on the command line."""

CONSOLIDATED_ONLY = ("yarn-cs", "dlas")
"""Baselines whose jobs wait rather than be spread (YARN-CS: paper page 493)."""

OWN_PACE = ("slurm", "slurm-30d", "slurm-users", "slurm-qos", "yarn-cs", "best-effort", "dlas")
"""Schedulers that run without the controller and so do not use its interval."""

SUSPENDING = ("gandiva",)
"""Baselines that suspend and resume jobs in place, without a restart or a requeue."""

STOCK = "slurm"
"""Slurm with the time limits of the trace, and its partition's default where there is none."""

OWN_LIMITS: Mapping[str, Callable[[Workload], Workload]] = {
    "slurm-30d": lambda workload: with_limits(workload, ALIKE),
    "slurm-users": with_users_limits,
    "slurm-qos": with_users_limits,
}
"""The time limits of baselines that do not take those of the workload as they are."""

BEST = "best"
"""The name of the baseline among ``SITES_RUN`` with the smallest average completion time."""

SITES_RUN = (STOCK, *OWN_LIMITS, "best-effort")
"""The baselines that know no durations: what a site could run instead of Tiresias."""

SOON_SIMULATED = ("slurm-users", "best-effort")
"""Those of them that can be simulated beside a sweep."""


def to_choose_from(workload: Workload) -> tuple[str, ...]:
    """Return the baselines among which the best is chosen, each of which differs from the others:
    where every job has a time limit, ``slurm-users`` equals ``slurm``."""
    same = "slurm-users" if all(job.limit_s for job in workload.jobs) else ""
    return tuple(name for name in SITES_RUN if name != same)
