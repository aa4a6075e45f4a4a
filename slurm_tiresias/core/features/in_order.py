"""All features, in the order in which the engine calls them. There is no other list of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from slurm_tiresias.core.features.charge import BY_JOB, Charging, EndedRun
from slurm_tiresias.core.features.drilled import Drilled, Program
from slurm_tiresias.core.features.feature import Feature
from slurm_tiresias.core.features.idle_gpus import IdleGpus
from slurm_tiresias.core.features.interactive import InteractiveLane
from slurm_tiresias.core.features.losses import PreemptionBudget, RecentLosses
from slurm_tiresias.core.features.lost_work import LostWork
from slurm_tiresias.core.features.max_slowdown import EarlierJob, MaxSlowdown
from slurm_tiresias.model import Node, RunRecord
from slurm_tiresias.settings import Config


class Features(NamedTuple):
    """The features of a site; None for one that its configuration switches off.

    Each sets facts of its own, so that none waits for another. ``explain`` shows them in this
    order.
    """

    lane: InteractiveLane | None = None
    charging: Charging | None = None
    budget: PreemptionBudget | None = None
    slowdown: MaxSlowdown | None = None
    drilled: Drilled | None = None
    lost_work: LostWork | None = None
    idle_gpus: IdleGpus | None = None

    @property
    def in_order(self) -> Sequence[Feature]:
        """Those that are switched on."""
        return [feature for feature in self if feature]


NO_FEATURES: Final = Features()
NONE_DRILLED: Final[Mapping[Program, float]] = {}


def make_features(
    config: Config,
    nodes: Sequence[Node],
    losses: RecentLosses,
    *,
    partitions: Iterable[str] = (),
    before: Features = NO_FEATURES,
    now_s: float = math.inf,
    ended_runs: Callable[[], Iterable[EndedRun]] = tuple,
    earlier_jobs: Callable[[], Iterable[EarlierJob]] = tuple,
    runs_in_lane: Callable[[], Iterable[tuple[str, RunRecord]]] = tuple,
    drilled: Callable[[], Mapping[Program, float]] = lambda: NONE_DRILLED,
) -> Features:
    """Return the features of a configuration.

    ``losses``, ``ended_runs``, ``earlier_jobs`` and ``runs_in_lane`` are what a ledger has of the
    time before ``now_s``: the losses count for the budget, the runs for charging, the jobs for the
    bound. They are only asked for where they count. ``drilled``: see ``Drilled``. Only the GPUs of
    ``partitions`` count for the budget; all do if it is empty. The bound and the idle GPUs go on as
    they were ``before``: across a step of the clock the ledger cannot tell what the bound knows,
    and the nodes are heard by the caller.
    """
    policy, slowdown = config.policy, before.slowdown
    if slowdown is None and policy.max_slowdown > 0:
        slowdown = MaxSlowdown(config, nodes, earlier_jobs())
    return Features(
        lane=InteractiveLane(config, runs_in_lane()),
        charging=Charging(policy, ended_runs(), now_s) if policy.charge != BY_JOB else None,
        budget=PreemptionBudget(losses, partitions) if config.preemption.budget_share else None,
        slowdown=slowdown,
        drilled=Drilled(drilled) if config.preemption.drilled_min_run_s > 0 else None,
        lost_work=LostWork(),
        idle_gpus=before.idle_gpus,
    )
