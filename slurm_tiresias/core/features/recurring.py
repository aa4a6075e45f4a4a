"""How long earlier jobs of the same user and name ran."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from slurm_tiresias.core.features.gittins import ServiceHistory

KEPT = 60
"""Number of latest runs kept per user and per (user, name); older ones are dropped because programs
change."""

Origin = tuple[str, ...]
"""``(user,)`` or ``(user, name)``."""


class RunHistory:
    """Running times of ended jobs, in seconds, by user and by (user, name).

    In seconds, not GPU-seconds, so that a job can be judged by earlier jobs of other widths. The
    expectation for a job may change with each ``add``; one ended job is enough for it.
    """

    def __init__(self, ended: Iterable[tuple[str, str, float]] = ()) -> None:
        """``ended`` yields (user, name, seconds), the latest last."""
        self._run_s: Final[dict[Origin, deque[float]]] = {}
        self._known: Final[dict[Origin, ServiceHistory]] = {}
        for user, name, run_s in ended:
            self.add(user, name, run_s)

    def __eq__(self, other: object) -> bool:
        """Whether both know the same, in whatever order jobs ended."""
        return isinstance(other, RunHistory) and _sorted(self._run_s) == _sorted(other._run_s)

    __hash__ = None  # type: ignore[assignment]

    def add(self, user: str, name: str, run_s: float) -> None:
        """Add the total running time of a job that has ended."""
        if not user:
            return
        for origin in _origins(user, name):
            self._run_s.setdefault(origin, deque(maxlen=KEPT)).append(run_s)
            self._known.pop(origin, None)

    def remaining_s(self, user: str, name: str, executed_s: float) -> float | None:
        """Return the expected remaining seconds per completed job like this one.

        It is the reciprocal of the best Gittins index (paper page 490) over similar jobs: those of
        the same user and name, or else of the same user. A job that has outlived all of them is
        expected to need as much again. None if no similar jobs are known.
        """
        alike = self.alike(user, name)
        if alike is None:
            return None
        distance_s = alike.distance(executed_s)
        return distance_s if distance_s < math.inf else executed_s

    def steady_for_s(
        self, user: str, name: str, executed_s: float, least_s: float, most_s: float
    ) -> float:
        """Return for how many more seconds of running ``remaining_s`` is guaranteed to stay between
        ``least_s`` and ``most_s``; it must be known, and in that range now."""
        alike = self.alike(user, name)
        assert alike is not None
        steady_s = alike.steady_for(executed_s, least_s)
        return steady_s if steady_s < math.inf else most_s - executed_s

    def alike(self, user: str, name: str) -> ServiceHistory | None:
        """Return the running times of similar jobs; another object once one more is known."""
        for origin in _origins(user, name):
            known = self._known.get(origin)
            if known is None and origin in self._run_s:
                known = self._known[origin] = ServiceHistory(self._run_s[origin])
            if known is not None:
                return known
        return None


def _sorted(by_origin: Mapping[Origin, Iterable[float]]) -> Mapping[Origin, Sequence[float]]:
    return {origin: sorted(known) for origin, known in by_origin.items()}


def _origins(user: str, name: str) -> tuple[Origin, ...]:
    """Return the groups of similar jobs, the most similar first."""
    return ((user, name), (user,)) if name else ((user,),)
