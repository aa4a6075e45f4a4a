"""``scripts/dev chaos faults``: repeated faults of every kind in Slurm and its commands."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import click

from scripts.testbed.pair import (
    INTERVAL_S,
    TAKES_OVER_WITHIN_S,
    Pair,
    check_requeues,
    harm_at_random,
    wait_until_completed,
    work,
)
from scripts.testbed.real_cluster import short_folder, started_cluster
from scripts.testbed.slurm_faults import (
    COMMAND_TROUBLES,
    FAILOVER,
    SLURM_TROUBLES,
    Bed,
    Trouble,
    go_through,
)
from scripts.tools.chaos.outcome import fail, record
from scripts.tools.document import markdown

NODES, GPUS = 2, 4
PAIR_FAULTS = 10
AT_WORK_S = (0.5, 3.0)
"""Range of the fault-free time between two faults, in seconds."""


@dataclass
class Course:
    """What has happened so far."""

    well_after_s: dict[str, list[float | None]] = field(default_factory=dict)
    """By fault, from its end to the next good cycle; None if the controller kept its lease."""
    wrong: list[str] = field(default_factory=list)
    jobs: int = 0
    began_s: float = field(default_factory=time.monotonic)

    def survived(self, fault: str, seconds: float | None) -> None:
        self.well_after_s.setdefault(fault, []).append(seconds)
        click.echo(f"{sum(map(len, self.well_after_s.values()))}: {fault}", err=True)

    def told(self, held: str) -> str:
        """Return the faults in a table, and what held; exit if something was wrong."""
        if self.wrong:
            fail(self.wrong)
        rows = []
        for fault, times_s in sorted(self.well_after_s.items()):
            known_s = [seconds for seconds in times_s if seconds is not None]
            figures = [f"{each(known_s):.1f}" if known_s else "" for each in (median, max)]
            rows.append((fault, f"{len(times_s)}", *figures))
        count, took_s = sum(map(len, self.well_after_s.values())), time.monotonic() - self.began_s
        header = ("fault", "times", "well again after, median s", "at most, s")
        return (
            f"{count} faults of {len(rows)} kinds on a busy cluster of {NODES} nodes of {GPUS} "
            f"GPUs, {self.jobs} jobs, {took_s:.0f} s.\n\n{markdown(header, rows)}\n\n{held}"
        )


HELD = (
    "Every job has completed, none was restarted more often than the controller requeued it (and "
    "once for each fault in which Slurm itself requeues what runs on a node), no node list was "
    "left. While cycles failed nothing was written to Slurm, but where the writing itself went "
    "wrong. The interval is 0.5 s here: with another the pauses after failures are so many times "
    "as long, two minutes at most."
)
HELD_BY_A_PAIR = (
    "Every job has completed, every restart of a job was meant by one preemption, and no node list "
    "is left. All that both wrote was noted as scontrol was given it: never did two write by "
    "turns. A take-over counts from the fault to the end of the other's first cycle; two intervals "
    f"are {2 * INTERVAL_S:g} s."
)


@click.command()
@click.option("--of", "chosen", type=click.Choice(("commands", "daemons", "pair")), multiple=True)
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1, 1000))
@click.option("--seed", default=1, show_default=True, type=int)
def faults(chosen: Sequence[str], rounds: int, seed: int) -> None:
    """Let every kind of fault happen on a busy cluster, in another order each round.

    The kinds are faults of Slurm's commands, of its daemons and nodes, and of the active controller
    of a pair. If none is chosen, all are run.
    """
    campaigns = {
        "commands": ("Slurm's commands go wrong", _of_commands),
        "daemons": ("Slurm's daemons and nodes go wrong", _of_daemons),
        "pair": ("One of two controllers is killed or stopped", _of_a_pair),
    }
    for what in chosen or campaigns:
        title, run = campaigns[what]
        record(title, run(rounds, random.Random(seed)))


def _of_commands(rounds: int, chance: random.Random) -> str:
    course = Course()
    with _bed(chance) as bed:
        _run(bed, course, _in_rounds(COMMAND_TROUBLES, rounds, chance))
    return course.told(HELD)


def _of_daemons(rounds: int, chance: random.Random) -> str:
    course = Course()
    with _bed(chance) as bed:
        _run(bed, course, _in_rounds(SLURM_TROUBLES, rounds, chance))
    with _bed(chance, "--backup") as bed:
        _run(bed, course, [FAILOVER] * rounds)
    return course.told(HELD)


def _of_a_pair(rounds: int, chance: random.Random) -> str:
    """Run ten faults per round on a pair of controllers."""
    course = Course()
    with short_folder() as folder, started_cluster(folder, f"--nodes={NODES}") as cluster:
        two = Pair(cluster, Path(folder) / "pair", "one", "two")
        try:
            two.start("one")
            two.wait_until_acts("one")
            two.start("two")
            jobs = work(cluster)
            for number in range(PAIR_FAULTS * rounds):
                fault, seconds = harm_at_random(two, chance)
                course.survived(f"the active one is {fault}", seconds)
                jobs += work(cluster, long=number % 2, short=4)
                if seconds and seconds > TAKES_OVER_WITHIN_S:
                    course.wrong.append(f"took over only after {seconds:.1f} s")
            wait_until_completed(cluster, jobs)
            check_requeues(cluster, two, jobs)
            spans, terms = len(two.spans()), two.state().term
        finally:
            two.kill()
    course.jobs = len(jobs)
    if spans > terms:
        course.wrong.append(f"in {terms} terms the writer changed {spans} times")
    return course.told(HELD_BY_A_PAIR)


@contextmanager
def _bed(chance: random.Random, *options: str) -> Iterator[Bed]:
    shape = (f"--nodes={NODES}", f"--gpus={GPUS}", *options)
    with short_folder() as folder, started_cluster(folder, *shape) as cluster:
        bed = Bed(cluster, Path(folder) / "bed", chance.randrange(1000))
        bed.controller.start()
        try:
            yield bed
        finally:
            bed.controller.end()


def _in_rounds(kinds: Sequence[Trouble], rounds: int, chance: random.Random) -> Iterator[Trouble]:
    for _ in range(rounds):
        yield from chance.sample(kinds, len(kinds))


def _run(bed: Bed, course: Course, troubles: Iterable[Trouble]) -> None:
    by_slurm = 0
    for trouble in troubles:
        bed.keep_busy()
        time.sleep(bed.random.uniform(*AT_WORK_S))
        bed.keep_busy()
        by_slurm += trouble.slurm_requeues
        try:
            course.survived(trouble.name, go_through(bed, trouble))
        except AssertionError as error:
            course.wrong.append(f"{trouble.name}: {error}")
    try:
        bed.wait_until_done()
    except AssertionError as error:
        course.wrong.append(f"at the end: {error}")
    course.jobs += len(bed.jobs)
    course.wrong += [f"job {job} did not complete" for job in bed.lost()]
    course.wrong += [f"a node list is left: {row}" for row in bed.node_lists_left()]
    often = bed.requeued_too_often(by_slurm)
    course.wrong += [f"job {job} was restarted more often than asked" for job in often]
