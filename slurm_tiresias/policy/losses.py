"""The GPU-time that jobs of each user have lately made other users' jobs lose.

Without a bound one user can have a chosen job preempted again and again, at no cost: jobs that ask
for its node, and end as soon as they have it. With the bound a user's jobs go on starting on idle
GPUs, and preempt again when less was lost in the last ``preemption.budget_window_s``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from slurm_tiresias.config import PreemptionConfig

MOST_LOSS_S = 300.0
"""What a preempted run is taken to have lost at most. When it last saved is not known, and a run of
a day has saved before; half of ten minutes is what saving every ten minutes loses on average."""


LEAVES_WITHIN_S = 15.0
"""Between the end of a job's grace and the end of its run: a cycle, and what the requeue takes."""


class Loss(NamedTuple):
    """What one preemption cost others, caused by a job of this user."""

    at_s: float
    user: str
    gpu_s: float


def lost_gpu_s(gpus: int, ran_s: float) -> float:
    """What a run on so many GPUs is taken to lose if it is preempted after ``ran_s`` seconds."""
    return gpus * min(max(ran_s, 0.0), MOST_LOSS_S)


def losses_of(
    at_s: float,
    preemptor: str,
    victim: str,
    gpus: int,
    ran_s: float,
    left_after_s: float | None,
    grace_s: float,
) -> tuple[Loss, ...]:
    """What one preemption cost, by the user whose jobs caused it; nothing among a user's own jobs.

    The victim lost a run of ``ran_s`` on so many GPUs to the preemptor. The preemptor waited for
    them while the victim took longer to leave than the ``grace_s`` that the site gives to all.
    """
    if preemptor == victim:
        return ()
    late_s = max(0.0, (left_after_s or 0.0) - grace_s - LEAVES_WITHIN_S)
    by_preemptor = Loss(at_s, preemptor, lost_gpu_s(gpus, ran_s))
    return (by_preemptor, Loss(at_s, victim, gpus * late_s)) if late_s else (by_preemptor,)


class RecentLosses:
    """The losses of the last window, by the user whose jobs caused them."""

    def __init__(self, config: PreemptionConfig, losses: Iterable[Loss] = ()) -> None:
        self._share = config.budget_share
        self._window_s = config.budget_window_s
        self._losses = deque(sorted(losses))
        self._users: frozenset[str] = frozenset()
        self._asked: tuple[float, int] | None = None
        """Until when, and for how many GPUs, ``_users`` is the answer."""

    def add(self, loss: Loss) -> None:
        """Take in a preemption; the latest one last."""
        self._losses.append(loss)
        self._asked = None

    def over_budget(self, now_s: float, gpus: int) -> frozenset[str]:
        """The users whose jobs may preempt no more for now, on a cluster of so many GPUs."""
        if not self._losses or self._share <= 0:
            return frozenset()
        if self._asked is None or now_s >= self._asked[0] or gpus != self._asked[1]:
            while self._losses and self._losses[0].at_s <= now_s - self._window_s:
                self._losses.popleft()
            lost_gpu_s: dict[str, float] = {}
            for loss in self._losses:
                lost_gpu_s[loss.user] = lost_gpu_s.get(loss.user, 0.0) + loss.gpu_s
            budget_gpu_s = self._share * gpus * self._window_s
            self._users = frozenset(u for u, lost in lost_gpu_s.items() if lost >= budget_gpu_s)
            self._asked = self._oldest_ends_s(), gpus
        return self._users

    @property
    def next_change_s(self) -> float:
        """When a user may next be within the budget again; infinite where all are."""
        return self._oldest_ends_s() if self._users else math.inf

    def _oldest_ends_s(self) -> float:
        return self._losses[0].at_s + self._window_s if self._losses else math.inf
