"""Which jobs are at the bound on their slowdown (``policy.max_slowdown``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from slurm_tiresias.config import Config
from slurm_tiresias.controller.runs import Runs
from slurm_tiresias.core.entry import blocked_by_slurm
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.features.slowdown_bound import SlowdownBound
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import NOT_BOUND, FairStanding, JobState, Lane, Node
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import RunRecord

LOOKS_BACK_S: Final = 3 * 86_400.0
"""After its start a controller reckons fair shares from so long ago on. Older jobs count anew from
then."""


COUNTS_ANEW_AFTER_S: Final = 600.0
"""A job that Slurm has kept waiting for so long (held, dependency, a limit) has had no share
meanwhile, and counts anew once it may start again. A requeue keeps it waiting for seconds."""


class BoundNow(NamedTuple):
    """What is known of a job's bound after a cycle."""

    standing: FairStanding
    must_run_by_s: float
    """When it must run at the latest, and then to its end."""
    length_known: bool


class _Counted(NamedTuple):
    """Since when a job counts, and how long it had run before."""

    since_s: float
    ran_before_s: float


class Bounds:
    """Follows jobs from cycle to cycle, and says how each stands to its bound.

    In memory only: a new controller reckons the fair shares of the last days from the ledger. Its
    times are by the clock as it was set then; later steps of it change nothing.
    """

    def __init__(self, config: Config, ledger: Ledger, runs: Runs) -> None:
        self._config = config
        self._ledger = ledger
        self._runs = runs
        self._set_before_s = runs.clock_set_by_s
        self._bound: SlowdownBound | None = None
        self._counted: dict[str, _Counted] = {}
        self._blocked_since_s: dict[str, float] = {}
        self._ended: set[str] = set()
        """Jobs that are gone from Slurm but not from the fair shares."""
        self._now: dict[str, BoundNow] = {}
        self._ran_s: dict[str, float] = {}
        """How long each job has run since it counts."""
        self.warning = ""
        """Why the bound cannot be kept for all jobs now; "" if it can."""

    def of(self, key: str) -> BoundNow | None:
        """Return how a job stands to its bound; None if it has none now."""
        now = self._now.get(key)
        if now is None:
            return None
        by_s = self._clock_set_by_s
        return BoundNow(_later(now.standing, by_s), now.must_run_by_s + by_s, now.length_known)

    @property
    def _clock_set_by_s(self) -> float:
        """How far Slurm's clock was set since this was made."""
        return self._runs.clock_set_by_s - self._set_before_s

    def apply(
        self,
        everyone: Mapping[str, Job],
        nodes: Iterable[Node],
        policy: Policy,
        at_s: float,
        changed: set[str],
    ) -> None:
        """Set ``fair`` of all jobs, and add those of which it has changed to ``changed``."""
        now_s = at_s - self._clock_set_by_s
        gpus = max(1, sum(node.total.gpu_count for node in nodes if node.available))
        jobs = self._those_that_count(everyone.values(), now_s)
        bound = self._bound
        if bound is None:
            bound = self._bound = self._reckoned(jobs, gpus, now_s)
        bound.shares.set_gpus(gpus, now_s)
        bound.shares.advance(now_s)
        for key in self._counted.keys() - jobs.keys():
            self._leave(bound, key)
        for key in [key for key in self._ended if bound.shares.ended(key)]:
            bound.shares.forget(key)
            self._ended.remove(key)
        for key, job in jobs.items():
            if key not in self._counted:
                self._enter(bound, job, now_s, now_s)
            self._look_at(bound, job, policy, now_s, changed=key in changed)
        self._take_stock(jobs, gpus, now_s)
        for key, job in everyone.items():
            now = self._now.get(key)
            standing = _later(now.standing, self._clock_set_by_s) if now else NOT_BOUND
            if job.set(fair=standing):
                changed.add(key)

    def _those_that_count(self, everyone: Iterable[Job], now_s: float) -> Mapping[str, Job]:
        """Return the jobs that run, or that only lack resources."""
        jobs: dict[str, Job] = {}
        blocked_since_s: dict[str, float] = {}
        for job in everyone:
            key = job.job_id
            if not job.managed or not job.gpus_asked or job.lane is not Lane.PREEMPTIBLE:
                continue
            if job.state is not JobState.RUNNING and blocked_by_slurm(job):
                since_s = self._blocked_since_s.get(key, now_s)
                blocked_since_s[key] = since_s
                if key not in self._counted or now_s - since_s > COUNTS_ANEW_AFTER_S:
                    continue
            jobs[key] = job
        self._blocked_since_s = blocked_since_s
        return jobs

    def _take_stock(self, jobs: Mapping[str, Job], gpus: int, now_s: float) -> None:
        """Tell whether the bound can be kept for all jobs at once."""
        waiting = [key for key, now in self._now.items() if now.standing.at_bound]
        kept = [key for key, now in self._now.items() if now.standing.kept_until_s > now_s]
        needed = sum(jobs[key].width for key in (*waiting, *kept))
        self.warning = ""
        if waiting and needed > gpus:
            self.warning = (
                f"policy.max_slowdown = {self._config.policy.max_slowdown:g} cannot be kept for "
                f"all jobs now: {len(waiting)} that wait and {len(kept)} that run would need "
                f"{needed} GPUs at once, of {gpus}"
            )

    def _look_at(
        self, bound: SlowdownBound, job: Job, policy: Policy, now_s: float, *, changed: bool
    ) -> None:
        """Update how a job stands, unless it cannot have changed."""
        run_s = self._runs.executed_s(job.job_id) - self._counted[job.job_id].ran_before_s
        self._ran_s[job.job_id] = run_s
        before = self._now.get(job.job_id)
        remaining_gpu_s = policy.remaining_gpu_s(job)
        if before is not None:
            runs = job.state is JobState.RUNNING
            # The slack of a waiting job falls by at most a second each second.
            waits_on = not runs and not changed
            if waits_on and now_s < before.must_run_by_s - bound.margin_s(job):
                return
            # Otherwise the end of this protection would move with each cycle.
            kept = now_s < before.standing.kept_until_s
            if runs and kept and remaining_gpu_s is None and not before.length_known:
                return
        slack, standing = bound.look_at(job, run_s, remaining_gpu_s, now_s)
        self._now[job.job_id] = BoundNow(standing, now_s + slack.slack_s, slack.known)

    def _enter(self, bound: SlowdownBound, job: Job, since_s: float, now_s: float) -> None:
        key = job.job_id
        if key in self._ended:
            bound.shares.forget(key)
            self._ended.remove(key)
        bound.enter(key, job.gpus_asked, since_s, now_s)
        runs = self._runs.of(key)
        until_s = since_s + self._clock_set_by_s
        self._counted[key] = _Counted(since_s, sum(_ran_before_s(run, until_s) for run in runs))

    def _leave(self, bound: SlowdownBound, key: str) -> None:
        counted = self._counted.pop(key)
        # Its runs may be in the ledger only by now.
        ran_s = max(self._ran_s.pop(key, 0.0), self._runs.executed_s(key) - counted.ran_before_s)
        bound.leave(key, ran_s)
        self._ended.add(key)
        self._now.pop(key, None)

    def _reckoned(self, jobs: Mapping[str, Job], gpus: int, now_s: float) -> SlowdownBound:
        """Reckon the fair shares of the jobs that Slurm has now from what the ledger knows."""
        bound = SlowdownBound(self._config, gpus)
        least_s = now_s - LOOKS_BACK_S
        came: list[tuple[float, str]] = []
        for job in jobs.values():
            came.append((min(now_s, max(least_s, _may_start_since_s(job))), job.job_id))
        first_s = min((since_s for since_s, _ in came), default=now_s)
        ended = {
            account.key: account
            for account in self._ledger.jobs.alive_since(first_s)
            if account.ended_s is not None and account.key not in jobs
        }
        runs = self._ledger.runs.since(first_s) if ended else {}
        came += [(max(first_s, account.submitted_s), key) for key, account in ended.items()]
        for since_s, key in sorted(came):
            if key in jobs:
                self._enter(bound, jobs[key], since_s, since_s)
            elif key in runs:
                ran_s = sum(run.elapsed_s for run in runs[key])
                bound.enter(key, max(1, runs[key][-1].gpus), since_s, since_s)
                bound.leave(key, ran_s)
                self._ended.add(key)
        return bound


def _later(standing: FairStanding, by_s: float) -> FairStanding:
    return standing._replace(kept_until_s=standing.kept_until_s + by_s) if by_s else standing


def _may_start_since_s(job: Job) -> float:
    """Return since when Slurm might have started a job; its submission once it has been requeued,
    because that time is not Slurm's own then."""
    eligible_s = job.status.eligible_s
    if eligible_s is None or job.status.restarts:
        return job.submitted_s
    return max(job.submitted_s, eligible_s)


def _ran_before_s(run: RunRecord, until_s: float) -> float:
    return max(0.0, min(run.elapsed_s, until_s - run.start_s))
