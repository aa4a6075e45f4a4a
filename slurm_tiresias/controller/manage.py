"""Which jobs are managed, and which of Slurm's reasons keep a managed job from starting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from slurm_tiresias.errors import ConfigError
from slurm_tiresias.job_hints import first_look_until_s
from slurm_tiresias.model import JobSpec, JobState, JobStatus
from slurm_tiresias.settings.manage import ManageConfig
from slurm_tiresias.slurm.protocol import Observation, Partition

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


def missing_partitions(seen: Observation, config: ManageConfig) -> list[str]:
    """Return the managed partitions that the cluster does not have."""
    known = {partition.name for partition in seen.partitions}
    return [name for name in config.partitions if name not in known]


def no_such_partitions(missing: list[str], seen: Observation) -> ConfigError:
    """Return the error that names the missing partitions and those that exist."""
    known = sorted(partition.name for partition in seen.partitions)
    return ConfigError(
        f"manage.partitions names {', '.join(missing)}, which this cluster does not have",
        f"Name some of: {', '.join(known)}",
    )


def check_partitions(seen: Observation, config: ManageConfig) -> None:
    """Raise ``ConfigError`` if the cluster has none of the managed partitions."""
    missing = missing_partitions(seen, config)
    if len(missing) == len(config.partitions):
        raise no_such_partitions(missing, seen)


def why_unmanaged(job: JobStatus, config: ManageConfig, started_managed: bool = False) -> str:
    """Why a job is not managed, in a few words; "" for a managed job.

    A reservation is ignored for a job that ``started_managed``, because its owner can name one
    while it runs.
    """
    spec = job.spec
    foreign = [name for name in spec.partitions if name not in config.partitions]
    checks = (
        (bool(job.unreadable), job.unreadable),
        (bool(foreign), f"partition {', '.join(foreign)} is not managed"),
        (spec.request.chunk.gpu_count == 0, "asks for no GPUs"),
        (spec.het, "part of a heterogeneous job"),
        (bool(spec.reservation) and not started_managed, f"runs in reservation {spec.reservation}"),
        (spec.user in config.exclude_users, "its user is excluded"),
        (spec.account in config.exclude_accounts, "its account is excluded"),
        (spec.qos in config.exclude_qos, "its QOS is excluded"),
    )
    return next((reason for applies, reason in checks if applies), "")


def shares_managed_nodes(
    spec: JobSpec, partitions: Iterable[Partition], config: ManageConfig
) -> bool:
    """Whether a job may run on nodes of managed partitions; true if a partition is not known."""
    nodes = {one.name: one.nodes for one in partitions}
    managed = frozenset[str]().union(*(nodes.get(name, ()) for name in config.partitions))
    return not all(name in nodes and managed.isdisjoint(nodes[name]) for name in spec.partitions)


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
    limit_s = math.inf if spec.time_limit_s is None else spec.time_limit_s
    return spec.deadline_s is not None and at_s + limit_s > spec.deadline_s


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


def is_a_word_of_slurm(job: JobStatus, why: str) -> bool:
    """Whether Slurm found this reason when it tried the job, rather than the user setting it."""
    return why not in ("", "BeginTime") and not job.held


def has_no_word(job: JobStatus) -> bool:
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
