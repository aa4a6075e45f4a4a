"""What preemptions of each program cost, learned from those that were measured.

A program is the set of a user's jobs with one name. Its estimate is the median of its latest
preemptions, shrunk towards the site's median while they are few. In the site's median each user
counts once, however many programs and preemptions that user has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median, median_low

from slurm_tiresias.model import USUAL_STAKE, ProgramCosts

KEPT = 24
"""How many of its latest preemptions count for each program."""

PRIOR = 3
"""The site's median has the weight of this many preemptions of the program."""

MOST_PROGRAMS = 10_000
"""Maximum number of programs; beyond it, those whose last preemption is oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One preemption of a program, in seconds; None is unknown."""

    restart_s: float | None
    unsaved_s: float
    save_every_s: float | None = None
    lost_all: bool = False
    saved: bool = False
    """Whether the job saved when asked to, and resumed from that save."""


class CostHistory:
    """The latest measured preemptions, by user and job name."""

    def __init__(self) -> None:
        self._programs: dict[tuple[str, str], deque[Measured]] = {}
        self._site: tuple[float, float] | None = None
        """The site's medians: restart and unsaved work."""
        self._known: dict[tuple[str, str], ProgramCosts] = {}
        """Cached estimates, valid until the next measured preemption."""

    def add(self, user: str, name: str, measured: Measured) -> None:
        """Add a preemption; they must come in order, the latest last."""
        program = user, name
        kept = self._programs.pop(program, None) or deque(maxlen=KEPT)
        kept.append(measured)
        self._programs[program] = kept
        if len(self._programs) > MOST_PROGRAMS:
            del self._programs[next(iter(self._programs))]
        self._site = None
        self._known.clear()

    def costs_of(self, user: str, name: str) -> ProgramCosts | None:
        """Return what a preemption of a program costs; None if none was ever measured."""
        if not self._programs:
            return None
        program = user, name
        found = self._known.get(program)
        if found is None:
            found = self._known[program] = self._costs(self._programs.get(program, ()))
        return found

    def _costs(self, measured: Sequence[Measured]) -> ProgramCosts:
        if self._site is None:
            self._site = self._site_medians()
        restarts_s = [one.restart_s for one in measured if one.restart_s is not None]
        saves_s = [one.save_every_s for one in measured if one.save_every_s is not None]
        in_a_row = 0
        for one in reversed(measured):
            if not one.lost_all:
                break
            in_a_row += 1
        return ProgramCosts(
            restart_s=_shrunk(restarts_s, self._site[0]),
            unsaved_s=_shrunk([one.unsaved_s for one in measured], self._site[1]),
            save_every_s=median(saves_s) if saves_s else None,
            measured=len(measured),
            saved_when_asked=mean(one.saved for one in measured) if measured else 0.0,
            lost_all_in_a_row=in_a_row,
        )

    def _site_medians(self) -> tuple[float, float]:
        restarts_s: dict[str, list[float]] = {}
        unsaved_s: dict[str, list[float]] = {}
        for (user, _), measured in self._programs.items():
            unsaved_s.setdefault(user, []).append(median(one.unsaved_s for one in measured))
            known_s = [one.restart_s for one in measured if one.restart_s is not None]
            if known_s:
                restarts_s.setdefault(user, []).append(median(known_s))
        restart_s = _median_of_medians(restarts_s.values()) if restarts_s else USUAL_STAKE.restart_s
        return restart_s, _median_of_medians(unsaved_s.values())


def _median_of_medians(users: Iterable[list[float]]) -> float:
    # The low median: of two users, one alone cannot raise it beyond what the other has.
    return median_low(median_low(programs) for programs in users)


def _shrunk(own_s: Sequence[float], site_s: float) -> float:
    if not own_s:
        return site_s
    return (len(own_s) * median(own_s) + PRIOR * site_s) / (len(own_s) + PRIOR)
