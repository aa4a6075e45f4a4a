"""Which victims are sent their checkpoint signals, and what their answers mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from slurm_tiresias.controller.acting.under_way import UnderWay
from slurm_tiresias.controller.prospects import lacks_only_resources, partitions_tried_later
from slurm_tiresias.controller.turns import Awaited, Turns, turns
from slurm_tiresias.core.lifecycle.preemption import (
    Preemption,
    PreemptionState,
    PreemptorTried,
    SendSignal,
    SignalHeard,
    SignalRefused,
    SignalUnanswered,
    StillLeaves,
)
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.job.requests import DUMP_SIGNAL
from slurm_tiresias.model import JobStatus, Plan
from slurm_tiresias.progress.saving import checkpoint_for
from slurm_tiresias.settings.preemption import Checkpoint

DUMPED = "hung-dumped"
"""The event of a job that was told to print its stacks."""


class Signaller:
    """Sends victims their checkpoint signals, with which their graces begin."""

    def __init__(self, under_way: UnderWay) -> None:
        self._under_way = under_way
        self._awaited: dict[str, Awaited] = {}
        """Jobs that may preempt only after others that share a limit with them have started."""

    @property
    def awaited_limits(self) -> Mapping[str, str]:
        """The limits that jobs share with others which must start before them, by job."""
        return {key: awaited.limit for key, awaited in self._awaited.items()}

    def review(self) -> None:
        """Forget the jobs that no longer wait for others to start."""
        self._awaited = {
            key: awaited
            for key, awaited in self._awaited.items()
            if any(self._under_way.is_about_to_start(other) for other in awaited.others)
        }

    def signal(self, plan: Plan, told: Collection[str]) -> None:
        """Signal the victims that are to leave now; ``told`` are the jobs written to this cycle."""
        under_way = self._under_way
        tried = self._victims_of_tried(plan, told)
        found = self._turns(tried.keys())
        for key, awaited in found.later.items():
            self._awaited[key] = awaited
            # Its node list would keep the jobs that it waits for off these nodes.
            under_way.withdraw(key)
            for victim in tried[key]:
                if victim.preemptor == key:
                    under_way.call_off(victim.key)
        due: dict[str, type[PreemptorTried] | type[StillLeaves]]
        due = {victim.key: PreemptorTried for key in found.now for victim in tried[key]}
        due |= {
            one.key: StillLeaves
            for one in under_way.preemptions(PreemptionState.PLANNED, for_job=False)
            if under_way.has_to_leave(one, plan)
        }
        signalled: dict[str, list[str]] = {}
        """The victims to signal, by signal."""
        for key, event in due.items():
            checkpoint, asks = self._checkpoint(under_way.jobs[key])
            effects = under_way.tell(key, event(under_way.now_s, checkpoint.grace_s, asks))
            if any(isinstance(effect, SendSignal) for effect in effects):
                signalled.setdefault(checkpoint.signal, []).append(key)
        self._send(signalled)

    def dump(self, keys: Sequence[str]) -> None:
        """Make jobs that hang print their stacks. A controller that is killed may do it twice."""
        store = self._under_way.job_store
        refused = self._under_way.slurm.signal(keys, DUMP_SIGNAL.name) if keys else {}
        for key in keys:
            account = store.accounts.of(key)
            if account is not None:
                store.accounts.put(replace(account, dumped_run=account.restarts))
                text = refused.get(key, f"restart {account.restarts}")
                store.events.note(self._under_way.now_s, DUMPED, key, text)

    def _victims_of_tried(
        self, plan: Plan, told: Collection[str]
    ) -> Mapping[str, Sequence[Preemption]]:
        """Return the preemptors that Slurm has found to lack only resources, with the victims that
        they await and that have not been signalled.

        A preemptor in ``told`` was written to in this cycle, so its observed reason is older than
        its nomination: a licence that was free then may have been taken since. The update makes
        Slurm forget the reason and try the job again at once.
        """
        under_way = self._under_way
        victims: dict[str, Sequence[Preemption]] = {}
        tried_later = partitions_tried_later(under_way.seen)
        for key, awaited in under_way.awaited_victims().items():
            planned = [
                one
                for one in awaited
                if one.state is PreemptionState.PLANNED and under_way.has_to_leave(one, plan)
            ]
            if not planned or key in told or not under_way.is_awaited(key):
                continue
            preemptor = under_way.jobs[key]
            later = not tried_later.isdisjoint(preemptor.spec.partitions)
            if lacks_only_resources(preemptor, tried_later=later):
                victims[key] = planned
        return victims

    def _turns(self, ready: Collection[str]) -> Turns:
        """Decide which of the ``ready`` preemptors may preempt now."""
        if not ready:
            return Turns()
        under_way = self._under_way
        starting = filter(under_way.is_about_to_start, under_way.nominations)
        preemptions = under_way.preemptions(for_job=True)
        leaving = {one.preemptor for one in preemptions if one.is_leaving}

        def place(job: JobStatus) -> tuple[bool, int, int]:
            """Sort by Slurm's order, but jobs whose victims are already leaving come first."""
            return job.key not in leaving, -job.priority, job.raw_id

        in_order = sorted((under_way.jobs[key] for key in {*starting, *ready}), key=place)
        specs = [job.spec for job in in_order]
        return turns(specs, ready, under_way.slurm.limits(specs))

    def _send(self, by_signal: Mapping[str, Sequence[str]]) -> None:
        """Send victims their checkpoint signals, and apply the answers."""
        under_way = self._under_way
        unsent = [key for keys in by_signal.values() for key in keys]
        for signal, keys in by_signal.items():
            unsent = unsent[len(keys) :]
            try:
                refused = under_way.slurm.signal(keys, signal) if signal else {}
            except TiresiasError:
                for key in keys:
                    under_way.tell(key, SignalUnanswered())
                for key in unsent:
                    under_way.tell(key, SignalUnanswered(sent=False))
                raise
            for key in keys:
                words = refused.get(key)
                refusal = None if words is None else SignalRefused(under_way.now_s, signal, words)
                under_way.tell(key, refusal or SignalHeard())

    def _checkpoint(self, job: JobStatus) -> tuple[Checkpoint, bool]:
        """Return a victim's signal and grace, and whether that signal asks it to save."""
        over_budget = job.spec.user in self._under_way.job_store.users_over_budget
        progress, config = self._under_way.progress_of(job.key), self._under_way.config.preemption
        return checkpoint_for(job, progress, config, self._under_way.now_s, over_budget=over_budget)
