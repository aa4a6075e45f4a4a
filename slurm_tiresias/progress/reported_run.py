"""The state of a run's progress, from its reports so far."""

from __future__ import annotations

import math
from dataclasses import replace

from slurm_tiresias.job.record import MOST_BUSY_MIN, SAVING, Record
from slurm_tiresias.model import Estimate, JobProgress, ProgressSource
from slurm_tiresias.progress.pace import Pace

LONGEST_AGE_S = 120.0
"""A report older than this, by the clocks of node and controller, shows that the clocks differ."""

CLOCK_STEP_S = 60.0
"""If a report's time advances by this much more or less than the steady clock between the arrivals
of two reports, the clock of the node was set: reports arrive within some 20 seconds."""

LEAST_QUIET_S = 120.0
QUIET_GAPS = 3
QUIET_STEPS = 10
"""A run has stalled after this many times its longest gap between two steps so far, this many times
its usual step time, and this many seconds, whichever is longest."""

SAVES_WITHIN_S = 1800.0
"""A save may take so long, as on a file system that pauses, before it counts as a stall."""

_TIMES = (
    *("reported_s", "advanced_s", "saved_s", "first_step_s", "first_s"),
    *("asked_s", "saving_s", "answered_s", "heard_s", "busy_until_s"),
)
"""The fields of ``JobProgress`` that are points in time."""


