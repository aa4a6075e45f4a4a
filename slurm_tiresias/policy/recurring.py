"""What jobs of the same user and name have needed before."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

from slurm_tiresias.policy.gittins import ServiceHistory

KEPT = 60
"""Of each user, and of each user and name, the last so many: programs change."""

Origin = tuple[str, ...]
"""A user, or a user and a name."""


class RunHistory:
    """How long ended jobs have run, in seconds, by who submitted them under which name.

    Seconds and not GPU-seconds, so that a job learns from those before it that were not as wide.
    It only grows: what is said of a job may change with every ``add``.
    """

    def __init__(self, least: int, ended: Iterable[tuple[str, str, float]] = ()) -> None:
        """``least`` jobs must be known before they tell anything; ``ended``: user, name, seconds,
        the latest last."""
        self._least: Final = least
        self._run_s: Final[dict[Origin, deque[float]]] = {}
        self._known: Final[dict[Origin, ServiceHistory]] = {}
        for user, name, run_s in ended:
            self.add(user, name, run_s)

    def add(self, user: str, name: str, run_s: float) -> None:
        """A job has ended that ran so long."""
        if not user:
            return
        for origin in _origins(user, name):
            self._run_s.setdefault(origin, deque(maxlen=KEPT)).append(run_s)
            self._known.pop(origin, None)

    def expected_run_s(self, user: str, name: str, executed_s: float) -> float:
        """Running time that it takes, on average, to see the end of one such job.

        One over the best Gittins index (paper page 490) of jobs like it: of the same user and
        name, else of the same user. Never less than the time it has run already, which is what LAS
        goes by; just that where no jobs like it are known, or none has run so long.
        """
        alike = self._alike(user, name)
        distance_s = math.inf if alike is None else alike.distance(executed_s)
        return max(executed_s, distance_s) if distance_s < math.inf else executed_s

    def steady_for_s(
        self, user: str, name: str, executed_s: float, least_s: float, most_s: float
    ) -> float:
        """For how many seconds of running ``expected_run_s`` does not leave the range from
        ``least_s`` up to ``most_s``, in which it is; it may be more."""
        alike = self._alike(user, name)
        steady_s = math.inf if alike is None else alike.steady_for(executed_s, least_s)
        return min(steady_s, most_s - executed_s)

    def is_judged_by(self, user: str, name: str, ended_name: str) -> bool:
        """Whether what is said of a job may change with an ``add`` for this user and another
        name."""
        return bool(user) and (name == ended_name or not self._knows((user, name)))

    def _alike(self, user: str, name: str) -> ServiceHistory | None:
        for origin in _origins(user, name):
            known = self._known.get(origin)
            if known is None and self._knows(origin):
                known = self._known[origin] = ServiceHistory(self._run_s[origin])
            if known is not None:
                return known
        return None

    def _knows(self, origin: Origin) -> bool:
        return len(self._run_s.get(origin, ())) >= self._least


def _origins(user: str, name: str) -> tuple[Origin, ...]:
    """From the closest to the least close."""
    return ((user, name), (user,)) if name else ((user,),)
