"""Which runs are found to hang: no healthy one, and hung ones soon.

The jobs are made up here. What nodes tell of them goes through the code that follows reports, and
what is judged is judged by the feature.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from statistics import fmean
from typing import Any

import pytest

from scripts.testbed.job_views import view
from slurm_tiresias.config import parse
from slurm_tiresias.core.features import hung
from slurm_tiresias.core.features.hung import FALSE, HUNG, Hung
from slurm_tiresias.core.features.idle_gpus import MOST_IN_A_ROW
from slurm_tiresias.core.features.news import Happened, Remember
from slurm_tiresias.core.job import Job
from slurm_tiresias.job.record import RUNNING, SAVING, Record
from slurm_tiresias.model import (
    ANY_TYPE,
    Amount,
    JobAccount,
    JobState,
    Lane,
    NodeUse,
    ProgramHabit,
    ProgressSource,
    Reason,
    RecentVictims,
    Request,
)
from slurm_tiresias.progress import reported_run
from slurm_tiresias.progress.reported_run import ReportedRun

REPORTS, OUTPUT, COMMENT = ProgressSource.REPORTS, ProgressSource.OUTPUT, ProgressSource.COMMENT
TICK_S, HEARTBEAT_S = 10.0, 30.0
EACH = 100
GPUS = 8


@dataclass(frozen=True)
class Life:
    """One run as it really goes: when each step is done, and what else its program says."""

    step_s: Sequence[float]
    """The time of each step, from the start of the program."""
    source: ProgressSource = REPORTS
    said: Sequence[tuple[float, str, float | None]] = ()
    """Saves that begin (a state), and phases that are announced (until when)."""
    gpu_works: Callable[[float], bool] | None = None
    """Whether its GPUs work at a time; None if they are not sampled."""
    silent: Sequence[tuple[float, float]] = ()
    """When its node tells nothing."""
    hangs_after: float = math.inf
    busy_at_rest: bool = False
    """Whether its GPUs are busy when they do no work."""
    began_s: float = 0.0


def steps(times: Iterator[float] | Sequence[float]) -> list[float]:
    return list(accumulate(times))


def lognormal(chance: random.Random, typical_s: float, spread: float) -> float:
    return typical_s * math.exp(chance.gauss(0.0, spread))


# Ten kinds of healthy jobs


def steady(chance: random.Random) -> Life:
    typical_s = chance.uniform(0.2, 3.0)
    return Life(steps([lognormal(chance, typical_s, 0.3) for _ in range(int(600 / typical_s))]))


def slow(chance: random.Random) -> Life:
    typical_s = chance.uniform(20.0, 120.0)
    return Life(steps([lognormal(chance, typical_s, 0.5) for _ in range(40)]))


def evaluating(chance: random.Random) -> Life:
    """An evaluation after each epoch takes as long as twenty steps, or some minutes."""
    typical_s, epoch = chance.uniform(1.0, 30.0), chance.randrange(20, 40)
    evaluation_s = max(20 * typical_s, chance.uniform(0.0, 500.0))
    times = [
        lognormal(chance, typical_s, 0.2) + (evaluation_s if step % epoch == 0 else 0.0)
        for step in range(1, min(90, int(4000 / typical_s)))
    ]
    return Life(steps(times))


def compiling(chance: random.Random) -> Life:
    """Ten minutes before the first step, and once more after the second."""
    typical_s = chance.uniform(0.5, 10.0)
    again_s = chance.choice((0.0, 800.0))
    first = [chance.uniform(500.0, 700.0), typical_s, typical_s + again_s]
    later = [lognormal(chance, typical_s, 0.3) for _ in range(int(500 / typical_s))]
    return Life(steps(first + later))


def stuttering(chance: random.Random) -> Life:
    """Its data arrives in bursts: a step may take eight times as long as usual."""
    typical_s = chance.uniform(2.0, 25.0)
    times = [typical_s * min(8.0, chance.paretovariate(1.5)) for _ in range(int(500 / typical_s))]
    return Life(steps(times))


def saving(chance: random.Random) -> Life:
    """Saves every fifty steps; the file system pauses during some saves."""
    typical_s, said, times = chance.uniform(1.0, 5.0), [], []
    at_s = 0.0
    for step in range(1, int(700 / typical_s)):
        took_s = lognormal(chance, typical_s, 0.2)
        if step % 50 == 0:
            said.append((at_s, SAVING, None))
            saved_s = chance.choice((5.0, 20.0, 900.0))
            said.append((at_s + saved_s, RUNNING, None))
            took_s += saved_s
        at_s += took_s
        times.append(at_s)
    return Life(times, said=said)


def hourly(chance: random.Random) -> Life:
    """Prints a line an hour."""
    return Life(steps([lognormal(chance, 3600.0, 0.1) for _ in range(5)]), source=OUTPUT)


def taciturn(chance: random.Random) -> Life:
    """Prints nothing for an hour between two phases of one bar."""
    typical_s = chance.uniform(1.0, 10.0)
    times = [lognormal(chance, typical_s, 0.3) for _ in range(int(500 / typical_s))]
    times[len(times) // 2] += chance.uniform(3000.0, 3900.0)
    return Life(steps(times), source=OUTPUT)


def announcing(chance: random.Random) -> Life:
    """Announces long phases, by reports or in its comment."""
    typical_s, said, at_s, times = chance.uniform(1.0, 10.0), [], 0.0, []
    phase = int(300 / typical_s)
    for step in range(1, 3 * phase):
        took_s = lognormal(chance, typical_s, 0.2)
        if step % phase == 0:
            lasts_s = chance.uniform(1200.0, 3000.0)
            said.append((at_s, RUNNING, at_s + 1.2 * lasts_s))
            took_s += lasts_s
        at_s += took_s
        times.append(at_s)
    return Life(times, source=chance.choice((REPORTS, COMMENT)), said=said)


def scoring(chance: random.Random) -> Life:
    """Its GPUs are sampled, and idle while the CPUs score each epoch for long; or they evaluate."""
    typical_s, epoch = chance.uniform(1.0, 20.0), chance.randrange(20, 40)
    on_gpus = chance.random() < 0.5
    # Without work of the GPUs, no more than twenty steps.
    lasts = 200 if on_gpus else 20
    phases: list[tuple[float, float]] = []
    at_s, times = 0.0, []
    for step in range(1, min(90, int(2000 / typical_s))):
        took_s = lognormal(chance, typical_s, 0.2)
        if step % epoch == 0:
            phases.append((at_s, at_s + lasts * typical_s))
            took_s += lasts * typical_s
        at_s += took_s
        times.append(at_s)
    works = (lambda _s: True) if on_gpus else (lambda s: not any(a < s < b for a, b in phases))
    return Life(times, gpu_works=works)


KINDS: Mapping[str, Callable[[random.Random], Life]] = {
    each.__name__: each
    for each in (
        *(steady, slow, evaluating, compiling, stuttering),
        *(saving, hourly, taciturn, announcing, scoring),
    )
}


# The site


@dataclass
class Seen:
    """A run as its node and the controller see it."""

    life: Life
    job: Job
    run: ReportedRun = field(default_factory=lambda: ReportedRun(0))
    last: Record | None = None
    sent_s: float = -math.inf
    heard_s: float = -math.inf
    done: int = 0

    def record(self, now_s: float, chance: random.Random) -> Record | None:
        """The last record that its program has written."""
        life, at_s = self.life, now_s - self.life.began_s
        while self.done < len(life.step_s) and life.step_s[self.done] <= at_s:
            self.done += 1
        last_s = life.step_s[self.done - 1] if self.done else 0.0
        state, until_s = RUNNING, None
        for said_s, said, busy_until_s in life.said:
            if last_s <= said_s <= at_s:
                last_s, state, until_s = said_s, said, busy_until_s
        if life.source is OUTPUT and self.done < 3:
            return None
        began_s, total = life.began_s, len(life.step_s) + 10
        first_s = began_s + life.step_s[0] if self.done else None
        known = self.last
        if life.source is COMMENT and known is not None:
            # Comments are updated seldom, and when a phase is announced.
            # At last slurmctld is slow.
            slowness = chance.uniform(0.8, 1.2) * (4.0 if at_s > 4000.0 else 1.0)
            wait_s = slowness * max(60.0, 0.35 * (known.at_s - known.first_s))
            if until_s is None and began_s + last_s < known.at_s + wait_s:
                return known
        return Record(
            step=self.done,
            total=total,
            at_s=began_s + last_s,
            first_step=0,
            first_s=began_s,
            state=state,
            new_step_s=first_s,
            busy_until_s=None if until_s is None else began_s + until_s,
        )

    def tell(self, now_s: float, chance: random.Random) -> None:
        """Let its node tell the controller, if something is new or a heartbeat is due."""
        at_s = now_s - self.life.began_s
        if any(since_s <= at_s < until_s for since_s, until_s in self.life.silent):
            return
        record = self.record(now_s - chance.uniform(0.0, 5.0), chance)
        if record is None:
            return
        if record != self.last:
            self.run.take(self.life.source, record, now_s, now_s)
            self.last, self.heard_s = record, now_s
        elif now_s - self.heard_s >= HEARTBEAT_S or self.life.source is COMMENT:
            self.run.told_again(now_s, now_s)
            self.heard_s = now_s
        self.job.progress = self.run.progress


class Site:
    """Runs that are judged together."""

    def __init__(
        self,
        lives: Sequence[Life],
        seed: int,
        habits: Sequence[ProgramHabit | None] = (),
        action: str = "flag",
    ) -> None:
        self.chance = random.Random(seed)
        self.hung = Hung(parse({"failures": {"hung": action}}, "tiresias.toml"))
        self.seen = [Seen(life, _job(number)) for number, life in enumerate(lives)]
        for one, habit in zip(self.seen, habits, strict=False):
            one.job.habit = habit
        self.tick_s = 3 * TICK_S if lives[0].source is OUTPUT else TICK_S
        self.found: dict[int, float] = {}
        """When each run was first found to hang."""
        self.events: list[Happened] = []
        self.low_since_s: dict[int, float] = {}

    def run_to_the_end(self, extra_s: float = 0.0) -> None:
        ends_s = max(one.life.began_s + one.life.step_s[-1] for one in self.seen) + extra_s
        now_s = 0.0
        while now_s <= ends_s:
            now_s += self.tick_s
            self.tick(now_s)

    def tick(self, now_s: float) -> None:
        jobs, samples = [], {}
        for number, one in enumerate(self.seen):
            at_s, life = now_s - one.life.began_s, one.life
            if at_s < 0 or (at_s > life.step_s[-1] and math.isinf(life.hangs_after)):
                continue
            one.tell(now_s, self.chance)
            if one.job.progress is not None:
                jobs.append(one.job)
                if one.life.gpu_works:
                    samples[number, 0] = {"n1": self._use(number, one.life, now_s)}
        self.hung.hear(jobs, samples, now_s, RecentVictims())
        for news in self.hung.take_news():
            number = int(news.job_id)
            match news:
                case Happened(_, kind):
                    self.events.append(news)
                    if kind == HUNG:
                        self.found.setdefault(number, now_s - self.seen[number].life.began_s)
                case Remember(_, fields, None):
                    job = self.seen[number].job
                    job.account_in_ledger = replace(job.account, **fields)

    def _use(self, number: int, life: Life, now_s: float) -> NodeUse:
        at_s = now_s - life.began_s
        assert life.gpu_works is not None
        works = life.gpu_works(at_s) and at_s <= life.hangs_after
        if works:
            self.low_since_s.pop(number, None)
            return NodeUse(now_s, GPUS, None, at_s, GPUS * at_s, None, 0.7)
        since_s = self.low_since_s.setdefault(number, now_s)
        busy = GPUS if life.busy_at_rest and at_s > life.hangs_after else 0
        low_s = since_s if now_s - since_s >= 40.0 else None
        power = 0.14 if busy else None
        return NodeUse(now_s, busy, None if busy else low_s, at_s, 0.0, low_s, power)


def _job(number: int) -> Job:
    amount = Amount({ANY_TYPE: GPUS})
    on = {"allocation": {"n1": amount}, "raw_id": number, "restarts": 0}
    job = view(str(number), JobState.RUNNING, Request(amount), **on)
    job.account_in_ledger = JobAccount(str(number), 0, 0.0, 0.0, 0.0, 0)
    return job


def lives_of(kind: str, count: int = EACH, seed: int = 0) -> list[Life]:
    chance = random.Random(f"{kind} {seed}")
    return [replace(KINDS[kind](chance), began_s=chance.uniform(0.0, 900.0)) for _ in range(count)]


def habit_of(life: Life, seed: int) -> ProgramHabit:
    """What an earlier run of the same program shows."""
    site = Site([replace(life, began_s=0.0)], seed)
    site.run_to_the_end()
    progress = site.seen[0].job.progress
    assert progress is not None
    return ProgramHabit.of(progress)._replace(startups=3)


TOGETHER = hung.TOGETHER


@pytest.fixture(autouse=True)
def each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge each job as if it stood still alone."""
    monkeypatch.setattr(hung, "TOGETHER", 1_000_000)


