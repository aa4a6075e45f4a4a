"""All features, in the order in which the engine calls them. There is no other list of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from slurm_tiresias.core.features.bad_nodes import BadNodes
from slurm_tiresias.core.features.boost import Boost
from slurm_tiresias.core.features.charge import BY_JOB, Charging, EndedRun
from slurm_tiresias.core.features.drilled import Drilled, Program
from slurm_tiresias.core.features.failed_runs import FailedRuns
from slurm_tiresias.core.features.feature import Feature
from slurm_tiresias.core.features.hung import Hung
from slurm_tiresias.core.features.idle_gpus import IdleGpus
from slurm_tiresias.core.features.interactive import InteractiveLane
from slurm_tiresias.core.features.losses import PreemptionBudget, RecentLosses
from slurm_tiresias.core.features.lost_work import LostWork
from slurm_tiresias.model import JobAccount, RunRecord
from slurm_tiresias.settings import Config


class Features(NamedTuple):
    """The features of a site; None for one that its configuration switches off.

    Each sets facts of its own, so that none waits for another. ``explain`` shows them in this
    order.
    """

    lane: InteractiveLane | None = None
    charging: Charging | None = None
    budget: PreemptionBudget | None = None
    drilled: Drilled | None = None
    lost_work: LostWork | None = None
    failed_runs: FailedRuns | None = None
    bad_nodes: BadNodes | None = None
    idle_gpus: IdleGpus | None = None
    boost: Boost | None = None
    hung: Hung | None = None

    @property
    def in_order(self) -> Sequence[Feature]:
        """Those that are switched on."""
        return [feature for feature in self if feature]


NO_FEATURES: Final = Features()
NONE_DRILLED: Final[Mapping[Program, float]] = {}


class Past:
    """What the features know of the time before they are made: without a ledger, only losses."""

    def __init__(self, losses: RecentLosses, now_s: float = math.inf) -> None:
        self.losses = losses
        """What counts for the budget."""
        self.now_s = now_s

    def ended_runs(self) -> Iterable[EndedRun]:
        """Return the runs that count for charging."""
        return ()

    def runs_in_lane(self) -> Iterable[tuple[str, RunRecord]]:
        """Return the runs at a prompt that count for their users."""
        return ()

    def recent_runs(self) -> Iterable[tuple[JobAccount, RunRecord]]:
        """Return the runs that ended in the last day, with their jobs."""
        return ()

    def cleared_s(self) -> Mapping[str, float]:
        """Return when an administrator cleared nodes of suspicion."""
        return {}

    def drilled(self) -> Mapping[Program, float]:
        """Return the programs that have passed a drill: see ``Drilled``."""
        return NONE_DRILLED


def make_features(
    config: Config,
    past: Past,
    *,
    partitions: Iterable[str] = (),
    before: Features = NO_FEATURES,
) -> Features:
    """Return the features of a configuration.

    Only the GPUs of ``partitions`` count for the budget; all do if it is empty. The idle GPUs
    and the hung jobs go on as they were ``before``: their nodes are heard by the caller.
    """
    policy = config.policy
    charges, has_budget = policy.charge != BY_JOB, bool(config.preemption.budget_share)
    recent_runs = list(past.recent_runs())
    return Features(
        lane=InteractiveLane(config, past.runs_in_lane()),
        charging=Charging(policy, past.ended_runs(), past.now_s) if charges else None,
        budget=PreemptionBudget(past.losses, partitions) if has_budget else None,
        drilled=Drilled(past.drilled) if config.preemption.drilled_min_run_s > 0 else None,
        lost_work=LostWork(),
        failed_runs=FailedRuns(recent_runs),
        bad_nodes=BadNodes(recent_runs, past.cleared_s()),
        idle_gpus=before.idle_gpus,
        boost=Boost(),
        hung=before.hung,
    )
