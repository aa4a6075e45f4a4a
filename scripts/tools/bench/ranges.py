"""How often the range of the time that is left holds the true end, on made-up trainings."""

from __future__ import annotations

import os
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, median

import click

from scripts.tools.bench.record import count_option, record
from scripts.tools.bench.trainings import CHANGING, STEADY, Steps, Training
from scripts.tools.document import markdown
from slurm_tiresias.job.record import Record
from slurm_tiresias.job.session import Session
from slurm_tiresias.model import Estimate, JobProgress, ProgressSource
from slurm_tiresias.progress.folder import LOOK_EVERY_S
from slurm_tiresias.progress.reported_run import ReportedRun

LOOKS = 50
"""The number of looks at each run, in equal intervals."""

SHIP_EVERY_S = 10.0
START_S = 1_700_000_000.0


@dataclass(frozen=True, slots=True)
class Look:
    """What is shown of a run at one moment, and how long it really takes."""

    at: float
    """The part of the run that is over."""
    left: Estimate | None
    true_s: float

    @property
    def holds(self) -> bool:
        return self.left is not None and self.left.least_s <= self.true_s <= self.left.most_s

    @property
    def width(self) -> float:
        assert self.left is not None
        return (self.left.most_s - self.left.least_s) / max(1.0, self.left.likely_s)


class _Sent:
    """A channel that keeps what is sent, and when."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.records: list[tuple[float, Record]] = []

    def last(self) -> Record | None:
        return None

    def send(self, record: Record) -> None:
        self.records.append((self.now_s, record))

    def close(self) -> None:
        return


def reported(steps: Steps) -> Sequence[tuple[float, Record]]:
    """Return the records that a run of these steps writes, each with the time since its start."""
    sent = _Sent()
    session = Session({}, lambda: START_S / 2 + sent.now_s, lambda: START_S + sent.now_s)
    session._channel, session._pid = sent, os.getpid()
    session.resumed(0)
    for number, end_s in enumerate(accumulate(steps), start=1):
        sent.now_s = end_s
        session.report(number, len(steps))
    return sent.records


def looks_at(steps: Steps, chance: random.Random, number: int = LOOKS) -> Sequence[Look]:
    """Return what is shown at these many moments of a run."""
    records = reported(steps)
    sent_s = [at_s for at_s, _ in records]
    end_s = sum(steps)
    shipped_at_s, read_at_s = chance.uniform(0, SHIP_EVERY_S), chance.uniform(0, LOOK_EVERY_S)
    run, taken, looks = ReportedRun(0), -1, []
    for look_s in (end_s * (k + 0.5) / number for k in range(number)):
        while read_at_s <= look_s:
            ticks = (read_at_s - shipped_at_s) // SHIP_EVERY_S
            at = bisect_right(sent_s, shipped_at_s + ticks * SHIP_EVERY_S) - 1
            if at > taken:
                taken = at
                run.take(ProgressSource.REPORTS, records[at][1], START_S + read_at_s, read_at_s)
            read_at_s += LOOK_EVERY_S
        left = _left(run.progress, START_S + look_s) if taken >= 0 else None
        looks.append(Look(look_s / end_s, left, end_s - look_s))
    return looks


def _left(told: JobProgress, now_s: float) -> Estimate | None:
    """Return the time that is left, as it is published."""
    left = told.remaining(told.step)
    if left is None:
        return None
    ago_s = now_s - told.reported_s
    return Estimate(*(max(0.0, s - ago_s) for s in (left.likely_s, left.least_s, left.most_s)))


def looks_of(training: Training, runs: int, first_seed: int = 0) -> Sequence[Look]:
    """Return the looks at so many runs of a kind of training."""
    found: list[Look] = []
    for seed in range(first_seed, first_seed + runs):
        chance = random.Random(f"{training.__name__}:{seed}")
        found += looks_at(training(chance), chance)
    return found


@dataclass(frozen=True, slots=True)
class Figures:
    """How good the ranges of several looks are; in shares of one."""

    held: float
    """How many of the ranges held the true end."""
    width: float
    """The median width of a range, relative to the likely value."""
    error: float
    """The median error of the likely value, relative to the true one."""
    shown: float
    """At how many of the looks there was a range."""

    @classmethod
    def of(cls, looks: Sequence[Look]) -> Figures:
        shown = [(one, one.left) for one in looks if one.left is not None]
        errors = (abs(left.likely_s - one.true_s) / max(1.0, one.true_s) for one, left in shown)
        return cls(
            fmean(one.holds for one, _ in shown),
            median(one.width for one, _ in shown),
            median(errors),
            len(shown) / len(looks),
        )


@click.command("ranges")
@count_option("runs", 100, 10000)
@click.option("--first-seed", default=0, show_default=True, type=click.IntRange(0))
def ranges(first_seed: int, runs: int) -> None:
    """How often the range of the time that is left holds the true end, on made-up trainings."""
    rows = []
    for name, training in (*STEADY.items(), *CHANGING.items()):
        looks = looks_of(training, runs, first_seed)
        figures = Figures.of(looks)
        quarters = (
            [one for one in looks if k <= 4 * one.at < k + 1 and one.left] for k in range(4)
        )
        rows.append(
            [
                name,
                *(f"{100 * share:.0f} %" for share in (figures.held, figures.width)),
                *(
                    f"{100 * fmean(one.holds for one in some):.0f}, "
                    f"{100 * median(one.width for one in some):.0f} %"
                    for some in quarters
                ),
                *(f"{100 * share:.0f} %" for share in (figures.error, figures.shown)),
            ]
        )
    header = (
        *("step times", "true end in the range", "its width, median"),
        *("in the first quarter", "second", "third", "last"),
        *("error of the likely value, median", "looks with a range"),
    )
    text = (
        f"{runs} made-up trainings of each kind, which last 100 s to four hours, through the "
        f"library for jobs. Reports are sent every {SHIP_EVERY_S:g} s and read every "
        f"{LOOK_EVERY_S:g} s; {LOOKS} looks at each training, in equal intervals. The width is "
        "that of the range over the likely value. A change of the pace cannot be foreseen; the "
        "looks before it are counted like all others."
    )
    record("Ranges of the time that is left", markdown(header, rows), text)
