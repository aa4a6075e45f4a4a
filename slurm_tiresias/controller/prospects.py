"""What Slurm would do with each job: whether and where it would start it now, and whether it would
start it again after a requeue."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from slurm_tiresias.controller.in_hand import InHand
from slurm_tiresias.core.job import NOT_KEPT, KeptBySlurm
from slurm_tiresias.core.lifecycle import nomination
from slurm_tiresias.core.lifecycle.nomination import Nomination
from slurm_tiresias.core.rank import job_id_key
from slurm_tiresias.core.tried_first import Contender, Holder, TriedFirst
from slurm_tiresias.job_hints import first_look_until_s
from slurm_tiresias.model import JobSpec, JobState, JobStatus
from slurm_tiresias.settings.preemption import PreemptionConfig
from slurm_tiresias.slurm.protocol import Observation, Partition

NO_NODES: frozenset[str] = frozenset()

ARRAY_LIMIT = "JobArrayTaskLimit"
"""Slurm's reason for a task that waits because its array runs as many tasks as it may."""

KeptFrom = Callable[[JobStatus, float], frozenset[str]]
"""Maps a waiting job and the latest time of its end to nodes on which Slurm would not start it."""

_MERELY_WAITING = (
    "None",
    "Priority",
    "Resources",
    "ReqNodeNotAvail",
    "Nodes_required",
    "Nodes req",
)
"""Prefixes of Slurm's reasons that only mean a lack of resources. The decision itself judges
whether the nodes that a job needs are available."""


HELD_BY_OWNER = "JobHeldUser"
"""Slurm's reason for a hold by the owner, also of running jobs; an operator's is JobHeldAdmin."""

_UNAVAILABLE = "ReqNodeNotAvail, UnavailableNodes:"
_KEPT_FOR_ANOTHER = "ReqNodeNotAvail, May be reserved for other job"
"""Slurm's reason for nodes with a reservation; releases after 22.05 also give it for nodes that are
only in the node list of an earlier job in the queue."""


_ALL_NODES_KEPT = "Nodes required for job are DOWN, DRAINED or reserved"


class Prospect(NamedTuple):
    """What Slurm would do with a job."""

    why_not: str = ""
    """Its reason to keep the job waiting for more than resources; "" for none."""
    kept_off: frozenset[str] = NO_NODES
    """The nodes on which it would not start the job now."""
    taken_by: tuple[Partition, ...] | None = None
    """The partitions that would start the job; None if all do that it names."""
    requeued: KeptBySlurm = NOT_KEPT
    """What would become of the job if it were requeued."""


