"""How long ended jobs like a job ran: jobs of a similar time limit, the same user and name."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from slurm_tiresias.core.features.gittins import ServiceHistory

KEPT: Final = 60
"""Number of latest runs kept for each group; older ones are dropped because programs change."""

ENOUGH: Final = 10
"""A group of fewer runs is completed to so many by typical ones of the next larger group. There is
no estimate before so many jobs have ended."""

GROWTH: Final = 1.25
"""Beyond that many, estimates change when a group has grown by this factor, not at each end: every
change may have all waiting jobs ranked again, and may move each of them."""

LEAST_SHARE: Final = 0.5
"""An estimate is the time to the end of at least this share of those that ran as long. With less,
it jumps whenever one run is passed, and few runs decide on it."""

Group = tuple[object, ...]
"""Jobs that are alike: ``(limit, user, name)`` or its first entries, down to ``()`` for all jobs.
The limit is rounded to a power of two."""


class RunHistory:
    """Running times of ended jobs, in seconds, by groups of similar jobs.

    In seconds, not GPU-seconds, so that a job can be judged by earlier jobs of other widths.
    """

    def __init__(self, ended: Iterable[tuple[str, str, float | None, float]] = ()) -> None:
        """``ended`` yields (user, name, time limit, seconds), the latest last."""
        self._groups: Final[dict[Group, _Runs]] = {}
        self._known: Final[dict[Group, ServiceHistory | None]] = {}
        """The completed groups, as far as they have been asked for since the last change."""
        for user, name, limit_s, run_s in ended:
            self.add(user, name, limit_s, run_s)

    def __eq__(self, other: object) -> bool:
        """Whether both give the same estimates."""
        return isinstance(other, RunHistory) and self._counted == other._counted

    __hash__ = None  # type: ignore[assignment]

    @property
    def _counted(self) -> Mapping[Group, Sequence[float]]:
        return {group: runs.counted for group, runs in self._groups.items() if runs.counted}

    def add(self, user: str, name: str, limit_s: float | None, run_s: float) -> Collection[str]:
        """Add the total running time of a job that has ended; a job that never ran is ignored.

        Return the users whose estimates have changed, as far as any were asked for.
        """
        if run_s <= 0.0:
            return ()
        grown = {
            group for group in groups_of(user, name, limit_s) if self._runs_of(group).add(run_s)
        }
        changed = (
            [group for group in self._known if self._depends_on(group, grown)] if grown else ()
        )
        for group in changed:
            del self._known[group]
        return {str(group[1]) if len(group) > 1 else "" for group in changed}

    def _depends_on(self, group: Group, grown: Collection[Group]) -> bool:
        """Whether one of these groups is the group, or one by which it is completed."""
        while group not in grown:
            if not group or len(self._of(group)) >= ENOUGH:
                return False
            group = group[:-1]
        return True

    def _runs_of(self, group: Group) -> _Runs:
        runs = self._groups.get(group)
        if runs is None:
            runs = self._groups[group] = _Runs()
        return runs

    def remaining_s(
        self, user: str, name: str, limit_s: float | None, executed_s: float
    ) -> float | None:
        """Return the expected remaining seconds per completed job like this one.

        It is the reciprocal of a Gittins index (paper page 490) over similar jobs: the best of
        those whose quantum ends ``LEAST_SHARE`` of them. A job that has outlived all of them is
        expected to need as much again. None until enough jobs have ended.
        """
        alike = self.alike(user, name, limit_s)
        if alike is None:
            return None
        distance_s = alike.distance(executed_s, LEAST_SHARE)
        return distance_s if distance_s < math.inf else executed_s

    def steady_for_s(
        self,
        user: str,
        name: str,
        limit_s: float | None,
        executed_s: float,
        least_s: float,
        most_s: float,
    ) -> float:
        """Return for how many more seconds of running ``remaining_s`` is guaranteed to stay between
        ``least_s`` and ``most_s``; it must be known, and in that range now."""
        alike = self.alike(user, name, limit_s)
        assert alike is not None
        steady_s = alike.steady_for(executed_s, least_s, most_s, LEAST_SHARE)
        return steady_s if steady_s < math.inf else most_s - executed_s

    def alike(self, user: str, name: str, limit_s: float | None) -> ServiceHistory | None:
        """Return the running times of similar jobs; another object once they have changed."""
        return self._completed(next(groups_of(user, name, limit_s)))

    def _completed(self, group: Group) -> ServiceHistory | None:
        if group in self._known:
            return self._known[group]
        own = self._of(group)
        completed = None
        if len(own) >= ENOUGH:
            completed = ServiceHistory(own)
        elif group:
            completed = self._completed(group[:-1])
            # If they are all that there are in the larger group, they count there already.
            if completed and 0 < len(own) < len(self._of(group[:-1])):
                completed = ServiceHistory([*own, *completed.typical(ENOUGH - len(own))])
        self._known[group] = completed
        return completed

    def _of(self, group: Group) -> Sequence[float]:
        runs = self._groups.get(group)
        return runs.counted if runs else ()


class _Runs:
    """The running times of one group, in seconds."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=KEPT)
        self._ended = 0
        self._counted_at = 0
        self.counted: Sequence[float] = ()
        """Those on which estimates are based, in ascending order."""

    def add(self, run_s: float) -> bool:
        """Add a run; return whether it counts now, with all others since the last that did."""
        self._latest.append(run_s)
        self._ended += 1
        waits_for = min((GROWTH - 1.0) * self._counted_at, KEPT / 2)
        if self._ended > ENOUGH and self._ended - self._counted_at < waits_for:
            return False
        self._counted_at = self._ended
        self.counted = sorted(self._latest)
        return True


def groups_of(user: str, name: str, limit_s: float | None) -> Iterator[Group]:
    """Yield the groups of a job, the smallest first."""
    limit = round(math.log2(limit_s)) if limit_s else 0
    if user:
        if name:
            yield limit, user, name
        yield limit, user
    yield (limit,)
    yield ()
