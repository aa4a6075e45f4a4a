"""``scripts/dev chaos faults``: repeated faults of every kind in Slurm and its commands."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

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
    Survived,
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

    survived: dict[str, list[Survived]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    jobs: int = 0
    began_s: float = field(default_factory=time.monotonic)

    @property
    def count(self) -> int:
        return sum(map(len, self.survived.values()))


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
    return _told(course)


def _of_daemons(rounds: int, chance: random.Random) -> str:
    course = Course()
    with _bed(chance) as bed:
        _run(bed, course, _in_rounds(SLURM_TROUBLES, rounds, chance))
    with _bed(chance, "--backup") as bed:
        _run(bed, course, [FAILOVER] * rounds)
    return _told(course)


def _of_a_pair(rounds: int, chance: random.Random) -> str:
    """Run ten faults per round on a pair of controllers."""
    took_s: dict[str, list[float | None]] = {}
    with short_folder() as folder, started_cluster(folder, f"--nodes={NODES}") as cluster:
        two = Pair(cluster, Path(folder) / "pair", "one", "two")
        try:
            two.start("one")
            two.wait_until_acts("one")
            two.start("two")
            jobs = work(cluster)
            for number in range(PAIR_FAULTS * rounds):
                fault, seconds = harm_at_random(two, chance)
                took_s.setdefault(fault, []).append(seconds)
                jobs += work(cluster, long=number % 2, short=4)
                click.echo(f"{number + 1}: {fault}", err=True)
            wait_until_completed(cluster, jobs)
            check_requeues(cluster, two, jobs)
            spans, terms = len(two.spans()), two.state().term
        finally:
            two.kill()
    late_s = [s for each in took_s.values() for s in each if s and s > TAKES_OVER_WITHIN_S]
    if late_s:
        fail([f"took over after {s:.1f} s, not within {TAKES_OVER_WITHIN_S:g} s" for s in late_s])
    if spans > terms:
        fail([f"the writer changed {spans} times in {terms} terms: two have acted at once"])
    return _told_of_pair(took_s, jobs, spans, terms)


def _told_of_pair(
    took_s: Mapping[str, Sequence[float | None]], jobs: Sequence[str], spans: int, terms: int
) -> str:
    rows = []
    for fault, seconds in sorted(took_s.items()):
        known = [one for one in seconds if one is not None]
        longest = f"{max(known):.1f}" if known else "kept its lease"
        median = f"{statistics.median(known):.1f}" if known else ""
        rows.append((fault, f"{len(seconds)}", median, longest))
    count = sum(map(len, took_s.values()))
    return (
        f"Of two controllers with an interval of {INTERVAL_S:g} s the active one was harmed "
        f"{count} times, while {len(jobs)} jobs came and went. All have completed, every restart "
        "of a job was meant by one preemption, and no node list is left. All that both wrote was "
        f"noted as scontrol was given it: in {terms} terms the writer changed {spans - 1} "
        "times, so that never did two write by turns. A take-over counts from the fault to the end "
        f"of the other's first cycle; two intervals are {2 * INTERVAL_S:g} s.\n\n"
        + markdown(("the active one is", "times", "taken over after, median s", "at most, s"), rows)
    )


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
            course.survived.setdefault(trouble.name, []).append(go_through(bed, trouble))
        except AssertionError as error:
            course.wrong.append(f"{trouble.name}: {error}")
        click.echo(f"{course.count}: {trouble.name}", err=True)
    try:
        bed.wait_until_done()
    except AssertionError as error:
        course.wrong.append(f"at the end: {error}")
    course.jobs += len(bed.jobs)
    course.wrong += [f"job {job} did not complete" for job in bed.lost()]
    course.wrong += [f"a node list is left: {row}" for row in bed.node_lists_left()]
    often = bed.requeued_too_often(by_slurm)
    course.wrong += [f"job {job} was restarted more often than asked" for job in often]


def _told(course: Course) -> str:
    if course.wrong:
        fail(course.wrong)
    rows = [_row(name, of) for name, of in sorted(course.survived.items())]
    all_of = [one for of in course.survived.values() for one in of]
    longest_s = max(one.lasted_s + one.well_after_s for one in all_of)
    return (
        f"{course.count} faults of {len(rows)} kinds on a busy cluster of {NODES} nodes of {GPUS} "
        f"GPUs, {course.jobs} jobs, {time.monotonic() - course.began_s:.0f} s. All were survived: "
        "every job has completed, none was restarted more often than the controller requeued it "
        "(and once for each fault in which Slurm itself requeues what runs on a node), no node "
        "list was left. "
        "While cycles failed nothing was written to Slurm, but where the writing itself went "
        f"wrong. The longest time from a fault to the next good cycle was {longest_s:.1f} s. The "
        "interval is 0.5 s here: with another the "
        "pauses after failures are so many times as long, two minutes at most.\n\n"
        + markdown(
            ("fault", "times", "lasted, s", "then well again after, median s", "at most, s"), rows
        )
    )


def _row(name: str, of: Sequence[Survived]) -> tuple[str, ...]:
    return (
        name,
        f"{len(of)}",
        f"{statistics.median(one.lasted_s for one in of):.1f}",
        f"{statistics.median(one.well_after_s for one in of):.1f}",
        f"{max(one.well_after_s for one in of):.1f}",
    )