class Prospects:
    """Judges the managed jobs of each observation."""

    def __init__(self, config: PreemptionConfig, in_hand: InHand) -> None:
        self._config = config
        self._in_hand = in_hand
        self._last_words: dict[str, str] = {}
        """By job, Slurm's last reason to keep it waiting for more than resources."""
        self._partitions: tuple[Partition, ...] = ()
        """The partitions of the last observation."""
        self._taken_by: dict[str, tuple[JobSpec, tuple[Partition, ...]]] = {}
        """By job, its spec and which of these partitions would start it. A driver returns the same
        spec until it changes."""

    def follow(
        self,
        seen: Observation,
        alive: Sequence[JobStatus],
        managed: Collection[str],
        nominations: Mapping[str, Nomination],
    ) -> Mapping[str, Prospect]:
        """Return the prospects of the ``managed`` among the jobs that are ``alive``."""
        if seen.partitions != self._partitions:
            self._partitions, self._taken_by = seen.partitions, {}
        if self._taken_by:
            for key in self._taken_by.keys() - {job.key for job in alive}:
                del self._taken_by[key]
        over = _beyond_array_limits(alive, nominations)
        why_not = {**dict.fromkeys(over, ARRAY_LIMIT), **self._why_not_eligible(seen, alive)}
        judged = [job for job in alive if job.key in managed]
        kept_from, highest_waiting = None, math.inf
        if len({one.priority_tier for one in seen.partitions}) > 1:
            kept_from = self._kept_from(seen, alive, nominations)
            tiers = (
                self._priority_tier(job)
                for job in judged
                if job.state is JobState.PENDING and job.key not in why_not
            )
            highest_waiting = max(tiers, default=0)
        choosy = frozenset(one.name for one in seen.partitions if one.is_choosy)
        requeued_s = seen.at_s + self._config.max_grace_s + nomination.START_BOUND_S
        found: dict[str, Prospect] = {}
        for job in self._in_hand.each(judged):
            spec = job.spec
            taken_by = None if choosy.isdisjoint(spec.partitions) else self._takers_of(job)
            runs = job.state is JobState.RUNNING
            if_requeued = (
                is_protected(job),
                taken_by == (),
                is_past_deadline(spec, requeued_s),
                runs and self._priority_tier(job) > highest_waiting,
            )
            waits = job.state is JobState.PENDING
            kept = waits and (kept_from or seen.reservations)
            found[job.key] = Prospect(
                why_not.get(job.key, ""),
                self._kept_off(job, seen, kept_from) if kept else NO_NODES,
                taken_by if waits else None,
                KeptBySlurm(*if_requeued) if any(if_requeued) else NOT_KEPT,
            )
        return found

    def _takers_of(self, job: JobStatus) -> tuple[Partition, ...]:
        known = self._taken_by.get(job.key)
        if known is None or known[0] is not job.spec:
            by_name = {one.name: one for one in self._partitions}
            known = self._taken_by[job.key] = (job.spec, partitions_that_take(job.spec, by_name))
        return known[1]

    def _priority_tier(self, job: JobStatus) -> int:
        """Return the highest PriorityTier in which Slurm tries the job."""
        return max((one.priority_tier for one in self._takers_of(job)), default=0)

    def _why_not_eligible(self, seen: Observation, alive: Iterable[JobStatus]) -> Mapping[str, str]:
        """Return the jobs that are not eligible, with Slurm's reasons.

        A write to a job makes Slurm forget its reason until it tries the job again. Until then the
        last reason holds: a job that waits for a dependency has not been freed by the write.
        """
        waits: dict[str, str] = {}
        words: dict[str, str] = {}
        tried_later = partitions_tried_later(seen)
        for job in self._in_hand.each(alive):
            later = bool(tried_later) and not tried_later.isdisjoint(job.spec.partitions)
            why = why_not_eligible(job, seen.at_s, tried_later=later)
            if _is_a_word_of_slurm(job, why):
                words[job.key] = why
            elif not why and _has_no_word(job) and job.key in self._last_words:
                why = words[job.key] = self._last_words[job.key]
            if why:
                waits[job.key] = why
        self._last_words = words
        return waits

    def _kept_off(
        self, job: JobStatus, seen: Observation, kept_from: KeptFrom | None
    ) -> frozenset[str]:
        """Return the nodes that are reserved before a waiting job could end if it started now, or
        kept for a job that Slurm tries first."""
        limit_s = math.inf if job.spec.time_limit_s is None else job.spec.time_limit_s
        until_s = seen.at_s + nomination.START_BOUND_S + limit_s
        kept = kept_from(job, until_s) if kept_from else NO_NODES
        return kept.union(
            *(r.nodes for r in seen.reservations if r.start_s < until_s and seen.at_s < r.end_s)
        )

    def _kept_from(
        self, seen: Observation, alive: Sequence[JobStatus], nominations: Mapping[str, Nomination]
    ) -> KeptFrom | None:
        """Return a function for the nodes that Slurm withholds from waiting jobs for others of a
        higher PriorityTier; None if no job waits in a higher one."""
        tier_of = self._priority_tier
        has_nodes = {key for key, one in nominations.items() if one.allocated()}
        in_line = [
            job
            for job in alive
            if is_in_line(job) and job.spec.request.gpu_count and job.key not in has_nodes
        ]
        in_line.sort(key=lambda job: (-tier_of(job), -job.priority))
        least = min((tier_of(job) for job in alive if job.state is JobState.PENDING), default=0)
        contenders = [
            Contender(job.spec.request, tier_of(job)) for job in in_line if tier_of(job) > least
        ]
        if not contenders:
            return None
        holders = [
            Holder(job.allocation, (job.start_s or seen.at_s) + (job.spec.time_limit_s or math.inf))
            for job in alive
            if job.state is JobState.RUNNING
        ]
        first = TriedFirst(seen.nodes, holders, contenders)
        return lambda job, until_s: first.kept_from(job.spec.request, tier_of(job), until_s)


def _beyond_array_limits(
    alive: Iterable[JobStatus], nominations: Mapping[str, Nomination]
) -> Iterable[str]:
    """Return the waiting tasks beyond their array's limit (``--array=0-9%2``)."""
    arrays: dict[int, list[JobStatus]] = {}
    for job in alive:
        if job.spec.array_id is not None and job.spec.array_limit:
            arrays.setdefault(job.spec.array_id, []).append(job)
    nominated = {key for key, one in nominations.items() if one.is_active} if arrays else ()
    for tasks in arrays.values():
        limit = min(task.spec.array_limit or 0 for task in tasks)
        running = sum(task.state is JobState.RUNNING for task in tasks)
        waiting = [task.key for task in tasks if task.state is JobState.PENDING]
        waiting.sort(key=lambda key: (key not in nominated, job_id_key(key)))
        yield from waiting[max(0, limit - running) :]


def why_cannot_be_requeued(spec: JobSpec) -> str:
    """Why Slurm cannot requeue a job, in a few words; "" if it can."""
    if not spec.batch:
        return "a job at a prompt (salloc or srun)"
    return "" if spec.requeue else "submitted with --no-requeue"


