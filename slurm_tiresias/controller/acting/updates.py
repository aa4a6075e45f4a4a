"""The updates of jobs in which Slurm differs from the plan, or from its own ways in a release."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from slurm_tiresias.controller.accounts import STATE_SAVED_WITHIN_S
from slurm_tiresias.controller.acting.under_way import UnderWay
from slurm_tiresias.controller.bands import ShownFactors
from slurm_tiresias.controller.difference import (
    Difference,
    from_decision,
    handed_back,
    has_unwritten_band,
    is_pending,
    let_go,
    node_list,
    unpinned,
    without_band,
    without_lists,
)
from slurm_tiresias.model import Action, Decision, JobAccount, JobStatus, Plan
from slurm_tiresias.slurm.hostlist import array_tasks
from slurm_tiresias.slurm.protocol import Update, Write

JobWrite = tuple[JobStatus, Write]


class Updates:
    """Finds the updates that are due, and records what to remember of them."""

    def __init__(self, under_way: UnderWay) -> None:
        self._under_way = under_way
        self._job_store = under_way.job_store
        self._config = under_way.config
        self._unpinned: frozenset[str] = frozenset()
        """Jobs whose priority was reset but is still in a band: it is Slurm's own."""
        self._shown_factors = ShownFactors()
        self._own_list_since_s: dict[str, float] = {}
        """By job, the steady-clock time since when Slurm has shown the user's own node list."""

    def to_plan(self, plan: Plan) -> Sequence[Write]:
        """Bring priorities and node lists in line with the plan."""
        updates, jobs = self._taken_back(plan), self._under_way.jobs
        differences = (
            self._difference(job, decision)
            for key, decision in self._job_store.in_hand.each(plan.decisions.items())
            if (job := jobs.get(key)) is not None
        )
        updates += self._remembered(filter(None, differences))
        self._shown_factors.keep(jobs)
        # Nominations on named nodes first: until they stand, Slurm might give those nodes away.
        updates.sort(key=lambda pair: not (isinstance(pair[1], Update) and pair[1].node_list))
        return with_arrays_whole(updates)

    def to_own_lists(self) -> Sequence[Write]:
        """Restore the users' own node lists of waiting jobs."""
        accounts, jobs = self._job_store.accounts, self._under_way.jobs
        known = ((job, accounts.of(key)) for key, job in jobs.items())
        differences = [node_list(job, record, None) for job, record in known if record is not None]
        return [write for _, write in self._remembered(differences)]

    def to_slurms_own(self) -> Sequence[Write]:
        """Return the updates that give every job's priority back to Slurm."""
        given: list[JobWrite] = []
        for job in self._under_way.jobs.values():
            record = self._job_store.accounts.of(job.key)
            if job.priority == 0:
                continue  # held or suspended: unpinning would release it
            # The ledger of a killed controller may lack a write.
            ours = is_pending(job) or record is not None
            if ours and self._has_unwritten_band(job, record):
                given.append((job, without_band(job, self._config)))
            if record is not None:
                given += [(job, write) for write in unpinned(job, record)]
        return with_arrays_whole(given)

    def _has_unwritten_band(self, job: JobStatus, record: JobAccount | None) -> bool:
        partitions = self._under_way.seen.partitions
        return has_unwritten_band(job, record, partitions, self._config)

    def _taken_back(self, plan: Plan) -> list[JobWrite]:
        """Reset the priorities of unmanaged waiting jobs that are in a band.

        etc/job_submit.lua may have taken such a job for a managed one, or its owner has changed it
        since; the ledger may have no record of either. Each job is written to once, since a site's
        own priorities may reach into the bands.
        """
        in_a_band = [
            job
            for job in self._under_way.jobs.values()
            if is_pending(job)
            and plan.decisions[job.key].action is Action.LEAVE
            and self._has_unwritten_band(job, self._job_store.accounts.of(job.key))
        ]
        found = [job for job in in_a_band if job.key not in self._unpinned]
        self._unpinned = frozenset(job.key for job in in_a_band)
        for job in found:
            text = f"priority {job.priority} is not its own"
            self._job_store.events.note(self._under_way.now_s, "unpinned", job.key, text)
        return [(job, without_band(job, self._config)) for job in found]

    def _difference(self, job: JobStatus, decision: Decision) -> Difference | None:
        """Return in what Slurm differs from a decision; None for a job without an account."""
        record = self._job_store.accounts.of(job.key)
        if record is None:
            return None
        if job.priority == 0:
            # Held or suspended: we must not release it, but its user's own node list is restored.
            return let_go(job, record)
        if decision.action is Action.LEAVE:
            return handed_back(job, record)
        nomination = self._under_way.nominations.get(job.key)
        written = record.written_site_factor
        return from_decision(
            *(job, record, nomination, decision, self._under_way.now_s, self._config),
            factor_shows=self._shown_factors.shows(job.key, job.priority, written),
            ranks_last=self._under_way.ranks_last(job.key),
            goes_by_gpu_s=self._under_way.goes_by_gpu_s(job.key),
        )

    def _remembered(self, differences: Iterable[Difference]) -> list[JobWrite]:
        """Record what differences say to remember, and return their writes."""
        writes: list[JobWrite] = []
        for one in differences:
            self._remember(one)
            writes += [(one.job, write) for write in one.writes]
        jobs = self._under_way.jobs
        self._own_list_since_s = {k: s for k, s in self._own_list_since_s.items() if k in jobs}
        return writes

    def _remember(self, difference: Difference) -> None:
        seen, key, record = self._under_way.seen, difference.job.key, difference.record
        if not difference.own_list_shown:
            self._own_list_since_s.pop(key, None)
        else:
            since_s = self._own_list_since_s.setdefault(key, seen.steady_s)
            if seen.steady_s - since_s > STATE_SAVED_WITHIN_S:
                # Even a restarted slurmctld now knows the user's own list.
                del self._own_list_since_s[key]
                record = without_lists(record)
        if record is not self._job_store.accounts.of(key):
            self._job_store.accounts.put(record)
        if difference.user_changed_nodes:
            self._under_way.withdraw(key)
        for kind, text in difference.events:
            self._job_store.events.note(seen.at_s, kind, key, text)


def with_arrays_whole(writes: Iterable[JobWrite]) -> Sequence[Write]:
    """Combine identical writes to pending tasks of an array into one write (``task_keys``).

    A write to a single task splits it off the array's record: 5,000 tasks would become 5,000
    records in slurmctld.
    """
    together: dict[Write, list[str]] = {}
    for job, write in writes:
        alike = replace(write, key=str(job.spec.array_id)) if job.unsplit_array else write
        together.setdefault(alike, []).append(write.key)
    # Array writes come last, after the tasks to start have been split off: only a write that
    # names all remaining tasks leaves them in one record.
    return [
        replace(write, key=array_tasks(keys) if len(keys) > 1 else keys[0])
        for write, keys in sorted(together.items(), key=lambda pair: len(pair[1]) > 1)
    ]
