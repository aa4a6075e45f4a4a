"""Jobs that hold GPUs and do nothing with them, by the samples of their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from slurm_tiresias.core.features.feature import Explained, Feature, Gauge
from slurm_tiresias.core.features.min_run import min_run_until_s
from slurm_tiresias.core.features.news import Happened, Remember
from slurm_tiresias.core.features.protections import protection_of
from slurm_tiresias.core.features.victim_rate import VictimRate
from slurm_tiresias.core.job import Job
from slurm_tiresias.core.lifecycle.preemption import Cause
from slurm_tiresias.core.rank import IDLE_LEVEL
from slurm_tiresias.model import (
    JobAccount,
    JobState,
    NodeUse,
    PublishedGpuUse,
    RecentVictims,
    last_ended,
)
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.idle_gpus import FLAG, LEAVE, RANK_LAST, IdleGpusConfig

TOLD_EVERY_S: Final = 60.0
"""How often a node tells of its jobs where nothing has changed (``gpu_use_folder.SIGN_OF_LIFE_S``).
"""

LATE_AFTER_S: Final = 3 * TOLD_EVERY_S
"""What was told so long ago counts for nothing: the node's sampler, or the way to here, has
stopped."""

AHEAD_S: Final = 30.0
"""A node's clock may be so far ahead of Slurm's."""

GPUS_IDLE: Final = "gpus-idle"
"""The event of a run whose GPUs have all been idle for long."""

MOST_IN_A_ROW: Final = 3
"""How often a job is requeued for its idle GPUs without having used one in between. Whatever keeps
it from computing, another start has not helped."""


class GpuIdleness(NamedTuple):
    """What a run does with its GPUs now, on all of its nodes."""

    gpus: int
    busy: int
    idle_since_s: float | None
    """Since when all of its GPUs have been idle; None while one is busy."""
    held_idle_gpu_s: float
    """How long it has held idle GPUs so far, each GPU counted."""
    has_been_busy: bool = True
    """Whether any of its GPUs has been used in this run, as far as the nodes told."""


def idleness(
    told: Mapping[str, NodeUse], gpus_on: Mapping[str, int], began_s: float, now_s: float
) -> GpuIdleness | None:
    """Return what a run does with its GPUs; None unless all of its nodes have told of it lately.

    Parameters
    ----------
    told
        What each node tells of this run.
    gpus_on
        How many GPUs the run holds on each node.
    began_s
        When it began, by Slurm's clock. It has not been idle for longer than that.
    """
    nodes = {node: gpus for node, gpus in gpus_on.items() if gpus > 0}
    uses = [told[node] for node in nodes if node in told]
    if not nodes or len(uses) < len(nodes):
        return None
    if not all(-AHEAD_S <= now_s - use.at_s <= LATE_AFTER_S for use in uses):
        return None
    since_s = [use.idle_since_s for use in uses if use.idle_since_s is not None]
    held_idle_gpu_s = 0.0
    for node, gpus in nodes.items():
        use = told[node]
        # A node tells at once what has changed, so nothing has since.
        on_s = min(max(0.0, now_s - use.at_s), TOLD_EVERY_S)
        busy_gpu_s = use.busy_gpu_s + min(use.busy, gpus) * on_s
        sampled_s = min(use.sampled_s + on_s, max(0.0, now_s - began_s))
        held_idle_gpu_s += max(0.0, gpus * sampled_s - busy_gpu_s)
    return GpuIdleness(
        gpus=sum(nodes.values()),
        busy=sum(min(told[node].busy, gpus) for node, gpus in nodes.items()),
        idle_since_s=min(now_s, max(began_s, *since_s)) if len(since_s) == len(uses) else None,
        held_idle_gpu_s=held_idle_gpu_s,
        has_been_busy=any(use.busy > 0 or use.busy_gpu_s > 0.0 for use in uses),
    )


def is_flagged(found: GpuIdleness, config: IdleGpusConfig, now_s: float) -> bool:
    """Whether all GPUs of a run have been idle for so long that its job is flagged."""
    since_s = found.idle_since_s
    return config.after_s > 0 and since_s is not None and now_s - since_s >= config.after_s


def ranks_last(found: GpuIdleness, config: IdleGpusConfig, now_s: float) -> bool:
    """Whether a run is preempted before all others. One busy GPU ends that, and only another
    ``idle_gpus.after_s`` without any begins it again."""
    return config.action in (RANK_LAST, LEAVE) and is_flagged(found, config, now_s)


def ranks_last_anew(account: JobAccount, idle_before_s: float, config: IdleGpusConfig) -> bool:
    """Whether a job ranks last from its start on, or while it waits: its GPUs had long been idle
    when it was requeued, for that or for another reason, and it has used none since.

    ``idle_before_s``: for how long it had used none at the end of its last run.
    """
    if config.action == LEAVE and account.idle_requeues > 0:
        return True
    return config.action in (RANK_LAST, LEAVE) and 0 < config.after_s <= idle_before_s


def is_to_leave(found: GpuIdleness, config: IdleGpusConfig, now_s: float) -> bool:
    """Whether all GPUs of a run have been idle for so long that it is preempted for that alone."""
    since_s = found.idle_since_s
    if config.action != LEAVE or since_s is None:
        return False
    return now_s - since_s >= config.leave_after_s


class NotPreempted(StrEnum):
    """Why a run is not preempted for its idle GPUs alone."""

    ONCE_IN_A_RUN = "signalled-in-this-run"
    OFTEN_ENOUGH = "requeued-often-enough"
    """``MOST_IN_A_ROW`` times."""


IN_WORDS: Final[Mapping[NotPreempted, str]] = {
    NotPreempted.ONCE_IN_A_RUN: (
        "A run is preempted for idle GPUs alone only once, and this one was signalled before."
    ),
    NotPreempted.OFTEN_ENOUGH: (
        "It was requeued for idle GPUs as often in a row as a job may be, so it is not again until "
        "it uses a GPU."
    ),
}


def why_not_preempted(account: JobAccount, restarts: int) -> NotPreempted | None:
    """Return why a job's run after ``restarts`` restarts is not preempted for its idle GPUs alone,
    however long they have been idle; None if it may be."""
    if account.idle_requeues >= MOST_IN_A_ROW:
        return NotPreempted.OFTEN_ENOUGH
    return NotPreempted.ONCE_IN_A_RUN if account.idle_signalled_run == restarts else None


def why_spared(found: GpuIdleness | None, config: IdleGpusConfig, now_s: float) -> str:
    """Return why a run is not preempted for its idle GPUs any more, in words."""
    if found is None:
        return "its nodes have not reported its GPU use lately"
    if found.busy:
        return f"{found.busy} of its {found.gpus} GPUs {'is' if found.busy == 1 else 'are'} used"
    if not is_to_leave(found, config, now_s):
        return "its GPUs have been used meanwhile, or their sampler was restarted"
    return "it may not be preempted any more"


Samples = Mapping[tuple[int, int], Mapping[str, NodeUse]]
"""What each node tells of each run, by raw job id and restarts."""


class IdleGpus(Feature):
    """Sets ``ranks_last`` and ``leaves_idle`` of jobs by the samples of their nodes.

    A restart loses nothing: the nodes tell since when a run has been idle, and for how long in all.
    """

    def __init__(self, config: Config) -> None:
        self._site = config
        self._config = config.idle_gpus
        self._rate = VictimRate.of(config)
        self._now: dict[str, tuple[Job, GpuIdleness]] = {}
        """The running jobs, with what they do with their GPUs, as far as that is known."""
        self._now_s = 0.0
        self._changed: dict[str, Job] = {}
        self._flagged: dict[str, int] = {}
        """The run, by its restarts, in which each job was flagged last."""

    def of(self, job_id: str) -> GpuIdleness | None:
        """Return what a job does with its GPUs now; None if it does not run, or that is unknown."""
        return self._now[job_id][1] if job_id in self._now else None

    def ranks_last_anew(self, job: Job) -> bool:
        """Whether a job has ranked last since its last requeue."""
        account, found = job.account_in_ledger, self.of(job.job_id)
        if account is None or not job.is_preemptible:
            return False
        if found is not None and found.has_been_busy:
            return False
        return ranks_last_anew(account, _idle_before_s(job), self._config)

    def why_spared(self, job_id: str) -> str:
        """Return why a job is not preempted for its idle GPUs any more, in words."""
        if not self._config.after_s:
            return "idle_gpus.after_s is 0 now"
        return why_spared(self.of(job_id), self._config, self._now_s)

    def hear(
        self,
        samples: Samples,
        job_of: Callable[[int], Job | None],
        now_s: float,
        recent: RecentVictims,
    ) -> RecentVictims:
        """Take in what the nodes tell; return the recent victims, with the jobs that leave now.

        ``job_of`` finds a running job, managed or not, by its raw id.
        """
        before, self._now, self._now_s = self._now, {}, now_s
        recent = self._rate.at(recent, now_s)
        news: list[Happened | Remember] = []
        for (raw_id, restarts), nodes in sorted(samples.items()):
            job = job_of(raw_id)
            if job is not None and job.status.restarts == restarts:
                found = self._look_at(job, nodes)
                if found is not None:
                    found = self._joined(job, found, news)
                    recent = self._judge(job, found, recent)
        for job_id in before.keys() - self._now.keys():
            job, _ = before[job_id]
            self._set(job, last=self._waits_last(job), leaves=False)
        self._flagged = {job: run for job, run in self._flagged.items() if job in self._now}
        self.report(*news)
        return recent

    def follow(self, job: Job, now_s: float) -> None:
        if job.job_id not in self._now:
            job.ranks_last, job.leaves_idle = self._waits_last(job), False

    def forget(self, job: Job) -> None:
        self._changed.pop(job.job_id, None)

    def tick(self, now_s: float) -> Iterable[Job]:
        changed, self._changed = self._changed, {}
        return changed.values()

    def explain(self, job: Job, account: JobAccount | None, now_s: float) -> Explained | None:
        found = self.of(job.job_id)
        requeues = account.idle_requeues if account and self._config.action == LEAVE else 0
        if found is None and not job.ranks_last and not requeues:
            return None
        facts: dict[str, Any] = {"ranks_last": job.ranks_last, "idle_requeues": requeues}
        says: list[str] = []
        alarm = ""
        if found is not None:
            use = self._published(job, found, account, now_s)
            facts["gpu_use"] = use
            says.extend(_sentences(use, now_s))
            if use.idle_long:
                leaves = ", being preempted" if job.leaves_idle else ""
                alarm = f"idle {_gpus(use)} since {{{use.idle_since_s} moment}}{leaves}"
        if requeues:
            times = "once" if requeues == 1 else f"{requeues} times"
            says.append(
                f"It was requeued for its idle GPUs {times} in a row and has used none since, so "
                "it ranks last, waiting or running, until it uses one."
            )
        elif job.ranks_last and job.state is JobState.PENDING:
            says.append(
                "Its GPUs were idle when it was requeued, so it ranks last, waiting or running, "
                "until it uses one."
            )
        return Explained(facts, tuple(says), alarm)

    def _published(
        self, job: Job, use: GpuIdleness, account: JobAccount | None, now_s: float
    ) -> PublishedGpuUse:
        since_s, flagged = use.idle_since_s, is_flagged(use, self._config, now_s)
        last = job.ranks_last and job.protected_by is None
        shown = PublishedGpuUse(use.gpus, use.busy, since_s, flagged, last, use.held_idle_gpu_s)
        if not last or self._config.action != LEAVE or account is None or since_s is None:
            return shown
        why_not = None if job.leaves_idle else why_not_preempted(account, job.status.restarts)
        if why_not:
            return replace(shown, kept_because=why_not.value)
        leaves_at_s = max(
            since_s + self._config.leave_after_s, min_run_until_s(job, self._site.preemption)
        )
        return replace(shown, leaves_at_s=leaves_at_s)

    def _look_at(self, job: Job, nodes: Mapping[str, NodeUse]) -> GpuIdleness | None:
        # The start of jobs which are left to Slurm is not followed.
        began_s = job.status.start_s if job.running_since_s is None else job.running_since_s
        if began_s is None or job.state is not JobState.RUNNING:
            return None
        gpus_on = {node: amount.gpu_count for node, amount in job.allocation.items()}
        return idleness(nodes, gpus_on, began_s, self._now_s)

    def _joined(self, job: Job, found: GpuIdleness, news: list[Happened | Remember]) -> GpuIdleness:
        """Return what a run does with its GPUs, with the idle time of the runs before it, and add
        what has to be remembered."""
        idle_before_s, run = _idle_before_s(job), job.present_run
        if found.has_been_busy and job.account_in_ledger and (idle_before_s or _requeues(job)):
            # From now on it is as if it had never been idle.
            last = last_ended(job.run_records)
            if last is not None:
                news.append(Remember(job.job_id, {"idle_s": 0.0}, last.start_s))
            news.append(Remember(job.job_id, {"idle_requeues": 0}))
            idle_before_s = 0.0
        idle_s = 0.0
        if found.idle_since_s is not None:
            # Otherwise the time would begin anew whenever the job is preempted.
            found = found._replace(idle_since_s=found.idle_since_s - idle_before_s)
            idle_s = self._now_s - (found.idle_since_s or 0.0)
        if run is not None:
            held_gpu_s = min(found.held_idle_gpu_s, run.elapsed_s * run.gpus)
            fields = {"idle_gpu_s": max(run.idle_gpu_s, held_gpu_s), "idle_s": idle_s}
            news.append(Remember(job.job_id, fields, run.start_s))
        restarts = job.status.restarts
        flagged = job.managed and is_flagged(found, self._config, self._now_s)
        if flagged and self._flagged.get(job.job_id) != restarts:
            self._flagged[job.job_id] = restarts
            news.append(Happened(job.job_id, GPUS_IDLE, self._in_words(job, found), once=True))
        self._now[job.job_id] = job, found
        return found

    def _judge(self, job: Job, found: GpuIdleness, recent: RecentVictims) -> RecentVictims:
        """Judge a running job; return the recent victims, with it if it leaves now."""
        last = job.managed and job.is_preemptible
        last = last and (self.ranks_last_anew(job) or ranks_last(found, self._config, self._now_s))
        leaves = last and self._leaves(job, found)
        if leaves and not _is_leaving(job):
            leaves = recent.jobs < self._rate.most
            recent = self._rate.after(recent, int(leaves), self._now_s)
        self._set(job, last=last, leaves=leaves)
        return recent

    def _waits_last(self, job: Job) -> bool:
        """Whether a job ranks last without samples: while it runs it may be computing."""
        return job.state is not JobState.RUNNING and self.ranks_last_anew(job)

    def _set(self, job: Job, *, last: bool, leaves: bool) -> None:
        if job.set(ranks_last=last, leaves_idle=leaves) and job.managed:
            self._changed[job.job_id] = job

    def _leaves(self, job: Job, found: GpuIdleness) -> bool:
        """Whether a job that ranks last is to be preempted even if no other job needs its GPUs."""
        account = job.account_in_ledger
        if account is None or job.preemptor or not is_to_leave(found, self._config, self._now_s):
            return False
        if found.has_been_busy:
            account = replace(account, idle_requeues=0)
        if not _is_leaving(job) and why_not_preempted(account, job.status.restarts):
            return False
        signalled_s = job.preemption.signalled_s if job.preemption and _is_leaving(job) else None
        if signalled_s is not None and (found.idle_since_s or 0.0) > signalled_s:
            return False  # it has used a GPU since then, which no cycle saw
        as_last = copy(job)
        as_last.ranks_last = True
        return protection_of(as_last, self._now_s, self._site, IDLE_LEVEL) is None

    def _in_words(self, job: Job, found: GpuIdleness) -> str:
        goes_first = self._config.action != FLAG and job.protected_by is None
        goes_first = goes_first and job.is_preemptible
        then = ", so it is preempted first" if goes_first else ""
        what = f"none of its {found.gpus} GPUs has" if found.gpus > 1 else "its GPU has not"
        idle_s, restarts = f"{self._config.after_s:g} s", job.status.restarts
        return f"{what} been used for {idle_s}{then}, restart {restarts}"


def _idle_before_s(job: Job) -> float:
    """Return for how long a job had used none of its GPUs at the end of its last run."""
    last = last_ended(job.run_records)
    return last.idle_s if last else 0.0


def _requeues(job: Job) -> int:
    return job.account_in_ledger.idle_requeues if job.account_in_ledger else 0


def _is_leaving(job: Job) -> bool:
    """Whether the preemption of a job for its idle GPUs is under way."""
    one = job.preemption
    return one is not None and one.cause is Cause.IDLE_GPUS and one.makes_room


def _gpus(use: PublishedGpuUse) -> str:
    return "GPU" if use.gpus == 1 else f"{use.gpus} GPUs"


def _sentences(use: PublishedGpuUse, now_s: float) -> Iterator[str]:
    held = f"This run has held idle GPUs for {{{use.held_idle_gpu_s} gpu_hours}} so far."
    if use.idle_since_s is None or not use.idle_long:
        if use.busy < use.gpus:
            yield f"{use.busy} of its {_gpus(use)} are busy now. {held}"
        return
    since = f"{{{use.idle_since_s} moment}}, for {{{now_s - use.idle_since_s} duration}}"
    what = "its GPU" if use.gpus == 1 else f"any of its {use.gpus} GPUs"
    yield f"It has not used {what} since {since}. {held}"
    if use.ranks_last:
        yield (
            "Therefore it is preempted before all other jobs, even by jobs of its own tier, until "
            "it uses a GPU again (idle_gpus.action)."
        )
    if use.leaves_at_s is not None and use.leaves_at_s > now_s:
        yield (
            f"If it uses none before {{{use.leaves_at_s} moment}}, it is preempted even if no "
            "other job waits (idle_gpus.leave_after_s)."
        )
    if use.kept_because:
        yield IN_WORDS[NotPreempted(use.kept_because)]


GAUGES: Final = (
    Gauge(
        "tiresias_idle_gpu_jobs",
        "Running jobs, managed or not, that have used none of their GPUs for idle_gpus.after_s.",
        "gpu_use",
        {"": lambda use: use.idle_long},
    ),
    Gauge(
        "tiresias_idle_gpus_held",
        "GPUs that jobs hold but do not use, as far as the nodes report.",
        "gpu_use",
        {"": lambda use: use.gpus - use.busy},
    ),
)