class ReportedRun:
    """Collects the reports of one run.

    Times are by Slurm's clock, unless named otherwise.
    """

    progress: JobProgress
    """The latest report."""
    told_s: float
    """When its node last reported on it, even without changes, by a steady clock."""

    def __init__(self, restarts: int) -> None:
        self._restarts = restarts
        self.ranks: tuple[tuple[int, float], ...] = ()
        """The processes of its node, with their step times, as last reported."""
        self._pace = Pace(0, 0.0)
        self._source: ProgressSource | None = None
        self._step = -1
        self._total: int | None = None
        self._at_s = 0.0
        self._ahead_s: float | None = None
        """How far the times of the reports are ahead of the steady clock."""
        self._set_by_s = 0.0
        """How far the clock of the node was set forward during the run."""
        self._advanced_s = 0.0
        self._longest_gap_s = 0.0
        self._gaps = 0
        self._longest_step_s = 0.0
        self._busy_until_s = 0.0
        self._first_save: tuple[int, float] | None = None

    def told_again(self, steady_s: float, by_slurms_clock_s: float, *, lost: bool = False) -> None:
        """Record that its node reports no change; with ``lost``, that it has not reported for
        long."""
        if not lost:
            self.told_s = steady_s
        known = self.progress
        if known.lost is not lost:
            self.progress = replace(known, lost=lost)
        elif not lost and by_slurms_clock_s - known.advanced_s > LEAST_QUIET_S / 2:
            self.progress = replace(known, heard_s=by_slurms_clock_s)

    def take(self, source: ProgressSource, record: Record, now_s: float, steady_s: float) -> None:
        """Take in a report that has just arrived."""
        step = record.step
        self.ranks = record.ranks
        is_first = self._ahead_s is None
        self._follow_node_clock(record.at_s - steady_s)
        # A program prints several counts one after the other.
        another = source is ProgressSource.OUTPUT and record.total != self._total
        if source is not self._source or step < self._step or another:
            self._begin_anew(source, record)
        self._total = record.total
        age_s = now_s - record.at_s
        reported_s = record.at_s if 0 <= age_s <= LONGEST_AGE_S else now_s
        at_s = record.at_s - self._set_by_s
        if step > self._step:
            self._advance(record, at_s)
            self._advanced_s = reported_s
        self._follow_phase(record, at_s)
        self._pace.add(step, at_s)
        per_step = self._per_step(record)
        usual_s = QUIET_STEPS * per_step.likely_s if per_step else 0.0

        def by_slurms_clock(at_s: float | None) -> float | None:
            return None if at_s is None else min(reported_s, at_s + reported_s - record.at_s)

        answered_s = by_slurms_clock(record.answered_s)
        if is_first and reported_s != record.at_s:
            # It may be old, as after a restart of the controller, and so may the answer.
            answered_s = None
        self.told_s = steady_s
        # By position: ten thousand of them take a third less time than by name.
        self.progress = JobProgress(
            self._restarts,
            source,
            record.state,
            record.first_step,
            step,
            record.total,
            reported_s,
            self._advanced_s,
            max(LEAST_QUIET_S, QUIET_GAPS * self._longest_gap_s, usual_s),
            record.saved_step,
            by_slurms_clock(record.saved_s),
            record.resumed_step,
            per_step,
            False,
            by_slurms_clock(record.new_step_s),
            self._save_every_s(record),
            by_slurms_clock(record.first_s),
            by_slurms_clock(record.asked_s),
            by_slurms_clock(record.saving_s),
            record.listens,
            answered_s,
            math.inf if source is ProgressSource.COMMENT else now_s,
            self._longest_gap_s,
            self._gaps,
            self._busy_until_s + reported_s - at_s,
            record.phase,
            record.dumps,
            None,
            self._longest_step_s,
        )

    def _advance(self, record: Record, at_s: float) -> None:
        """Follow a new step; ``at_s`` is by the clock of its node as it was set at first."""
        if self._step > record.first_step and at_s > self._at_s:
            # Not the first new step, before which a program compiles and loads its data.
            gap_s = at_s - max(self._at_s, min(at_s, self._busy_until_s))
            self._longest_gap_s, self._gaps = max(self._longest_gap_s, gap_s), self._gaps + 1
            step_s = gap_s / (record.step - self._step)
            self._longest_step_s = max(self._longest_step_s, step_s)
        self._step, self._at_s = record.step, at_s

    def _follow_phase(self, record: Record, at_s: float) -> None:
        """Follow a phase without steps: one that is not announced any more has ended."""
        busy_until_s = self._announced_until_s(record)
        self._busy_until_s = min(self._busy_until_s, at_s)
        if busy_until_s is not None:
            self._busy_until_s = busy_until_s - self._set_by_s

    def clock_was_set(self, by_s: float) -> None:
        """Adjust the times to a clock that was set."""
        self._advanced_s += by_s
        known = self.progress
        times = {name: getattr(known, name) for name in _TIMES}
        moved = {name: at_s + by_s for name, at_s in times.items() if at_s is not None}
        self.progress = replace(known, **moved)

    def _announced_until_s(self, record: Record) -> float | None:
        """Return until when it makes no step at the latest, as it says; None if it does not."""
        if record.state == SAVING:
            return record.at_s + SAVES_WITHIN_S
        if record.busy_until_s is None:
            return None
        return min(record.busy_until_s, record.at_s + 60.0 * MOST_BUSY_MIN)

    def _follow_node_clock(self, ahead_s: float) -> None:
        by_s = 0.0 if self._ahead_s is None else ahead_s - self._ahead_s
        if abs(by_s) > CLOCK_STEP_S:
            self._set_by_s += by_s
        self._ahead_s = ahead_s

    def _save_every_s(self, record: Record) -> float | None:
        """Return the usual time between its saves: as observed, or else as the program
        announces."""
        return self._observed_save_every_s(record) or record.save_every_s or None

    def _observed_save_every_s(self, record: Record) -> float | None:
        if record.saved_s is None or not record.saves:
            return None
        if self._first_save is None or record.saves < self._first_save[0]:
            self._first_save = record.saves, record.saved_s
        saves, passed_s = record.saves - self._first_save[0], record.saved_s - self._first_save[1]
        return passed_s / saves if saves > 0 and passed_s > 0 else None

    def _per_step(self, record: Record) -> Estimate | None:
        return self._pace.of_next(record.total - record.step if record.total else 1)

    def _begin_anew(self, source: ProgressSource, record: Record) -> None:
        """Start over because a program restarted inside the run, or another source takes over."""
        self._source = source
        self._first_save = None
        self._step = -1
        self._longest_gap_s, self._gaps, self._longest_step_s = 0.0, 0, 0.0
        at_s = min(record.first_s, record.at_s) - self._set_by_s
        self._pace = Pace(record.first_step, at_s)