def partitions_that_take(
    spec: JobSpec, partitions: Mapping[str, Partition]
) -> tuple[Partition, ...]:
    """Return those of a job's partitions that would start it, judging by their configuration."""
    mine = (partitions[name] for name in spec.partitions if name in partitions)
    return tuple(one for one in mine if not one.why_refused(spec))


def is_past_deadline(spec: JobSpec, at_s: float) -> bool:
    """Whether Slurm would end the job for good (DEADLINE) if it were pending at that time.

    Slurm does so once a pending job can no longer use its whole time limit before its deadline.
    """
    if spec.deadline_s is None:
        return False
    limit_s = math.inf if spec.time_limit_s is None else spec.time_limit_s
    return at_s + limit_s > spec.deadline_s


def is_protected(job: JobStatus) -> bool:
    """Whether a running job must stay: it was suspended, or held by an administrator.

    Slurm's own gang scheduling leaves a suspended job its priority. A hold by the job's owner gives
    no protection: any user could keep GPUs forever with it.
    """
    held = job.priority == 0 and job.reason.strip("()") != HELD_BY_OWNER
    return held or job.slurm_state == "SUSPENDED"


def why_not_eligible(job: JobStatus, now_s: float, *, tried_later: bool = False) -> str:
    """Return Slurm's own reason to keep a pending job from starting; "" if it only lacks resources.

    ``tried_later``: see ``partitions_tried_later``.
    """
    if job.state is not JobState.PENDING:
        return ""
    if job.held:
        return job.reason
    if job.eligible_s is not None and job.eligible_s > now_s and not is_put_off_for_us(job):
        return "BeginTime"
    reason = job.reason.strip("()")
    if _finds_its_nodes_kept(job, reason, tried_later):
        return ""
    if reason.startswith("ReqNodeNotAvail") and "eserved" in reason:
        return reason  # the nodes are up, but reserved before the job could end
    if not reason or reason.startswith(_MERELY_WAITING) or reason == "BeginTime":
        return ""
    return reason


def _is_a_word_of_slurm(job: JobStatus, why: str) -> bool:
    """Whether Slurm found this reason when it tried the job, rather than the user setting it."""
    return why not in ("", "BeginTime") and not job.held


def _has_no_word(job: JobStatus) -> bool:
    """Whether Slurm shows no reason for a pending job, as before it has tried a changed job."""
    pending = job.state is JobState.PENDING and not job.held
    return pending and job.reason.strip("()") in ("", "None")


def is_put_off_for_us(job: JobStatus) -> bool:
    """Whether the job is only delayed until its nodes are chosen here (``first_look_s`` in
    job_submit.lua), and not until a begin time set by its user."""
    until_s = first_look_until_s(job.spec.admin_comment)
    return job.eligible_s is not None and job.eligible_s == until_s


def lacks_only_resources(job: JobStatus, *, tried_later: bool = False) -> bool:
    """Whether Slurm has tried to start the job and found it to lack only resources.

    The reasons None and Priority mean that it has not been tried: which limit, licence or
    reservation may block it is still unknown.
    """
    reason = job.reason.strip("()")
    if tried_later and reason.startswith(_ALL_NODES_KEPT):
        # Slurm has checked limits before this reason, but would check licences only after it.
        return not job.spec.licenses
    return reason == "Resources" or _finds_its_nodes_kept(job, reason, tried_later)


def _finds_its_nodes_kept(job: JobStatus, reason: str, tried_later: bool) -> bool:
    """Whether the nodes that a job lacks are just those set aside for it.

    Slurm tries a job once in each of its partitions. If it finds no room in the first, it withholds
    the nodes in the job's list from all later attempts, including that of the same job in its next
    partition.
    """
    nodes = job.spec.required_node_list
    if not nodes or not (tried_later or len(job.spec.partitions) > 1):
        return False
    return reason in (_KEPT_FOR_ANOTHER, _UNAVAILABLE + nodes)


def partitions_tried_later(seen: Observation) -> frozenset[str]:
    """Return the partitions whose jobs Slurm may try after others for the same nodes.

    Slurm tries a job in each magnetic reservation first, and jobs of a higher PriorityTier before
    others. If those find no room, it withholds their nodes from all later jobs, even from jobs that
    could start there: only backfill starts those.
    """
    if any(one.magnetic for one in seen.reservations):
        return frozenset(one.name for one in seen.partitions)
    if len({one.priority_tier for one in seen.partitions}) < 2:
        return frozenset()
    waiting = {name for job in seen.jobs if is_in_line(job) for name in job.spec.partitions}
    first = [one for one in seen.partitions if one.name in waiting]
    return frozenset(
        one.name
        for one in seen.partitions
        if any(o.priority_tier > one.priority_tier and o.nodes & one.nodes for o in first)
    )


def is_in_line(job: JobStatus) -> bool:
    """Whether Slurm would start a waiting job as soon as there is room for it."""
    reason = job.reason.strip("()")
    in_line = reason in ("Resources", "Priority") or reason.startswith(_ALL_NODES_KEPT)
    return job.state is JobState.PENDING and not job.held and in_line
