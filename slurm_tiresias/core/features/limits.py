"""The expected running time of a job from its time limit and its user's earlier limits."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from slurm_tiresias.core.features.gittins import ServiceHistory
from slurm_tiresias.core.features.recurring import KEPT

LEAST_ENDED: Final = 10
"""Number of a user's jobs that must have ended before the user's limits count."""

LEAST_EXPLAINED: Final = 0.2
"""The correlation that makes a user's limits credible: the squared correlation of the logarithms of
limits and running times must be at least this. Limits that are all equal, or random, explain
nothing."""


class LimitHistory:
    """Time limits and running times of ended jobs by user, in seconds."""

    def __init__(self, ended: Iterable[tuple[str, float | None, float]] = ()) -> None:
        """``ended`` yields (user, limit, running time), the latest last."""
        self._ended: Final[dict[str, deque[tuple[float, float]]]] = {}
        self._used: Final[dict[str, ServiceHistory | None]] = {}
        """By user, the fractions of their limits that jobs used; None if the limits explain
        nothing."""
        for user, limit_s, run_s in ended:
            self.add(user, limit_s, run_s)

    def __eq__(self, other: object) -> bool:
        """Whether both know the same, in whatever order jobs ended."""
        return isinstance(other, LimitHistory) and self._known == other._known

    __hash__ = None  # type: ignore[assignment]

    @property
    def _known(self) -> Mapping[str, Sequence[tuple[float, float]]]:
        return {user: sorted(ended) for user, ended in self._ended.items()}

    def add(self, user: str, limit_s: float | None, run_s: float) -> None:
        """Add a job that has ended; a job without a limit, or that never ran, is ignored."""
        if limit_s and run_s > 0.0:
            self._ended.setdefault(user, deque(maxlen=KEPT)).append((limit_s, run_s))
            self._used.pop(user, None)

    def remaining_s(self, user: str, limit_s: float | None, executed_s: float) -> float | None:
        """Return the expected remaining seconds per completed job; None without an estimate.

        The reciprocal of the best Gittins index, as in ``RunHistory.remaining_s``.
        """
        used = self.parts_used(user)
        if used is None or not limit_s:
            return None
        distance = used.distance(executed_s / limit_s)
        return distance * limit_s if distance < math.inf else executed_s

    def steady_for_s(
        self, user: str, limit_s: float | None, executed_s: float, least_s: float, most_s: float
    ) -> float:
        """Return for how many more seconds of running ``remaining_s`` is guaranteed to stay between
        ``least_s`` and ``most_s``; it must be known, and in that range now."""
        used = self.parts_used(user)
        assert used is not None and limit_s
        steady = used.steady_for(executed_s / limit_s, least_s / limit_s)
        return steady * limit_s if steady < math.inf else most_s - executed_s

    def explained(self, user: str) -> float | None:
        """Return the share of the variance in running time that the user's limits explain; None
        until enough jobs have ended."""
        ended = self._ended.get(user, ())
        if len(ended) < LEAST_ENDED:
            return None
        limits, runs = np.log(np.array(ended)).T
        if np.ptp(limits) == 0.0 or np.ptp(runs) == 0.0:
            return 0.0
        correlation = float(np.corrcoef(limits, runs)[0, 1])
        return max(0.0, correlation) ** 2

    def parts_used(self, user: str) -> ServiceHistory | None:
        """Return the shares of their limits that jobs used; another object once one more is known.
        None if the limits explain nothing."""
        if user not in self._used:
            explained = self.explained(user)
            believed = explained is not None and explained >= LEAST_EXPLAINED
            parts = (run_s / limit_s for limit_s, run_s in self._ended.get(user, ()))
            self._used[user] = ServiceHistory(parts) if believed else None
        return self._used[user]
