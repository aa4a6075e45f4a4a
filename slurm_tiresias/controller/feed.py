"""What the core is told: an observation joined with the job store's knowledge of its jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.progress import ProgressTracker
from slurm_tiresias.controller.prospects import Prospect, Prospects, why_cannot_be_requeued
from slurm_tiresias.core.features.at_stake import work_at_stake
from slurm_tiresias.core.job import Job
from slurm_tiresias.model import (
    JobAccount,
    JobSpec,
    JobState,
    JobStatus,
    Node,
    ProgramCosts,
    Request,
    WorkAtStake,
)
from slurm_tiresias.profiler.placing import Placing
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.notation import node_names
from slurm_tiresias.slurm.protocol import Observation, Partition

_OF_ACCOUNT = (
    *("name", "submitted_s", "lane", "tier", "tier_entered_s", "first_started_s", "queued_s"),
    *("preemptions", "promotions", "boosted_until_s"),
)
"""What a job has as its account has it."""


@dataclass(frozen=True, slots=True)
class Backoffs:
    """Jobs whose nominations expired.

    No job is preempted for those ``backing_off``; those ``cooling_down`` are not nominated at all.
    """

    backing_off: frozenset[str] = frozenset()
    in_vain: frozenset[str] = frozenset()
    """Jobs of ``backing_off`` for which other jobs were preempted in vain."""
    cooling_down: frozenset[str] = frozenset()
    awaited_limits: Mapping[str, str] = field(default_factory=dict)
    """The limit that a job shares with others which must start before it may preempt, by job."""


@dataclass(slots=True, eq=False)
class Feed:
    """Keeps the core's jobs in line with what is observed.

    Few of thousands of jobs change from one observation to the next: the core is told of those
    only.
    """

    job_store: JobStore
    config: Config
    placing: Callable[[JobSpec], Placing] | None = None
    """Gives the best placement of a job; None leaves placement open."""
    why_reports_stopped: Callable[[JobStatus, float], str] | None = None
    """Says why a job's last report does not count at a given time; "" if it does."""
    progress: ProgressTracker | None = None
    """Has the progress that jobs reported."""
    costs_of: Callable[[str, str], ProgramCosts | None] = lambda _user, _name: None
    """Gives the cost of a preemption, by user and job name; None until one was measured."""
    jobs: dict[str, Job] = field(default_factory=dict)
    """The jobs of the last observation."""
    nodes: tuple[Node, ...] = ()
    """The nodes of the last observation, as the core sees them."""
    changed: set[str] = field(default_factory=set)
    """The jobs of which more than the service has changed since the core was last told."""
    _by_raw_id: dict[int, Job] = field(default_factory=dict)
    """The running jobs, and some that have run, by the numbers of their records."""
    _save_every_s: dict[str, float] = field(default_factory=dict)
    """The time between two saves of each job that has saved."""
    _counted: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By job, what its service was counted from: the version of its runs, its promotions."""
    _requests: dict[str, tuple[tuple[object, ...], Request]] = field(default_factory=dict)
    """By job, its request, and what that was made from."""
    _capped: dict[str, tuple[Node, Node]] = field(default_factory=dict)
    """Nodes by name: as observed, and as the core sees them."""
    _prospects: Prospects = field(init=False)

    def __post_init__(self) -> None:
        self._prospects = Prospects(self.config.preemption, self.job_store.in_hand)

    def follow(self, seen: Observation, backoffs: Backoffs) -> None:
        """Follow an observation that the job store has taken in."""
        alive = [job for job in seen.jobs if job.state is not None]
        before, self.jobs = self.jobs, {}
        for status in alive:
            job = before.get(status.key)
            if job is None:
                job = Job(status.key, status.spec.request)
                self.changed.add(status.key)
            self.jobs[status.key] = job
        self._follow_jobs(alive, seen, backoffs)
        for key in before.keys() - self.jobs.keys():
            self._by_raw_id.pop(before[key].status.raw_id, None)
            before[key].run_s = max(before[key].run_s, self.job_store.runs.executed_s(key))
        for known in (self._save_every_s, self._counted, self._requests):
            for key in known.keys() - self.jobs.keys():
                del known[key]
        self.nodes = self._nodes_with_cpus_for_us(seen, alive)

    def running(self, raw_id: int) -> Job | None:
        """Return the running job with this number; None if there is none."""
        job = self._by_raw_id.get(raw_id)
        return job if job is not None and job.state is JobState.RUNNING else None

    def _nodes_with_cpus_for_us(
        self, seen: Observation, alive: Iterable[JobStatus]
    ) -> tuple[Node, ...]:
        """Cap each node's CPUs by the MaxCPUsPerNode of its managed partition.

        CPUs held there by jobs of other partitions are added. If several managed partitions share a
        node, this limit is left to Slurm.
        """
        managed = self.config.manage.partitions
        bounds = {
            one.name: one.most_cpus_per_node
            for one in seen.partitions
            if one.name in managed and one.most_cpus_per_node is not None
        }
        if not bounds:
            return seen.nodes
        others_cpus: dict[tuple[str, str], int] = {}
        for job in alive:
            if job.state is JobState.RUNNING:
                for name, amount in job.allocation.items():
                    for partition in bounds.keys() - set(job.spec.partitions):
                        key = (name, partition)
                        others_cpus[key] = others_cpus.get(key, 0) + amount.cpus
        made: dict[str, tuple[Node, Node]] = {}
        for node in seen.nodes:
            mine = node.partitions.intersection(managed)
            partition = next(iter(mine)) if len(mine) == 1 else ""
            if partition not in bounds:
                made[node.name] = (node, node)
                continue
            cpus = bounds[partition] + others_cpus.get((node.name, partition), 0)
            total = replace(node.total, cpus=min(node.total.cpus, cpus))
            before = self._capped.get(node.name)
            kept = before is not None and before[0] == node and before[1].total == total
            made[node.name] = before if before and kept else (node, replace(node, total=total))
        self._capped = made
        return tuple(node for _, node in made.values())

    def _follow_jobs(
        self, alive: Sequence[JobStatus], seen: Observation, backoffs: Backoffs
    ) -> None:
        job_store, accounts = self.job_store, self.job_store.accounts.all
        managed = {
            job.key for job in alive if job.key in accounts and not job_store.why_unmanaged(job.key)
        }
        nominations = job_store.lifecycles.nominations
        prospects = self._prospects.follow(seen, alive, managed, nominations)
        for status in job_store.in_hand.each(alive):
            key, job = status.key, self.jobs[status.key]
            prospect = prospects.get(key)
            account = accounts[key] if prospect else JobAccount.opened(status)
            if self.progress:
                job.progress = self.progress.of(key)
            shown_anew, job.status_in_slurm = job.status_in_slurm is not status, status
            known_anew, job.account_in_ledger = job.account_in_ledger is not account, account
            if prospect is None:
                facts = {
                    "managed": False,
                    "unmanaged_because": job_store.why_unmanaged(key),
                    "request": status.spec.request,
                    "running_since_s": status.start_s,
                }
            else:
                facts = self._facts_of_managed(job, status, account, prospect, backoffs, seen.at_s)
            facts["gpu_weights"] = job_store.runs.gpu_weights
            if shown_anew:
                facts |= _facts_of_status(status)
                if status.state is JobState.RUNNING:
                    self._by_raw_id[status.raw_id] = job
            if known_anew:
                facts |= _facts_of_account(account)
            changed = job.set(**facts)
            if changed:
                job.count_gpus()
            if prospect is not None:
                changed |= self._follow_service(job, account, seen.at_s)
            if changed or known_anew:
                self.changed.add(key)

    def _facts_of_managed(
        self,
        job: Job,
        status: JobStatus,
        account: JobAccount,
        prospect: Prospect,
        backoffs: Backoffs,
        now_s: float,
    ) -> dict[str, Any]:
        key = status.key
        runs, lifecycles = self.job_store.runs, self.job_store.lifecycles
        under_way, nomination = lifecycles.preemptions.get(key), lifecycles.nominations.get(key)
        job.run_records, job.preemption = runs.of(key), under_way
        placed = self.placing(status.spec) if self.placing else None
        stopped = ""
        if self.why_reports_stopped and account.claim:
            stopped = self.why_reports_stopped(status, now_s)
        costs = self.costs_of(account.user, account.name)
        since_s = runs.running_since_s(status)
        facts = {
            "managed": True,
            "unmanaged_because": "",
            "request": self._request(status, account, prospect),
            "running_since_s": since_s,
            "in_slurm": prospect.requeued,
            "program_costs": costs,
            "habit": self.progress.habit_of(account) if self.progress else None,
            "not_eligible": prospect.why_not,
            "nominated_to": nomination.allocated() if nomination else None,
            "preemptor": under_way.preemptor if under_way and under_way.makes_room else "",
            "backs_off": key in backoffs.backing_off,
            "in_vain": key in backoffs.in_vain,
            "cools_down": key in backoffs.cooling_down,
            "awaited_limit": backoffs.awaited_limits.get(key, ""),
            "claim": None if stopped else account.claim,
            "reports_stopped": stopped,
            "at_stake": None if since_s is None else self._at_stake(job, since_s, costs),
            "skew": placed.skew if placed else None,
            "style": placed.style if placed else None,
            "style_because": placed.because if placed else "",
        }
        if self.progress and account.preemptions:
            facts["past_progress"] = self.progress.past_runs(key)
        return facts

    def _follow_service(self, job: Job, account: JobAccount, now_s: float) -> bool:
        """Return whether the core must be told; it follows the service of running jobs itself."""
        runs, key = self.job_store.runs, account.key
        job.settled_s = now_s
        counted = (runs.learned(key), account.promotions)
        if self._counted.get(key) == counted:
            return False
        self._counted[key] = counted
        attained_gpu_s, executed_s = runs.attained_gpu_s(key), runs.executed_s(key)
        grown = job.set(
            run_s=executed_s,
            attained_gpu_s=attained_gpu_s,
            attained_since_promotion_gpu_s=attained_gpu_s - account.promoted_at_gpu_s,
            executed_since_promotion_s=executed_s - account.promoted_at_executed_s,
        )
        return grown and job.state is not JobState.RUNNING

    def _request(self, job: JobStatus, account: JobAccount, prospect: Prospect) -> Request:
        """Return the request to place now; made anew only from something else."""
        own_nodes = account.own_nodes if account.written_nodes else None
        made_from = (job.spec.request, own_nodes, prospect.kept_off, prospect.taken_by)
        known = self._requests.get(job.key)
        if known and known[0] == made_from:
            return known[1]
        request = job.spec.request
        if own_nodes is not None:
            request = replace(request, required_nodes=frozenset(node_names(own_nodes)))
        if prospect.kept_off:
            request = replace(request, reserved_nodes=prospect.kept_off)
        if prospect.taken_by:
            request = _within(request, prospect.taken_by)
        self._requests[job.key] = made_from, request
        return request

    def _at_stake(self, job: Job, since_s: float, costs: ProgramCosts | None) -> WorkAtStake | None:
        progress = job.progress
        if progress is not None and progress.restarts != job.status.restarts:
            progress = None
        stake = work_at_stake(since_s, progress, costs, self._save_every_s.get(job.job_id))
        saved = progress is not None and progress.saved_s is not None
        if saved and stake is not None and stake.save_due_s is not None:
            # The next run of the job is expected to save as often, from its start on.
            self._save_every_s[job.job_id] = stake.save_due_s - stake.unsaved_since_s
        return stake


def _facts_of_status(status: JobStatus) -> dict[str, Any]:
    return {
        "user": status.spec.user,
        "time_limit_s": status.spec.time_limit_s,
        "state": status.state,
        "held": status.held,
        "allocation": status.allocation,
        "cannot_be_requeued": why_cannot_be_requeued(status.spec),
        "at_a_prompt": not status.spec.batch,
    }


def _facts_of_account(account: JobAccount) -> dict[str, Any]:
    facts = {name: getattr(account, name) for name in _OF_ACCOUNT}
    return {"bank_account": account.account, **facts}


def _within(request: Request, partitions: tuple[Partition, ...]) -> Request:
    """Restrict a request to partitions that would start it, and to their largest MaxNodes."""
    names = tuple(one.name for one in partitions)
    bounds = [one.most_nodes for one in partitions if one.most_nodes is not None]
    most_nodes = request.max_nodes
    if len(bounds) == len(names):
        most_nodes = max(bounds) if most_nodes is None else min(most_nodes, max(bounds))
    if (names, most_nodes) == (request.partitions, request.max_nodes):
        return request
    return replace(request, partitions=names, max_nodes=most_nodes)
