"""Jobs that have made no step for far longer than usual, and whose GPUs do no work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from slurm_tiresias.core.features.feature import Explained, Feature, Gauge
from slurm_tiresias.core.features.idle_gpus import AHEAD_S, LATE_AFTER_S, MOST_IN_A_ROW, Samples
from slurm_tiresias.core.features.news import Happened, Remember
from slurm_tiresias.core.features.victim_rate import VictimRate
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.lifecycle.preemption import Cause, PreemptionState
from slurm_tiresias.model import (
    JobAccount,
    JobProgress,
    JobState,
    NodeUse,
    ProgramHabit,
    ProgressSource,
    PublishedHung,
    RecentVictims,
    last_ended,
)
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.failures import FLAG, REQUEUE

HUNG, FALSE = "hung", "hung-false"
"""The events of a run that was found to hang, and of one that made a step afterwards."""

LEAST_GAPS: Final = 3
"""After fewer gaps between steps a run is judged as before its first one: its program may still
compile."""

TIMES: Final = 3.0
"""A pause may be so many times the longest one known."""

LEAST_STARTUPS, LEAST_STARTUP_S = 3, 1800.0
"""How many earlier runs must have shown how long the program takes to its first step, for a run to
be judged before its own; and how long it may take to get going at least."""

NEW_STEPS, NEW_S = 30.0, 600.0
"""A pause may take so many usual steps, and so long, at steps that no earlier run of the program
has passed: the first evaluation of a new program may take twenty steps."""

COMMENT_TIMES: Final = 3.0
"""A comment counts for so many times the run's age at it: it is updated seldom, and less often the
longer a run takes."""

NEW_OUTPUT_S = 7200.0
"""The same for programs that only print, unless their GPUs do no work: they may log seldom."""

TOGETHER, TOGETHER_S = 3, 300.0
HELD_BACK_S = 3600.0
"""If so many jobs, and a third of those that report, stopped within ``TOGETHER_S``, that is more
likely a file system or a network that pauses: they are found to hang only after an hour."""


class GpusAtRest(NamedTuple):
    """What the nodes of a run tell of its GPUs, none of which works."""

    since_s: float
    gpus: int
    busy: int
    power: float | None
    """The most that one of them draws, as a share of its limit."""


class HungVerdict(NamedTuple):
    """A run that hangs, and why it is believed to."""

    since_s: float
    silent_s: float
    allowed_s: float
    """The longest pause that would have been usual."""
    gpus: GpusAtRest | None
    """None if its GPUs are not sampled."""


def gpus_at_rest(
    told: Mapping[str, NodeUse], gpus_on: Mapping[str, int], now_s: float
) -> GpusAtRest | bool:
    """Return what the GPUs of a run do if all are idle or draw little power; else whether they may
    be at rest, as far as is known."""
    uses = {node: told[node] for node, gpus in gpus_on.items() if gpus > 0 and node in told}
    fresh = {n: use for n, use in uses.items() if -AHEAD_S <= now_s - use.at_s <= LATE_AFTER_S}
    if any(use.low_since_s is None and use.power is not None for use in fresh.values()):
        return False
    low_s = [use.low_since_s for use in fresh.values() if use.low_since_s is not None]
    if not low_s or len(low_s) < sum(gpus > 0 for gpus in gpus_on.values()):
        return True
    powers = [use.power for use in fresh.values() if use.power is not None]
    busy = sum(use.busy for use in fresh.values())
    return GpusAtRest(max(low_s), sum(gpus_on.values()), busy, max(powers, default=None))


def allowed_s(
    progress: JobProgress, habit: ProgramHabit | None, gpus: GpusAtRest | None
) -> float | None:
    """Return how long a run may make no step; None if nothing is known of that."""
    if progress.gaps < LEAST_GAPS or progress.per_step is None:
        startup_s = habit.startup_s if habit and habit.startups >= LEAST_STARTUPS else None
        if startup_s is None and progress.step == progress.first_step:
            return None
        return max(LEAST_STARTUP_S, TIMES * (startup_s or 0.0), progress.quiet_after_s)
    step_s = progress.per_step.likely_s
    bounds_s = [progress.quiet_after_s]
    if progress.source is ProgressSource.COMMENT:
        began_s = progress.reported_s if progress.first_s is None else progress.first_s
        bounds_s.append(COMMENT_TIMES * (progress.reported_s - began_s))
    if habit is not None:
        bounds_s += [TIMES * habit.gap_s, TIMES * habit.gap_steps * step_s]
    is_known = habit is not None and progress.step < habit.furthest_step
    # Healthy programs do not keep GPUs busy without work.
    if not is_known and not (gpus and gpus.busy):
        bounds_s += [NEW_S, NEW_STEPS * step_s]
        if progress.source is ProgressSource.OUTPUT and gpus is None:
            bounds_s.append(NEW_OUTPUT_S)
    return max(bounds_s)


def judged(job: Job, told: Mapping[str, NodeUse], now_s: float) -> HungVerdict | None:
    """Return why a running job is believed to hang; None if it is not.

    A verdict stands until the next step, although a controller that has started since does not know
    the pauses of the run.
    """
    progress, account = job.progress, job.account
    if progress is None or progress.finished or progress.lost:
        return None
    found_before = account.hung_run, account.hung_step
    stands = found_before == (progress.restarts, progress.step) and progress.silent_s(now_s) >= 0
    if not stands and progress.quiet_since_s(now_s) is None:
        return None
    gpus_on = {node: amount.gpu_count for node, amount in job.allocation.items()}
    found = gpus_at_rest(told, gpus_on, now_s)
    if found is False:
        return None
    gpus = found if isinstance(found, GpusAtRest) else None
    longest_s, silent_s = allowed_s(progress, job.habit, gpus), progress.silent_s(now_s)
    if stands:
        hung_s = job.present_run.hung_s if job.present_run else 0.0
        silent_s = max(silent_s, hung_s)
        return HungVerdict(now_s - silent_s, silent_s, longest_s or progress.quiet_after_s, gpus)
    if longest_s is None or silent_s <= longest_s:
        return None
    return HungVerdict(_stopped_s(progress), silent_s, longest_s, gpus)


def _stopped_s(progress: JobProgress) -> float:
    return max(progress.advanced_s, progress.busy_until_s)


class Hung(Feature):
    """Finds jobs that hang, and sets ``leaves_hung`` of those that are requeued for it."""

    def __init__(self, config: Config) -> None:
        self._action = config.failures.hung
        self._rate = VictimRate.of(config)
        self._found: dict[str, HungVerdict] = {}
        self._changed: dict[str, Job] = {}
        self._held_back: dict[str, float] = {}
        """When jobs stopped that stand still together with others."""

    def hear(
        self, jobs: Iterable[Job], samples: Samples, now_s: float, recent: RecentVictims
    ) -> RecentVictims:
        """Judge all jobs by their progress and by what their nodes tell; return the recent victims,
        with the jobs that leave now."""
        recent = self._rate.at(recent, now_s)
        self._found, fresh, stopped_s, reporting = {}, [], [], 0
        for job in jobs:
            account, progress = job.account_in_ledger, job.progress
            if account is None or not job.managed or progress is None:
                continue
            if account.hung_run is not None or account.hung_requeues:
                self._follow_steps(job, account, progress)
            runs = job.state is JobState.RUNNING and progress.restarts == job.status.restarts
            told = samples.get((job.status.raw_id, job.status.restarts), {})
            verdict = judged(job, told, now_s) if runs else None
            if runs and account.hung_run != job.status.restarts:
                reporting += 1
                if progress.quiet_since_s(now_s) is not None:
                    stopped_s.append(_stopped_s(progress))
            if verdict is not None and account.hung_run == job.status.restarts:
                self._found[job.job_id] = verdict
                self._remember_run(job, hung_s=verdict.silent_s)
            elif verdict is not None:
                fresh.append((job, verdict))
            if verdict is not None or job.leaves_hung or job.preemption is not None:
                recent = self._judge_leaving(job, account, recent, now_s)
        before, self._held_back = self._held_back, {}
        for job, verdict in fresh:
            at_s = verdict.since_s
            others = sum(abs(one_s - at_s) <= TOGETHER_S for one_s in stopped_s)
            together = others >= TOGETHER and TOGETHER * others > reporting
            if (together or before.get(job.job_id) == at_s) and verdict.silent_s <= HELD_BACK_S:
                self._held_back[job.job_id] = at_s
            else:
                self._find(job, verdict)
        return recent

    def to_dump(self, jobs: Mapping[str, Job]) -> list[str]:
        """Return the jobs that are to print their stacks now."""
        due = [jobs[key] for key in self._found if self._action != FLAG and key in jobs]
        return [
            job.job_id
            for job in due
            if job.progress and job.progress.dumps and job.account.dumped_run != job.status.restarts
        ]

    def follow(self, job: Job, now_s: float) -> None:
        if job.state is not JobState.RUNNING:
            job.leaves_hung = False

    def forget(self, job: Job) -> None:
        self._changed.pop(job.job_id, None)

    def tick(self, now_s: float) -> Iterable[Job]:
        changed, self._changed = self._changed, {}
        return changed.values()

    def _find(self, job: Job, verdict: HungVerdict) -> None:
        self._found[job.job_id] = verdict
        restarts, progress = job.status.restarts, job.progress
        assert progress is not None
        text = f"{_evidence(progress, verdict, job.habit)}, restart {restarts}"
        furthest = max(progress.step, job.account.hung_furthest_step)
        fields = {"hung_run": restarts, "hung_step": progress.step, "hung_furthest_step": furthest}
        self.report(Happened(job.job_id, HUNG, text), Remember(job.job_id, fields))
        self._remember_run(job, hung_s=verdict.silent_s)

    def _remember_run(self, job: Job, **fields: float) -> None:
        run = job.present_run or last_ended(job.run_records)
        if run is not None:
            self.report(Remember(job.job_id, fields, run.start_s))

    def _follow_steps(self, job: Job, account: JobAccount, progress: JobProgress) -> None:
        """Note that a run that was found to hang has made a step, or that a job has got further
        than it had before it was requeued."""
        under_way = job.preemption
        killed = under_way is not None and under_way.state is PreemptionState.REQUEUE_SENT
        # Processes that are killed one after another may make steps when they find out.
        runs = job.state is JobState.RUNNING and progress.restarts == job.status.restarts
        of_run = progress.restarts == account.hung_run and runs and not killed
        if of_run and (progress.step > account.hung_step or progress.finished):
            run = job.present_run or last_ended(job.run_records)
            verdicts = run.false_verdicts + 1 if run else 1
            at, then = f"{progress.step:,}", f"{account.hung_step:,}"
            text = f"it was found to hang at step {then}, and is at step {at} now"
            fields: dict[str, int | None] = {"hung_run": None, "hung_requeues": 0}
            self.report(Happened(job.job_id, FALSE, text), Remember(job.job_id, fields))
            self._remember_run(job, hung_s=0.0, false_verdicts=verdicts)
        elif account.hung_requeues and progress.step > account.hung_furthest_step:
            self.report(Remember(job.job_id, {"hung_requeues": 0}))

    def _judge_leaving(
        self, job: Job, account: JobAccount, recent: RecentVictims, now_s: float
    ) -> RecentVictims:
        under_way, leaves = job.preemption, False
        if under_way is not None and under_way.cause is Cause.HUNG and under_way.is_leaving:
            # It may end by itself once it was signalled, so that it must be requeued.
            leaves = job.state is JobState.RUNNING
        elif job.job_id in self._found and self._may_be_requeued(job, account):
            leaves = job.leaves_hung or recent.jobs < self._rate.most
            recent = self._rate.after(recent, int(leaves and not job.leaves_hung), now_s)
        if job.set(leaves_hung=leaves):
            self._changed[job.job_id] = job
        return recent

    def _may_be_requeued(self, job: Job, account: JobAccount) -> bool:
        return (
            self._action == REQUEUE
            and job.protected_by is None
            and not job.preemptor
            and account.hung_requeues < MOST_IN_A_ROW
            and account.hung_signalled_run != job.status.restarts
        )

    def explain(self, job: Job, account: JobAccount | None, now_s: float) -> Explained | None:
        verdict, requeues = self._found.get(job.job_id), account.hung_requeues if account else 0
        if verdict is None or job.progress is None:
            if not requeues:
                return None
            return Explained(says=(_requeued(requeues),))
        gpus = verdict.gpus
        shown = PublishedHung(
            verdict.since_s,
            verdict.allowed_s,
            job.gpus,
            job.leaves_hung,
            gpus and gpus.busy,
            gpus and gpus.power,
        )
        says = [f"It hangs, it seems: {_evidence(job.progress, verdict, job.habit)}."]
        if account and account.dumped_run == job.status.restarts:
            says.append("It was told to print the stacks of its threads: look at its output.")
        if requeues:
            says.append(_requeued(requeues))
        leaves = ", being requeued" if job.leaves_hung else ""
        return Explained(
            {"hung": shown}, tuple(says), f"hung since {{{verdict.since_s} moment}}{leaves}"
        )


def _requeued(requeues: int) -> str:
    times = "once" if requeues == 1 else f"{requeues} times"
    last = ", so it is not again before that" if requeues >= MOST_IN_A_ROW else ""
    return f"It was requeued {times} in a row because it hung, and has got no further since{last}."


def _evidence(progress: JobProgress, verdict: HungVerdict, habit: ProgramHabit | None) -> str:
    text = f"no step since step {progress.step:,} for {verdict.silent_s:.0f} s, where at most "
    text += f"{verdict.allowed_s:.0f} s are usual"
    if progress.per_step is not None:
        text += f" (a step takes {progress.per_step.likely_s:.3g} s, its longest pause was "
        text += f"{progress.longest_gap_s:.0f} s"
        text += f", of earlier runs {habit.gap_s:.0f} s)" if habit else ")"
    gpus = verdict.gpus
    if gpus is None:
        return text
    if not gpus.busy:
        return f"{text}; its GPUs are idle"
    return f"{text}; its GPUs are busy at {100 * (gpus.power or 0.0):.0f} % of their power"


GAUGES: Final = (
    Gauge(
        "tiresias_hung_jobs",
        "Running managed jobs that hang, by their progress and their GPUs ([failures] hung).",
        "hung",
        {"": lambda _hung: 1.0},
    ),
    Gauge(
        "tiresias_hung_gpus",
        "GPUs that these jobs hold.",
        "hung",
        {"": lambda hung: hung.gpus},
    ),
)
