"""Which victims are sent their checkpoint signals, and what their answers mean."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from slurm_tiresias.controller.acting.under_way import UnderWay
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.manage import lacks_only_resources, partitions_tried_later
from slurm_tiresias.controller.turns import Awaited, Turns, turns
from slurm_tiresias.core.lifecycle.preemption import (
    Cause,
    PreemptionState,
    PreemptorTried,
    SendSignal,
    SignalHeard,
    SignalRefused,
    SignalUnanswered,
    StillIdle,
)
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.job_hints import Checkpoint, checkpoint_of
from slurm_tiresias.model import JobProgress, JobStatus, Plan
from slurm_tiresias.progress.saving import asked, is_asked
from slurm_tiresias.settings.preemption import PreemptionConfig
from slurm_tiresias.slurm.protocol import Observation, Slurm


class Signaller:
    """Sends victims their checkpoint signals, with which their graces begin."""

    def __init__(
        self,
        slurm: Slurm,
        job_store: JobStore,
        under_way: UnderWay,
        preemption: PreemptionConfig,
        progress_of: Callable[[str], JobProgress | None],
    ) -> None:
        self._slurm = slurm
        self._job_store = job_store
        self._under_way = under_way
        self._preemption = preemption
        self._progress_of = progress_of
        self._awaited: dict[str, Awaited] = {}
        """Jobs that may preempt only after others that share a limit with them have started."""

    @property
    def awaited_limits(self) -> Mapping[str, str]:
        """The limits that jobs share with others which must start before them, by job."""
        return {key: awaited.limit for key, awaited in self._awaited.items()}

    def review(self, jobs: Mapping[str, JobStatus]) -> None:
        """Forget the jobs that no longer wait for others to start."""
        self._awaited = {
            key: awaited
            for key, awaited in self._awaited.items()
            if any(self._under_way.is_about_to_start(other, jobs) for other in awaited.others)
        }

    def signal(
        self, plan: Plan, jobs: Mapping[str, JobStatus], told: Collection[str], seen: Observation
    ) -> None:
        """Signal the victims that are to leave now; ``told`` are the jobs written to this cycle."""
        tried = self._victims_of_tried(plan, jobs, told, seen)
        found = self._turns(tried.keys(), jobs)
        for key, awaited in found.later.items():
            self._awaited[key] = awaited
            # Its node list would keep the jobs that it waits for off these nodes.
            self._under_way.withdraw(key)
            for victim in tried[key]:
                self._under_way.call_off(victim)
        due: list[tuple[str, type[PreemptorTried] | type[StillIdle]]]
        due = [(victim, PreemptorTried) for key in found.now for victim in tried[key]]
        due += [
            (one.key, StillIdle)
            for one in self._under_way.preemptions(PreemptionState.PLANNED, cause=Cause.IDLE_GPUS)
            if self._under_way.has_to_leave(one, plan, jobs)
        ]
        signalled: list[str] = []
        for key, event in due:
            asks = self._is_asked(jobs[key], seen.at_s)
            grace_s = self._checkpoint(jobs[key], asks=asks).grace_s
            effects = self._under_way.tell(key, event(seen.at_s, grace_s, asks))
            signalled += [key for effect in effects if isinstance(effect, SendSignal)]
        self._send(signalled, jobs, seen.at_s)

    def _victims_of_tried(
        self, plan: Plan, jobs: Mapping[str, JobStatus], told: Collection[str], seen: Observation
    ) -> Mapping[str, Sequence[str]]:
        """Return the preemptors that Slurm has found to lack only resources, with their victims.

        A preemptor in ``told`` was written to in this cycle, so its observed reason is older than
        its nomination: a licence that was free then may have been taken since. The update makes
        Slurm forget the reason and try the job again at once.
        """
        victims: dict[str, list[str]] = {}
        tried_later = partitions_tried_later(seen)
        for one in self._under_way.preemptions(PreemptionState.PLANNED, cause=Cause.FOR_JOB):
            if not self._under_way.has_to_leave(one, plan, jobs):
                continue
            preemptor = jobs[one.preemptor]
            later = not tried_later.isdisjoint(preemptor.spec.partitions)
            if one.preemptor not in told and lacks_only_resources(preemptor, tried_later=later):
                victims.setdefault(one.preemptor, []).append(one.key)
        return victims

    def _turns(self, ready: Collection[str], jobs: Mapping[str, JobStatus]) -> Turns:
        """Decide which of the ``ready`` preemptors may preempt now."""
        if not ready:
            return Turns()
        starting = {
            key
            for key in self._job_store.lifecycles.nominations
            if self._under_way.is_about_to_start(key, jobs)
        }
        under_way = self._under_way.preemptions(cause=Cause.FOR_JOB)
        leaving = {one.preemptor for one in under_way if one.is_leaving}

        def place(job: JobStatus) -> tuple[bool, int, int]:
            """Sort by Slurm's order, but jobs whose victims are already leaving come first."""
            return job.key not in leaving, -job.priority, job.raw_id

        in_order = sorted((jobs[key] for key in starting.union(ready)), key=place)
        specs = [job.spec for job in in_order]
        return turns(specs, ready, self._slurm.limits(specs))

    def _send(self, victims: Collection[str], jobs: Mapping[str, JobStatus], now_s: float) -> None:
        """Send victims their checkpoint signals, and apply the answers."""
        by_signal: dict[str, list[str]] = {}
        for key in victims:
            asks = self._job_store.lifecycles.preemptions[key].asked
            signal = self._checkpoint(jobs[key], asks=asks).signal
            by_signal.setdefault(signal, []).append(key)
        unsent = list(victims)
        for signal, keys in by_signal.items():
            unsent = [key for key in unsent if key not in keys]
            try:
                refused = self._slurm.signal(keys, signal) if signal else {}
            except TiresiasError:
                for key in keys:
                    self._under_way.tell(key, SignalUnanswered())
                for key in unsent:
                    self._under_way.tell(key, SignalUnanswered(sent=False))
                raise
            for key in keys:
                words = refused.get(key)
                refusal = None if words is None else SignalRefused(now_s, signal, words)
                self._under_way.tell(key, refusal or SignalHeard())

    def _is_asked(self, job: JobStatus, now_s: float) -> bool:
        """Whether a victim is asked to save instead of signalled."""
        over_budget = job.spec.user in self._job_store.users_over_budget
        own, progress = self._checkpoint(job, asks=False), self._progress_of(job.key)
        restarts, config = job.restarts, self._preemption
        return is_asked(own, restarts, progress, config, now_s, over_budget=over_budget)

    def _checkpoint(self, job: JobStatus, *, asks: bool) -> Checkpoint:
        """Return a victim's signal and grace; ``asks``: it is asked to save instead."""
        if asks:
            return asked(self._preemption)
        spec = job.spec
        over_budget = spec.user in self._job_store.users_over_budget
        return checkpoint_of(spec.admin_comment, spec.comment, self._preemption, over_budget)
