"""Selects the counter that shows a job's progress best, and expresses all of its runs in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slurm_tiresias.drill.counters import EPOCHS, REPORTS, SAID, Counters, Point
from slurm_tiresias.drill.observed import DrillRun, Save


def in_steps(runs: Sequence[DrillRun]) -> tuple[Sequence[DrillRun], str]:
    """Return the runs with their steps filled in, in one counter for all of them, and what these
    steps are: ``step``, or ``epoch`` if nothing else was seen."""
    name, counted = _best_counter(runs), runs
    if not name:
        name, counted = SAID, [_as_said(run) for run in runs]
    if not any(name in run.counters for run in counted):
        return runs, "step"
    scale = _Scale(name, counted)
    return [scale.run(run) for run in counted], "epoch" if name == EPOCHS else "step"


def _best_counter(runs: Sequence[DrillRun]) -> str:
    """Return the name of the counter to use: reports if all runs have them, or what moves most.

    A number that never moves, such as a total, is no counter. Epochs are used if nothing else
    moves.
    """
    moves: dict[str, int] = {}
    for run in runs:
        for name, counter in run.counters.items():
            moves[name] = moves.get(name, 0) + counter.moves
    if REPORTS in moves and all(REPORTS in run.counters for run in runs if run.counters):
        return REPORTS
    falls = {name for run in runs for name, counter in run.counters.items() if counter.falls}
    usable = {name: count for name, count in moves.items() if count and name not in falls}
    finer = {name: count for name, count in usable.items() if name != EPOCHS}
    return max(finer or usable or {"": 0}, key=lambda name: (finer or usable).get(name, 0))


def _as_said(run: DrillRun) -> DrillRun:
    """Return a run with the steps that it named when it resumed and when it saved."""
    saved = [save.point.step for save in run.saves if save.ended_s and save.point]
    claims = [point.step for point in run.claimed[:1]]
    # It has not resumed later than where it then saved.
    true = claims if claims and claims[0] <= min(saved, default=claims[0]) else []
    said = Counters()
    for step in [*true, *saved]:
        said.add((Point(SAID, step),), 0.0)
    if counter := said.by_name.get(SAID):
        counter.first = Point(SAID, min([*true, *saved]))
    saves = tuple(
        replace(save, point=save.point and Point(SAID, save.point.step)) for save in run.saves
    )
    claimed = tuple(Point(SAID, step) for step in claims)
    return replace(run, counters=said.by_name, claimed=claimed, saves=saves)


class _Scale:
    """One counter, as plain numbers that grow from the start of the job to its end."""

    def __init__(self, name: str, runs: Sequence[DrillRun]) -> None:
        self._name = name
        mine = [run.counters[name] for run in runs if name in run.counters]
        self._every = min((one.every for one in mine if one.every), default=None)
        if name in (REPORTS, SAID):
            self._every = 1 if name == REPORTS else None
        self._in_epochs = any(one.in_epochs for one in mine)
        seen = max(one.highest for one in mine) - min(one.lowest for one in mine)
        self._span = max((one.of for one in mine if one.of), default=seen + (self._every or 1))

    def run(self, run: DrillRun) -> DrillRun:
        counter = run.counters.get(self._name)
        if counter is None:
            return replace(run, saves=tuple(self._save(save, None, None) for save in run.saves))
        begins = counter.first_in_epoch if self._in_epochs else None
        first, last = self._value(begins or counter.first), self._value(counter.last)
        claimed = next(
            (at for one in run.claimed if self._agrees(at := self._at(one), first)), None
        )
        resumed = claimed
        if resumed is None and first is not None:
            resumed = first if self._name == REPORTS else max(0, first - (self._every or 1))
        return replace(
            run,
            resumed_step=resumed,
            claimed_step=claimed,
            counts_done=self._name == REPORTS and claimed is not None,
            first_step=first,
            first_step_s=counter.second_s if self._name == REPORTS else counter.first_s,
            last_step=last,
            every=self._every,
            saves=tuple(self._save(save, first, last) for save in run.saves),
        )

    def _value(self, point: Point) -> int | None:
        if not self._in_epochs:
            return point.step
        return None if point.epoch is None else point.epoch * self._span + point.step

    def _at(self, point: Point) -> int | None:
        """Return the value of a point of this counter, or of another one that may be the same."""
        levels = {EPOCHS, REPORTS}
        if point.counter != self._name and levels & {point.counter, self._name}:
            return None
        return self._value(point)

    def _agrees(self, claimed: int | None, first: int | None) -> bool:
        """Whether a run whose first visible step is this one may have resumed there."""
        if claimed is None or first is None or claimed > first:
            return False
        return self._every is None or first - claimed <= self._every

    def _save(self, save: Save, first: int | None, last: int | None) -> Save:
        step = self._at(save.point) if save.point else None
        if step is not None and save.point and save.point.counter != self._name:
            # Perhaps a number of something else.
            near = (self._every or 1) + 1
            if first is None or last is None or not first - near <= step <= last + near:
                step = None
        return replace(save, step=step)
