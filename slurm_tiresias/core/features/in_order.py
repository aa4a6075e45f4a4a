"""All features, in the order in which the engine calls them. There is no other list of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slurm_tiresias.config import Config
from slurm_tiresias.core.features.charge import BY_JOB, Charging, EndedRun
from slurm_tiresias.core.features.feature import Feature
from slurm_tiresias.core.features.idle_gpus import IdleGpus
from slurm_tiresias.core.features.losses import PreemptionBudget, RecentLosses
from slurm_tiresias.core.features.max_slowdown import EarlierJob, MaxSlowdown
from slurm_tiresias.model import Node


class Features(NamedTuple):
    """The features of a site; None for one that its configuration switches off.

    Charging comes first, because the bound needs the tier of a job. Idle GPUs come last, because
    they rank a job behind all others whatever else is so.
    """

    charging: Charging | None = None
    budget: PreemptionBudget | None = None
    slowdown: MaxSlowdown | None = None
    idle_gpus: IdleGpus | None = None

    @property
    def in_order(self) -> Sequence[Feature]:
        """Those that are switched on."""
        return [feature for feature in self if feature]


def make_features(
    config: Config,
    nodes: Sequence[Node],
    losses: RecentLosses,
    *,
    partitions: Iterable[str] = (),
    idle_gpus: IdleGpus | None = None,
    now_s: float = math.inf,
    ended_runs: Iterable[EndedRun] = (),
    earlier_jobs: Iterable[EarlierJob] = (),
) -> Features:
    """Return the features of a configuration.

    ``losses``, ``ended_runs`` and ``earlier_jobs`` are what a ledger has of the time before
    ``now_s``: the losses count for the budget, the runs for charging, the jobs for the bound. Only
    the GPUs of ``partitions`` count for the budget; all do if it is empty. ``idle_gpus``: made by
    the caller, who hears the nodes.
    """
    policy = config.policy
    return Features(
        charging=Charging(policy, ended_runs, now_s) if policy.charge != BY_JOB else None,
        budget=PreemptionBudget(losses, partitions) if config.preemption.budget_share else None,
        slowdown=MaxSlowdown(config, nodes, earlier_jobs) if policy.max_slowdown > 0 else None,
        idle_gpus=idle_gpus,
    )
