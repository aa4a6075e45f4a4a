"""What a decision sees: an observation together with what the book knows of its jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from slurm_tiresias.config import Config
from slurm_tiresias.controller.account import Book, Shown
from slurm_tiresias.controller.ledger import JobRecord
from slurm_tiresias.controller.lifecycle.nomination import Nomination
from slurm_tiresias.controller.manage import (
    has_no_word,
    is_a_word_of_slurm,
    is_protected,
    why_not_eligible,
)
from slurm_tiresias.model import Guard, Job, JobState, Snapshot
from slurm_tiresias.policy.standing import job_id_key
from slurm_tiresias.profiler.placing import Placing
from slurm_tiresias.slurm.protocol import Observation, ObservedJob
from slurm_tiresias.slurm.text import node_names

NO_NODES: frozenset[str] = frozenset()

ARRAY_LIMIT = "JobArrayTaskLimit"
"""Slurm's word for a task that waits because enough of its array run."""


@dataclass(frozen=True, slots=True)
class Rests:
    """Jobs whose claims came to nothing: which get no victims, and which no claim at all yet."""

    given_up: frozenset[str] = frozenset()
    resting: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Made:
    """A job of the last snapshot, and what it was made of."""

    of: tuple[object, ...]
    job: Job


class View:
    """Makes snapshots. Of thousands of jobs few differ from one to the next: the others are the
    same objects again."""

    def __init__(
        self,
        book: Book,
        config: Config,
        placing: Callable[[ObservedJob], Placing] | None = None,
    ) -> None:
        """``placing`` tells how a job had better be placed; without it that is left open."""
        self._book = book
        self._config = config
        self._placing = placing
        self._made: dict[str, _Made] = {}
        self._last_words: dict[str, str] = {}
        """Slurm's last reason to keep a job waiting for more than room, by job."""

    def snapshot(self, seen: Observation, rests: Rests) -> Snapshot:
        """The decision's view of an observation that ``observe`` has taken in."""
        alive = [job for job in seen.jobs if job.state is not None]
        over = self._beyond_array_limits(alive)
        waits = self._why_not_eligible(alive, seen.at_s)
        limits = dict.fromkeys(over, ARRAY_LIMIT) | waits
        over_budget = self._book.over_budget(seen.at_s, self._managed_gpus(seen))
        self._made = {
            job.key: self._made_now(job, seen, rests, limits.get(job.key, ""), over_budget)
            for job in alive
        }
        return Snapshot(seen.at_s, seen.nodes, tuple(made.job for made in self._made.values()))

    def _managed_gpus(self, seen: Observation) -> int:
        managed = self._config.manage.partitions
        return sum(n.total.gpu_count for n in seen.nodes if not n.partitions.isdisjoint(managed))

    def _made_now(
        self,
        job: ObservedJob,
        seen: Observation,
        rests: Rests,
        not_eligible: str,
        over_budget: frozenset[str],
    ) -> _Made:
        """The job as the decision sees it; the one of the last cycle, where all is as it was."""
        now_s = seen.at_s
        shown = self._book.shown(job.key)
        record = self._book.record(job.key)
        under_way = self._book.preemptions.get(job.key)
        known = (
            record,
            self._book.nominations.get(job.key),
            under_way.preemptor if under_way and under_way.makes_room else "",
            self._book.inherited_gpu_s(record, now_s) if record else 0.0,
            self._placing(job) if self._placing else None,
            not_eligible,
            job.key in rests.given_up,
            job.key in rests.resting,
            job.state is JobState.PENDING and job.user in over_budget,
            self._reserved_from(job, seen) if seen.reservations else NO_NODES,
        )
        made_of = (shown, self._book.runs.learned(job.key), *known)
        before = self._made.get(job.key)
        if before is not None and before.of == made_of:
            return before
        return _Made(made_of, self._new_job(shown, *known))

    def _why_not_eligible(self, alive: Iterable[ObservedJob], now_s: float) -> dict[str, str]:
        """Which jobs are not eligible, and why.

        Whatever is written to a job makes Slurm forget its reason until it looks at the job again.
        Till then the last one holds: a job that waits for another has not been freed by that.
        """
        waits: dict[str, str] = {}
        words: dict[str, str] = {}
        for job in alive:
            why = why_not_eligible(job, now_s)
            if is_a_word_of_slurm(job, why):
                words[job.key] = why
            elif not why and has_no_word(job) and job.key in self._last_words:
                why = words[job.key] = self._last_words[job.key]
            if why:
                waits[job.key] = why
        self._last_words = words
        return waits

    def _reserved_from(self, job: ObservedJob, seen: Observation) -> frozenset[str]:
        """The nodes that are reserved before a waiting job could end if it were started now."""
        if job.state is not JobState.PENDING:
            return NO_NODES
        limit_s = math.inf if job.time_limit_s is None else job.time_limit_s
        until_s = seen.at_s + self._config.preemption.start_bound_s + limit_s
        return NO_NODES.union(
            *(r.nodes for r in seen.reservations if r.start_s < until_s and seen.at_s < r.end_s)
        )

    def _beyond_array_limits(self, alive: Iterable[ObservedJob]) -> set[str]:
        """Waiting tasks of arrays that may run no more at once (``--array=0-9%2``)."""
        arrays: dict[int, list[ObservedJob]] = {}
        for job in alive:
            if job.array_id is not None and job.array_limit:
                arrays.setdefault(job.array_id, []).append(job)
        over: set[str] = set()
        for tasks in arrays.values():
            limit = min(task.array_limit or 0 for task in tasks)
            running = sum(task.state is JobState.RUNNING for task in tasks)
            waiting = [task.key for task in tasks if task.state is JobState.PENDING]
            waiting.sort(key=lambda key: (not self._is_claimed(key), job_id_key(key)))
            over.update(waiting[max(0, limit - running) :])
        return over

    def _is_claimed(self, key: str) -> bool:
        nomination = self._book.nominations.get(key)
        return nomination is not None and nomination.is_active

    def _new_job(
        self,
        shown: Shown,
        record: JobRecord | None,
        nomination: Nomination | None,
        preemptor: str,
        inherited_gpu_s: float,
        placing: Placing | None,
        not_eligible: str,
        given_up: bool,
        resting: bool,
        over_budget: bool,
        reserved_nodes: frozenset[str],
    ) -> Job:
        job = shown.job
        assert job.state is not None
        if shown.unmanaged or record is None:
            return Job(
                job_id=job.key,
                state=job.state,
                request=job.request,
                submitted_s=job.submit_s,
                managed=False,
                unmanaged_because=shown.unmanaged,
                allocation=job.allocation,
                running_since_s=job.start_s,
            )
        attained_gpu_s = self._book.runs.attained_gpu_s(job.key)
        request = job.request
        if record.written_nodes:
            request = replace(request, required_nodes=frozenset(node_names(record.own_nodes)))
        if reserved_nodes:
            request = replace(request, reserved_nodes=reserved_nodes)
        return Job(
            job_id=job.key,
            state=job.state,
            request=request,
            submitted_s=record.submitted_s,
            user=record.user,
            name=record.name,
            attained_gpu_s=attained_gpu_s,
            attained_since_promotion_gpu_s=attained_gpu_s - record.promoted_at_gpu_s,
            executed_since_promotion_s=self._book.runs.executed_s(job.key)
            - record.promoted_at_executed_s,
            inherited_gpu_s=inherited_gpu_s,
            first_started_s=record.first_started_s,
            tier_entered_s=record.tier_entered_s,
            queued_s=record.queued_s,
            running_since_s=self._book.runs.running_since_s(job),
            allocation=job.allocation,
            protected_by=Guard.HELD if is_protected(job) else None,
            preemptions=record.preemptions,
            promotions=record.promotions,
            held=job.held,
            not_eligible=not_eligible,
            claim=nomination.allocated() if nomination else None,
            vacating_for=preemptor,
            given_up=given_up,
            resting=resting,
            over_budget=over_budget,
            skew=placing.skew if placing else None,
            style=placing.style if placing else None,
            style_because=placing.because if placing else "",
        )
