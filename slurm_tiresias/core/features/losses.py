"""The preemption budget: GPU-time that each user's jobs have recently cost other users' jobs.

Without a budget, a user could have a chosen job preempted again and again at no cost, with jobs
that request its node and end as soon as they get it. Over the budget, a user's jobs still start on
idle GPUs; they may preempt again once the losses of the last hour are below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slurm_tiresias.core.features.feature import Feature
from slurm_tiresias.core.features.window import is_recent
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import JobState, Node
from slurm_tiresias.settings.preemption import PreemptionConfig

MOST_LOSS_S = 300.0
"""Upper bound on the assumed loss of a preempted run. Its last checkpoint time is unknown; saving
every ten minutes loses five minutes on average."""


BUDGET_WINDOW_S = 3600.0
"""How long a loss counts: the longest minimum run time, in which no job is preempted twice."""

LEAVES_WITHIN_S = 15.0
"""Time allowed beyond the site's grace, for a cycle and the requeue."""


class Loss(NamedTuple):
    """The GPU-seconds that a job of this user cost others in one preemption."""

    at_s: float
    user: str
    gpu_s: float


def lost_gpu_s(gpus: int, ran_s: float) -> float:
    """Return the GPU-seconds assumed lost by a run preempted after ``ran_s`` seconds."""
    return gpus * min(max(ran_s, 0.0), MOST_LOSS_S)


def losses_of(
    at_s: float,
    preemptor: str,
    victim: str,
    gpus: int,
    ran_s: float,
    late_s: float,
) -> tuple[Loss, ...]:
    """Return the losses of one preemption, each charged to the user whose job caused it.

    The preemptor's user is charged for the victim's run of ``ran_s`` seconds on ``gpus`` GPUs. The
    victim's user is charged for ``late_s``. ``preemptor`` and ``victim`` are users; if they are the
    same, nothing is charged.
    """
    if preemptor == victim:
        return ()
    by_preemptor = Loss(at_s, preemptor, lost_gpu_s(gpus, ran_s))
    return (by_preemptor, Loss(at_s, victim, gpus * late_s)) if late_s else (by_preemptor,)


def late_s(signalled_s: float, grace_until_s: float, end_s: float, grace_s: float) -> float:
    """Return by how much longer than the site gives a victim itself has kept its GPUs.

    It is ready to leave at the end of its own grace (``grace_until_s``), or of its run if that
    comes first; until all victims of its preemptor are, none is requeued.

    Parameters
    ----------
    grace_s
        What the site gives to such a victim: ``grace_s``, or ``SAVE_GRACE_S`` if it was asked.
    """
    return max(0.0, min(grace_until_s, end_s) - signalled_s - grace_s - LEAVES_WITHIN_S)


class RecentLosses:
    """The losses of the last ``BUDGET_WINDOW_S`` seconds, by the user whose jobs caused them."""

    def __init__(self, config: PreemptionConfig, losses: Iterable[Loss] = ()) -> None:
        self._share = config.budget_share
        self._losses = list(losses)
        self._oldest_s = min((loss.at_s for loss in self._losses), default=math.inf)
        self._users: frozenset[str] = frozenset()
        self._asked: tuple[float, float, int] | None = None
        """From when to when ``_users`` is valid, and the GPU count that it is valid for."""

    def add(self, loss: Loss) -> None:
        """Add the loss of a preemption."""
        self._losses.append(loss)
        self._oldest_s = min(self._oldest_s, loss.at_s)
        self._asked = None

    def over_budget(self, now_s: float, gpus: int) -> frozenset[str]:
        """Return the users whose budget is exhausted on a cluster with this many GPUs."""
        if not self._losses or self._share <= 0:
            return frozenset()
        from_s, until_s, of_gpus = self._asked or (math.inf, -math.inf, 0)
        if not from_s <= now_s < until_s or gpus != of_gpus:
            recent = (one for one in self._losses if is_recent(one.at_s, now_s, BUDGET_WINDOW_S))
            self._losses = list(recent)
            self._oldest_s = min((one.at_s for one in self._losses), default=math.inf)
            lost_gpu_s: dict[str, float] = {}
            for loss in self._losses:
                lost_gpu_s[loss.user] = lost_gpu_s.get(loss.user, 0.0) + loss.gpu_s
            budget_gpu_s = self._share * gpus * BUDGET_WINDOW_S
            self._users = frozenset(u for u, lost in lost_gpu_s.items() if lost >= budget_gpu_s)
            self._asked = now_s, self._oldest_s + BUDGET_WINDOW_S, gpus
        return self._users

    @property
    def next_change_s(self) -> float:
        """Earliest time at which a user over budget may be within it again; infinite if none."""
        return self._oldest_s + BUDGET_WINDOW_S if self._users else math.inf


class PreemptionBudget(Feature):
    """Sets ``over_budget`` of the waiting jobs of users who have cost others too much."""

    def __init__(self, losses: RecentLosses, partitions: Iterable[str] = ()) -> None:
        """``partitions`` are those whose GPUs count; all GPUs do if it is empty."""
        self._losses = losses
        self._partitions = frozenset(partitions)
        self._gpus = 0
        self.users_over: frozenset[str] = frozenset()
        """The users that may not preempt now."""
        self._waiting: dict[str, dict[str, Job]] = {}
        """Waiting jobs by user and id."""

    def add(self, loss: Loss) -> None:
        """Charge the loss of a preemption to the user who caused it."""
        self._losses.add(loss)

    def follow_nodes(self, nodes: Sequence[Node]) -> None:
        mine = self._partitions
        self._gpus = sum(
            node.total.gpu_count
            for node in nodes
            if not mine or not mine.isdisjoint(node.partitions)
        )

    def follow(self, job: Job, now_s: float) -> None:
        waits = job.state is JobState.PENDING
        if waits:
            self._waiting.setdefault(job.user, {})[job.job_id] = job
        else:
            self.forget(job)
        job.over_budget = waits and job.user in self.users_over

    def forget(self, job: Job) -> None:
        self._waiting.get(job.user, {}).pop(job.job_id, None)

    def tick(self, now_s: float) -> Iterable[Job]:
        before, self.users_over = self.users_over, self._losses.over_budget(now_s, self._gpus)
        for user in before ^ self.users_over:
            yield from list(self._waiting.get(user, {}).values())

    @property
    def next_change_s(self) -> float:
        return self._losses.next_change_s