@pytest.fixture
def together(each_by_itself: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge jobs that stand still together as they are."""
    monkeypatch.setattr(hung, "TOGETHER", TOGETHER)


@pytest.mark.parametrize("kind", KINDS)
def test_none_of_a_hundred_healthy_jobs_of_a_kind_is_found_to_hang(kind: str) -> None:
    site = Site(lives_of(kind), seed=1)
    site.run_to_the_end()
    assert site.found == {}


def test_a_healthy_job_is_not_found_to_hang_in_a_later_run_of_its_program_either() -> None:
    for kind in KINDS:
        lives = lives_of(kind, 4)
        habits = [habit_of(life, seed=2) for life in lives_of(kind, 4)]
        site = Site(lives, seed=3, habits=habits)
        site.run_to_the_end()
        assert site.found == {}, kind


def hanging(life: Life, chance: random.Random) -> Life:
    """The same run, which hangs somewhere after its tenth step and its first minute."""
    least = max(10, sum(at_s < 60.0 for at_s in life.step_s))
    at = chance.randrange(least, max(least + 1, len(life.step_s) - 1))
    return replace(
        life,
        step_s=life.step_s[:at],
        said=[one for one in life.said if one[0] < life.step_s[at - 1] - 1.0],
        hangs_after=life.step_s[at - 1],
    )


def bound_s(life: Life, habit: ProgramHabit | None) -> float:
    """When a hang is found at the latest: after three minutes, ten usual steps or three times its
    longest pause if its program is known, else after thirty steps or ten minutes."""
    took = [b - a for a, b in itertools.pairwise([0.0, *life.step_s])][1:]
    # Its node looks every ten seconds, and the pace of jobs that stutter is known roughly.
    usual_s, gap_s = 1.3 * max(fmean(took[-20:]), fmean(took)), 1.1 * max(took) + TICK_S
    if habit is None:
        return 60.0 + max(600.0, 30 * usual_s, 3 * gap_s)
    return 60.0 + max(120.0, 10 * usual_s, 3 * max(gap_s, habit.gap_s))


@pytest.mark.parametrize("kind", ["steady", "slow", "evaluating", "stuttering", "saving"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_job_that_hangs_is_found_in_time(kind: str, is_known: bool) -> None:
    chance = random.Random(kind)
    healthy = lives_of(kind, 10)
    habits = [habit_of(life, seed=2) if is_known else None for life in healthy]
    lives = [hanging(life, chance) for life in healthy]
    site = Site(lives, seed=4, habits=habits)
    site.run_to_the_end(extra_s=4 * 3600.0)
    assert len(site.found) == len(lives)
    for number, life in enumerate(lives):
        late_s = site.found[number] - life.hangs_after
        assert late_s <= bound_s(life, habits[number]), number


def test_gpus_busy_at_low_power_show_a_hang_of_a_new_program_in_three_minutes() -> None:
    step_s = steps([1.0] * 300)
    life = Life(step_s, gpu_works=lambda _s: True, hangs_after=300.0, busy_at_rest=True)
    idle = replace(life, busy_at_rest=False)
    works = replace(life, hangs_after=1e9)
    site = Site([life, idle, works], seed=5)
    site.run_to_the_end(extra_s=3600.0)
    assert site.found[0] <= 300.0 + 180.0
    assert 300.0 + 600.0 < site.found[1] <= 300.0 + 660.0
    assert 2 not in site.found
    text = next(one.text for one in site.events if one.job_id == "0")
    assert "no step since step 300" in text
    assert "busy at 14 % of their power" in text


def paused(count: int, together: bool) -> list[Life]:
    """Steps of a second, and a pause of a quarter of an hour of the file system of them all."""
    chance = random.Random(6)
    lives = []
    for number in range(count):
        at = 300 if together else 60 + 400 * number
        times = [lognormal(chance, 1.0, 0.1) for _ in range(900)]
        times[at] += 900.0
        lives.append(Life(steps(times)))
    return lives


@pytest.mark.usefixtures("together")
def test_jobs_that_stand_still_together_are_waiting_for_their_file_system() -> None:
    site = Site(paused(6, together=True), seed=7)
    site.run_to_the_end()
    assert site.found == {}


@pytest.mark.usefixtures("together")
def test_jobs_that_hang_together_for_an_hour_are_found() -> None:
    lives = [Life(steps([1.0] * 300), hangs_after=300.0)] * 6
    site = Site(lives, seed=7)
    site.run_to_the_end(extra_s=2 * 3600.0)
    assert len(site.found) == 6
    assert min(site.found.values()) > 300.0 + hung.HELD_BACK_S


def test_a_job_whose_node_tells_nothing_is_not_judged() -> None:
    times = steps([1.0] * 1200)
    site = Site([Life(times, silent=[(300.0, 1100.0)])], seed=8)
    site.run_to_the_end()
    assert site.found == {}


def test_before_its_first_step_a_run_is_judged_only_by_earlier_runs() -> None:
    life = Life([7000.0])
    known = ProgramHabit(100, 10.0, 10.0, startups=3, startup_s=60.0)
    site = Site([life] * 3, seed=9, habits=[None, known, known._replace(startups=2)])
    site.run_to_the_end()
    assert list(site.found) == [1]
    assert site.found[1] <= hung.LEAST_STARTUP_S + 60.0


def test_a_job_that_reports_by_comment_is_judged_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> int:
        site = Site([Life(steps([30.0] * 300), source=COMMENT)], seed=9)
        site.run_to_the_end()
        return len(site.found)

    assert found() == 0
    monkeypatch.setattr(hung, "COMMENT_TIMES", 0.0)
    assert found() == 1


def test_a_verdict_is_withdrawn_when_the_run_makes_a_step() -> None:
    times = [*steps([1.0] * 100), 5000.0, *(5001.0 + n for n in range(60))]
    site = Site([Life(times)], seed=10)
    site.run_to_the_end()
    assert [one.kind for one in site.events] == [HUNG, FALSE]
    account = site.seen[0].job.account
    assert (account.hung_run, account.hung_step) == (None, 100)


MUTANTS: Mapping[str, tuple[object, str, object, str]] = {
    "thirty steps of a new program": (hung, "NEW_STEPS", 10.0, "evaluating"),
    "ten minutes of a new program": (hung, "NEW_S", 100.0, "evaluating"),
    "nothing before three gaps": (hung, "LEAST_GAPS", 0, "compiling"),
    "two hours of output": (hung, "NEW_OUTPUT_S", 600.0, "taciturn"),
    "half an hour for a save": (reported_run, "SAVES_WITHIN_S", 60.0, "saving"),
    "announced phases": (reported_run, "MOST_BUSY_MIN", 1.0, "announcing"),
    "GPUs that work": (hung, "gpus_at_rest", lambda *_: True, "scoring"),
}
"""What protects healthy jobs, what replaces it, and which kind of jobs suffers from that."""


@pytest.mark.parametrize("name", MUTANTS)
def test_without_any_of_its_rules_healthy_jobs_are_found_to_hang(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, attribute, value, kind = MUTANTS[name]
    monkeypatch.setattr(module, attribute, value)
    site = Site(lives_of(kind, 30), seed=1)
    site.run_to_the_end()
    assert site.found


def test_without_what_earlier_runs_show_healthy_jobs_are_found_to_hang() -> None:
    lives = lives_of("evaluating", 10)
    habits = [replace_gaps(habit_of(life, seed=2)) for life in lives]
    site = Site(lives, seed=3, habits=habits)
    site.run_to_the_end()
    assert site.found


def replace_gaps(habit: ProgramHabit) -> ProgramHabit:
    return habit._replace(gap_s=0.0, gap_steps=0.0)


def test_without_the_rule_for_common_pauses_a_paused_file_system_hangs_jobs() -> None:
    site = Site(paused(6, together=True), seed=7)
    site.run_to_the_end()
    assert len(site.found) == 6


@pytest.mark.usefixtures("together")
def test_jobs_that_stop_one_after_another_hang() -> None:
    site = Site(paused(3, together=False), seed=7)
    site.run_to_the_end()
    assert len(site.found) == 3


def test_explain_names_the_evidence_what_is_done_and_what_was() -> None:
    site = Site([Life(steps([1.0] * 300), hangs_after=300.0)], seed=1)
    site.run_to_the_end(extra_s=1000.0)
    job = site.seen[0].job
    account = replace(job.account, dumped_run=0, hung_requeues=MOST_IN_A_ROW)
    told = site.hung.explain(job, account, 2000.0)
    assert told is not None
    assert told.alarm.startswith("hung since {")
    shown = told.facts["hung"]
    assert (shown.gpus, shown.requeued, shown.allowed_s) == (GPUS, False, 600.0)
    evidence, dumped, requeued = told.says
    assert "no step since step 300" in evidence
    assert "print the stacks" in dumped
    assert "requeued 3 times in a row because it hung" in requeued
    assert "not again" in requeued


@pytest.mark.parametrize(
    ("changed", "leaves"),
    [
        ({}, True),
        ({"hung_requeues": MOST_IN_A_ROW, "hung_furthest_step": 500}, False),
        ({"hung_signalled_run": 0}, False),
        ({"hung_signalled_run": 1}, True),
    ],
)
def test_a_run_is_requeued_once_and_a_job_thrice(changed: Mapping[str, Any], leaves: bool) -> None:
    site = Site([Life(steps([1.0] * 300), hangs_after=300.0)], seed=1, action="requeue")
    job = site.seen[0].job
    job.account_in_ledger = replace(job.account, **changed)
    site.run_to_the_end(extra_s=1000.0)
    assert job.leaves_hung is leaves
    assert (job.leaves_because is Reason.HUNG) is leaves


@pytest.mark.parametrize("lane", [Lane.INTERACTIVE, Lane.IDLE_ONLY])
def test_a_job_that_cannot_be_requeued_is_only_shown(lane: Lane) -> None:
    site = Site([Life(steps([1.0] * 300), hangs_after=300.0)], seed=1, action="requeue")
    site.seen[0].job.lane = lane
    site.run_to_the_end(extra_s=1000.0)
    assert 0 in site.found
    assert not site.seen[0].job.leaves_hung


@pytest.mark.parametrize(
    ("action", "dumps", "dumped_run", "is_due"),
    [
        ("signal", True, None, True),
        ("requeue", True, None, True),
        ("signal", True, 0, False),
        ("signal", False, None, False),
        ("flag", True, None, False),
    ],
)
def test_only_programs_that_print_their_stacks_are_told_to_and_once(
    action: str, dumps: bool, dumped_run: int | None, is_due: bool
) -> None:
    site = Site([Life(steps([1.0] * 300), hangs_after=300.0)], seed=1, action=action)
    site.run_to_the_end(extra_s=1000.0)
    job = site.seen[0].job
    assert job.progress is not None
    job.progress = replace(job.progress, dumps=dumps)
    job.account_in_ledger = replace(job.account, dumped_run=dumped_run)
    assert site.hung.to_dump({"0": job}) == (["0"] if is_due else [])
