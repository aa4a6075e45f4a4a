"""What the core knows of a job, and of all jobs at one instant."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from slurm_tiresias.core.lifecycle.preemption import Preemption
from slurm_tiresias.core.rank import Key, job_id_key
from slurm_tiresias.model import (
    NO_PAST_LOSSES,
    NOWHERE,
    Allocation,
    Claim,
    JobAccount,
    JobProgress,
    JobSpec,
    JobState,
    JobStatus,
    Lane,
    Node,
    PastLosses,
    PlacementStyle,
    ProgramCosts,
    ProgramHabit,
    Protection,
    Reason,
    RecentVictims,
    Request,
    RunRecord,
    WorkAtStake,
    weighed_gpus,
)


class KeptBySlurm(NamedTuple):
    """What would become of a running job in Slurm if it were requeued."""

    held: bool = False
    """It is suspended, or held by an administrator."""
    could_not_come_back: bool = False
    """None of its partitions would start it."""
    past_deadline: bool = False
    """Slurm would end it for good (DEADLINE)."""
    tried_first: bool = False
    """Slurm would start it before any job that waits now."""

    @property
    def protection(self) -> Protection | None:
        """Why it is therefore not preempted; None if nothing of that holds."""
        if self is NOT_KEPT:
            return None
        named = (Protection.HELD, Protection.PARTITION, Protection.DEADLINE, Protection.TRIED_FIRST)
        return next((why for why, holds in zip(named, self, strict=True) if holds), None)


NOT_KEPT = KeptBySlurm()

ALL_ALIKE: Mapping[str, float] = MappingProxyType({})

WAITS_BEHIND_AFTER = 2
"""A job with so many failures in a row waits behind all others."""


@dataclass(slots=True, eq=False)
class Job:
    """One job, or one task of an array. Its owner changes it, and tells the core of each change.

    ``attained_gpu_s`` sums GPUs x running seconds over all runs;
    ``attained_since_promotion_gpu_s`` and ``executed_since_promotion_s`` restart at a promotion.
    Like ``run_s`` they are as of ``settled_s``.
    """

    job_id: str
    request: Request
    """The request to place now: as submitted, without node lists that this program wrote, and with
    the nodes that are reserved."""
    user: str = ""
    name: str = ""
    """Arbitrary text written by its user."""
    bank_account: str = ""
    """The account that its user has it charged to in Slurm."""
    submitted_s: float = 0.0
    time_limit_s: float | None = None
    state: JobState = JobState.PENDING
    held: bool = False
    allocation: Allocation = field(default_factory=lambda: NOWHERE)
    managed: bool = True
    unmanaged_because: str = ""
    lane: Lane = Lane.PREEMPTIBLE
    lane_because: str = ""
    """Why it is in the lane ``IDLE_ONLY``, and what its user can do."""
    attained_gpu_s: float = 0.0
    attained_since_promotion_gpu_s: float = 0.0
    executed_since_promotion_s: float = 0.0
    run_s: float = 0.0
    """Running time over all runs."""
    settled_s: float = math.inf
    inherited_gpu_s: float = 0.0
    """Service of other jobs of its user or account that is charged to it too
    (``policy.charge``)."""
    tier: int | None = None
    """None until the core has ranked it."""
    tier_entered_s: float | None = None
    first_started_s: float | None = None
    queued_s: float | None = None
    """When it last began to wait; None if that is its submission."""
    running_since_s: float | None = None
    """Start of this run, by the clock as it is set now."""
    preemptions: int = 0
    promotions: int = 0
    cannot_be_requeued: str = ""
    """Why Slurm cannot requeue it, in a few words; "" if it can."""
    at_a_prompt: bool = False
    """Whether it is no batch job (salloc, srun)."""
    in_slurm: KeptBySlurm = NOT_KEPT
    not_eligible: str = ""
    """Slurm's own reason for keeping it waiting (held, dependency, a limit)."""
    nominated_to: Allocation | None = None
    """GPUs set aside for it: its start was requested from Slurm and has not been seen yet."""
    preemptor: str = ""
    """The job for which it is being requeued now; "" if it is not."""
    backs_off: bool = False
    """Its nomination expired: no job is preempted for it until the cluster changes."""
    in_vain: bool = False
    """Jobs were preempted for that nomination, but Slurm did not start it: it backs off until its
    request or one of its nodes changes."""
    cools_down: bool = False
    """Its nomination expired just now: it is not nominated at all."""
    awaited_limit: str = ""
    """A limit that it shares with jobs that are about to start; its turn comes after theirs."""
    over_budget: bool = False
    """Its user's jobs have recently cost others too much GPU time: no job is preempted for it."""
    skew: float | None = None
    """Largest tensor over model size, where known (paper page 500, Table 6)."""
    style: PlacementStyle | None = None
    style_because: str = ""
    """The rule and number that chose the style, in a few words; may contain users' text."""
    claim: Claim | None = None
    """What its reports say, unless they do not count now."""
    reports_stopped: str = ""
    """Why the job's last report does not count now; "" if it does."""
    program_costs: ProgramCosts | None = None
    """What preemptions of its program cost; None if none was measured on this site."""
    progress: JobProgress | None = None
    """Its last report; the core is not told of each."""
    past_progress: Sequence[JobProgress] = ()
    """The last report of each ended run that has reported, the earliest first."""
    past_losses: PastLosses = NO_PAST_LOSSES
    drilled: bool = False
    """Whether its program has passed a drill."""
    ranks_last: bool = False
    """Whether its run is preempted before all others, or it waits behind all others,
    because of idle GPUs."""
    failures_in_a_row: int = 0
    """While it waits: how many of its last runs, or those of its program, failed without
    progress."""
    boosted_until_s: float | None = None
    """Until when an administrator boosts it; None if none does."""
    boosted: bool = False
    """Whether it goes before all others now, and is not preempted."""
    leaves_idle: bool = False
    """Whether its run is preempted now, because of idle GPUs, even for no other job."""
    leaves_hung: bool = False
    """Whether its run is preempted now, because it hangs, even for no other job."""
    habit: ProgramHabit | None = None
    """What earlier runs of its program show about its pauses; None if there was none."""
    at_stake: WorkAtStake | None = None
    """What preempting it now would lose; None if nothing is known of it or of any other job."""
    remaining_s: float | None = None
    """Set only in simulations, and read only by the clairvoyant baselines."""
    id_key: Key = ()
    """Breaks ties between ranks: by default the numbers in its id."""
    run_records: Collection[RunRecord] = field(default=(), repr=False)
    """All of its runs, in no particular order, where there is a ledger."""
    preemption: Preemption | None = field(default=None, repr=False)
    """Its own preemption, as far as it is under way or was called off."""
    status_in_slurm: JobStatus | None = field(default=None, repr=False)
    account_in_ledger: JobAccount | None = field(default=None, repr=False)
    gpu_weights: Mapping[str, float] = field(default_factory=lambda: ALL_ALIKE, repr=False)
    """By GPU type, what a GPU counts for; 1 if not listed."""
    gpus_asked: float = field(init=False)
    """What the GPUs that it asks for count for."""
    width: float = field(init=False)
    """The same of its GPUs: those held while it runs, those asked for otherwise."""

    def __post_init__(self) -> None:
        self.id_key = self.id_key or job_id_key(self.job_id)
        self.count_gpus()

    def count_gpus(self) -> None:
        """Follow a change of the request, the state or the allocation."""
        weights, runs = self.gpu_weights, self.state is JobState.RUNNING
        if not weights:
            self.gpus_asked = self.request.gpu_count
            self.width = self.gpus_held if runs else self.gpus_asked
            return
        self.gpus_asked = self.request.weighed_gpus(weights)
        self.width = weighed_gpus(self.allocation, weights) if runs else self.gpus_asked

    def set(self, **facts: Any) -> bool:
        """Set facts; return whether any of them has changed."""
        changed = False
        for name, value in facts.items():
            before = getattr(self, name)
            if before is not value and before != value:
                setattr(self, name, value)
                changed = True
        return changed

    @property
    def status(self) -> JobStatus:
        """Its status in Slurm, where there is a Slurm."""
        assert self.status_in_slurm is not None
        return self.status_in_slurm

    @property
    def account(self) -> JobAccount:
        """What the ledger knows of it, where there is a ledger."""
        assert self.account_in_ledger is not None
        return self.account_in_ledger

    @property
    def spec(self) -> JobSpec:
        return self.status.spec

    @property
    def is_preemptible(self) -> bool:
        """Whether it can be preempted at all: it is in no lane."""
        return self.lane is Lane.PREEMPTIBLE

    @property
    def leaves_because(self) -> Reason | None:
        """Why its run is preempted now even for no other job; None if it is not."""
        if self.leaves_hung:
            return Reason.HUNG
        return Reason.IDLE_GPUS if self.leaves_idle else None

    @property
    def present_run(self) -> RunRecord | None:
        """Its run that is under way; None if it does not run, or there is no ledger."""
        start_s = self.status.start_s if self.state is JobState.RUNNING else None
        return next((run for run in self.run_records if run.start_s == start_s), None)

    @property
    def protected_by(self) -> Protection | None:
        """What protects it from preemption at all times; None if nothing does."""
        if not self.is_preemptible:
            interactive = self.lane is Lane.INTERACTIVE
            return Protection.INTERACTIVE if interactive else Protection.NO_REQUEUE
        return self.in_slurm.protection

    @property
    def only_idle(self) -> bool:
        """Whether it may start on idle GPUs only: no job is preempted for it."""
        never = self.request.gpus_vary or self.lane is Lane.IDLE_ONLY
        return never or self.backs_off or self.over_budget or self.failures_in_a_row > 0

    @property
    def waits_behind(self) -> bool:
        """Whether it waits behind all others: its runs fail again and again."""
        return self.failures_in_a_row >= WAITS_BEHIND_AFTER

    @property
    def charged_gpu_s(self) -> float:
        """What counts for the tier: the service since the last promotion, plus that inherited from
        jobs of the same user or account (``policy.charge``)."""
        return self.attained_since_promotion_gpu_s + self.inherited_gpu_s

    @property
    def gpus(self) -> int:
        """The number of its GPUs: those held while it runs, those asked for otherwise."""
        return self.gpus_held if self.state is JobState.RUNNING else self.request.gpu_count

    @property
    def gpus_held(self) -> int:
        return sum(amount.gpu_count for amount in self.allocation.values())

    @property
    def blocked_by_slurm(self) -> Reason | None:
        """Why Slurm itself would not start it now; None if nothing blocks it."""
        if self.held:
            return Reason.HELD
        if self.not_eligible:
            return Reason.SLURM_WAITS
        return Reason.SHARES_LIMIT if self.awaited_limit else None

    def waited_s(self, now_s: float) -> float:
        """How long it has waited, or waited before this run, since its last run or submission."""
        until_s = self.running_since_s if self.state is JobState.RUNNING else None
        since_s = self.submitted_s if self.queued_s is None else self.queued_s
        return max(0.0, (now_s if until_s is None else until_s) - since_s)

    def settle(self, now_s: float) -> None:
        """Bring the attained service of a running job up to date."""
        ran_s = now_s - self.settled_s
        if ran_s > 0.0:
            self.settled_s = now_s
            self.run_s += ran_s
            self.attained_gpu_s += ran_s * self.width
            self.attained_since_promotion_gpu_s += ran_s * self.width
            self.executed_since_promotion_s += ran_s

    def promote(self, now_s: float) -> None:
        """Return to the top tier; its running and waiting times count from zero (paper page
        491)."""
        self.promotions += 1
        self.queued_s = now_s
        self.attained_since_promotion_gpu_s = 0.0
        self.executed_since_promotion_s = 0.0
        self.inherited_gpu_s = 0.0


def most_service_gpu_s(gpus: float, time_limit_s: float | None) -> float:
    """Return the service that a job may attain in one run."""
    return gpus * (math.inf if time_limit_s is None else time_limit_s)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a decision may use, at one instant."""

    now_s: float
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    recent_victims: RecentVictims = RecentVictims()  # noqa: RUF009 - immutable
