"""What lines of output, and reports, show about the steps of a run.

A program may count several things: steps, epochs, steps within an epoch. Each is a counter of its
own, and only numbers of the same counter are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from slurm_tiresias.progress.output_lines import Level, counts_in

REPORTS = "reports"
"""The counter of the job library's reports."""
EPOCHS = "epoch"
SAID = "said"
"""The counter of a job that shows no steps, but says where it saves and where it resumes."""
MOST_STEP = 10**12
MOST_COUNTERS = 50
FALLS = 3
"""A counter that falls by this many steps, and to less than half, begins anew."""

_NUMBER = r"[\s:=#\[(\"']{0,4}(\d{1,3}(?:,\d{3})+|\d{1,12})(?!\d|\.\d)(?:\s?/\s?(\d{1,12}))?"
_STEP = re.compile(r"(?i)\b(?:global[_ ]?)?(step|iter(?:ation)?|batch|updates?)(s?)\b" + _NUMBER)
_EPOCH = re.compile(r"(?i)\b(epoch)(s?)\b" + _NUMBER)
_ELSEWHERE = re.compile(
    r"(?i)\b(?:per|total|num|max|every|each|warm-?up|accumulation|logging|sanity|val\w*|eval\w*"
    r"|tests?|testing|predict\w*)(?:\s\w+)?\W{0,3}$"
)
"""The words before a number that is a total, or a count of another loop."""
_IN_A_NAME = re.compile(r"(?i)(?:checkpoint|ckpt|step|iter|model)[-_=]?(\d{1,12})(?!\d)")


@dataclass(frozen=True, slots=True)
class Point:
    """A step or an epoch that was named. ``of``: how many of them an epoch has, if known."""

    counter: str
    step: int
    epoch: int | None = None
    of: int | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Sorts the points of a counter."""
        return (-1 if self.epoch is None else self.epoch), self.step


def points_in(text: str) -> tuple[Point, ...]:
    """Return the points that a line names: of its steps, then of its epochs."""
    epoch, rest = None, text
    if found := _counted(_EPOCH, text):
        epoch = _value(found[3])
        rest = f"{text[: found.start()]} {text[found.end() :].lstrip(' ]):,')}"
    epochs = () if epoch is None else (Point(EPOCHS, epoch),)
    if found := _counted(_STEP, rest):
        of = int(found[4]) if found[4] else None
        return Point(found[1].lower(), _value(found[3]), epoch, of), *epochs
    for count in counts_in(rest.encode()):
        # A bar is drawn at 0 before the program has set it to where it resumes.
        if count.level is Level.STEP and not (count.bar and count.step == 0):
            return Point(f"bar {count.words}", count.step, epoch, count.total), *epochs
    return epochs


def point_of_save(text: str, job_id: str) -> Point | None:
    """Return the point that a line about a checkpoint names, perhaps in the name of a file."""
    if points := points_in(text):
        return points[0]
    numbers = [one for one in _IN_A_NAME.findall(text) if one != job_id]
    return Point("", int(numbers[-1])) if numbers else None


def _counted(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    for found in pattern.finditer(text):
        is_total = found[2] and not found[4]
        if not is_total and not _ELSEWHERE.search(text[: found.start()]):
            return found
    return None


def _value(digits: str) -> int:
    return int(digits.replace(",", ""))


@dataclass(slots=True)
class Counter:
    """One counter of a run: where it was seen first and last, and how it moves."""

    first: Point
    first_s: float
    last: Point = field(init=False)
    first_in_epoch: Point | None = None
    """The first point whose epoch was known."""
    moves: int = 0
    every: int | None = None
    """The smallest advance between two points of an epoch."""
    lowest: int = MOST_STEP
    highest: int = 0
    of: int | None = None
    in_epochs: bool = False
    """Whether its steps begin anew with each epoch."""
    falls: bool = False
    """Whether they begin anew, without an epoch that tells which ones are meant."""
    second_s: float | None = None
    _before: Point = field(init=False)

    def __post_init__(self) -> None:
        self.last = self._before = self.first
        self._measure(self.first)

    def add(self, point: Point, at_s: float) -> None:
        """Take in the next point."""
        before = self._before
        if point.order == before.order:
            return
        self.moves += 1
        self.second_s = self.second_s or at_s
        if point.epoch == before.epoch:
            if point.step > before.step:
                self.every = min(self.every or MOST_STEP, point.step - before.step)
            elif before.step - point.step >= FALLS and point.step * 2 < before.step:
                self.falls = point.counter != REPORTS
        elif point.order > before.order and point.step < before.step:
            self.in_epochs = before.epoch is not None
        self._before = point
        self.last = max(self.last, point, key=lambda one: one.order)
        self._measure(point)

    def _measure(self, point: Point) -> None:
        self.lowest, self.highest = min(self.lowest, point.step), max(self.highest, point.step)
        if point.epoch is None:
            return
        self.first_in_epoch = self.first_in_epoch or point
        if point.of:
            self.of, self.in_epochs = point.of, True


class Counters:
    """All counters of a run, and the point at which it said that it resumed."""

    def __init__(self) -> None:
        self.by_name: dict[str, Counter] = {}
        self.claimed: list[Point] = []
        self._epoch: int | None = None

    @property
    def moves(self) -> int:
        """How often the counter that moves most has moved."""
        return max((one.moves for one in self.by_name.values()), default=0)

    def add(self, points: Iterable[Point], at_s: float) -> None:
        """Take in the points of one line, or of one report."""
        for point in points:
            if point.counter == EPOCHS:
                self._epoch = point.step
            elif point.epoch is None and point.counter != REPORTS:
                point = replace(point, epoch=self._epoch)
            known = self.by_name.get(point.counter)
            if known is not None:
                known.add(point, at_s)
            elif len(self.by_name) < MOST_COUNTERS:
                self.by_name[point.counter] = Counter(point, at_s)
