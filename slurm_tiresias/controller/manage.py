"""Which jobs are managed, and what keeps a managed one from starting that is not ours to change."""

from __future__ import annotations

import math
from collections.abc import Mapping

from slurm_tiresias.config import ManageConfig
from slurm_tiresias.errors import ConfigError
from slurm_tiresias.job_hints import first_look_until_s
from slurm_tiresias.model import JobSpec, JobState, JobStatus
from slurm_tiresias.slurm.protocol import Observation, Partition

_MERELY_WAITING = (
    "None",
    "Priority",
    "Resources",
    "ReqNodeNotAvail",
    "Nodes_required",
    "Nodes req",
)
"""Beginnings of Slurm's reasons that mean no more than: no room yet. Whether the nodes that a job
needs are there is judged by the decision itself."""


HELD_BY_OWNER = "JobHeldUser"
"""Slurm's reason, of running jobs too; JobHeldAdmin is an operator's hold."""

_UNAVAILABLE = "ReqNodeNotAvail, UnavailableNodes:"
_KEPT_FOR_ANOTHER = "ReqNodeNotAvail, May be reserved for other job"
"""Of nodes with a reservation; later releases than 22.05 say it also of those that are only in the
list of a job before this one in the queue."""


_ALL_NODES_KEPT = "Nodes required for job are DOWN, DRAINED or reserved"


def missing_partitions(seen: Observation, config: ManageConfig) -> list[str]:
    """Managed partitions that the cluster does not have."""
    known = {partition.name for partition in seen.partitions}
    return [name for name in config.partitions if name not in known]


def no_such_partitions(missing: list[str], seen: Observation) -> ConfigError:
    """Says so, and which there are."""
    known = sorted(partition.name for partition in seen.partitions)
    return ConfigError(
        f"manage.partitions names {', '.join(missing)}, which this cluster does not have",
        f"Name some of: {', '.join(known)}",
    )


def why_unmanaged(job: JobStatus, config: ManageConfig, started_managed: bool = False) -> str:
    """Why a job is left alone, in a few words; empty for a managed job.

    What its owner can change while it runs counts for nothing in a job that ``started_managed``: a
    job that was let to the front of the queue may be preempted.
    """
    spec = job.spec
    foreign = [name for name in spec.partitions if name not in config.partitions]
    checks = (
        (bool(job.unreadable), job.unreadable),
        (bool(foreign), f"partition {', '.join(foreign)} is not managed"),
        (spec.request.chunk.gpu_count == 0, "asks for no GPUs"),
        (not spec.batch, "interactive (srun or salloc)"),
        (not spec.requeue and not started_managed, "may not be requeued (--no-requeue)"),
        (spec.het, "part of a heterogeneous job"),
        (bool(spec.reservation) and not started_managed, f"runs in reservation {spec.reservation}"),
        (spec.user in config.exclude_users, "its user is excluded"),
        (spec.account in config.exclude_accounts, "its account is excluded"),
        (spec.qos in config.exclude_qos, "its QOS is excluded"),
    )
    return next((reason for applies, reason in checks if applies), "")


def partitions_that_take(
    spec: JobSpec, partitions: Mapping[str, Partition]
) -> tuple[Partition, ...]:
    """Those of a job's partitions that would start it, as far as can be told from what they are."""
    mine = (partitions[name] for name in spec.partitions if name in partitions)
    return tuple(one for one in mine if not one.why_refused(spec))


def is_past_deadline(spec: JobSpec, at_s: float) -> bool:
    """Whether Slurm would end the job for good (DEADLINE) if it waited at that time: it does with a
    waiting job that could not use its whole time limit before its deadline."""
    limit_s = math.inf if spec.time_limit_s is None else spec.time_limit_s
    return spec.deadline_s is not None and at_s + limit_s > spec.deadline_s


def is_protected(job: JobStatus) -> bool:
    """Whether a running job was suspended, or held by an administrator: it stays where it is.

    Slurm's own gang scheduling leaves a suspended job its priority. A hold by the job's owner
    protects nothing: every user could keep GPUs for ever with it.
    """
    held = job.priority == 0 and job.reason.strip("()") != HELD_BY_OWNER
    return held or job.slurm_state == "SUSPENDED"


def why_not_eligible(job: JobStatus, now_s: float, *, tried_later: bool = False) -> str:
    """Slurm's own reason to keep a pending job from starting; empty where it only lacks room.

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
        return reason  # of nodes that are up, but reserved before it could end
    if not reason or reason.startswith(_MERELY_WAITING) or reason == "BeginTime":
        return ""
    return reason


def is_a_word_of_slurm(job: JobStatus, why: str) -> bool:
    """Whether that is what Slurm found when it looked at the job, and not what a user said."""
    return why not in ("", "BeginTime") and not job.held


def has_no_word(job: JobStatus) -> bool:
    """Whether Slurm says nothing of why a pending job waits, as of one that it has not looked at
    since it was changed."""
    pending = job.state is JobState.PENDING and not job.held
    return pending and job.reason.strip("()") in ("", "None")


def is_put_off_for_us(job: JobStatus) -> bool:
    """Whether the job only waits for its nodes to be chosen here (``first_look_s`` in
    job_submit.lua), and not until a time that its user named."""
    until_s = first_look_until_s(job.spec.admin_comment)
    return job.eligible_s is not None and job.eligible_s == until_s


def lacks_only_resources(job: JobStatus, *, tried_later: bool = False) -> bool:
    """Whether Slurm has tried to start the job and found nothing missing but room.

    Until then it is unknown what limit, licence or reservation stands in its way: the reasons None
    and Priority mean that it has not been tried.
    """
    reason = job.reason.strip("()")
    if tried_later and reason.startswith(_ALL_NODES_KEPT):
        # Limits were looked at before, licences would have been afterwards.
        return not job.spec.licenses
    return reason == "Resources" or _finds_its_nodes_kept(job, reason, tried_later)


def _finds_its_nodes_kept(job: JobStatus, reason: str, tried_later: bool) -> bool:
    """Whether the nodes that a job lacks are just those set aside for it.

    Slurm tries a job once for each of its partitions. Having found no room in the first, it keeps
    the nodes of the job's list from all that come after, and that is the job itself in the next.
    """
    nodes = job.spec.required_node_list
    if not nodes or not (tried_later or len(job.spec.partitions) > 1):
        return False
    return reason in (_KEPT_FOR_ANOTHER, _UNAVAILABLE + nodes)


def partitions_tried_later(seen: Observation) -> frozenset[str]:
    """Partitions whose jobs Slurm tries when it has tried some for the same nodes already.

    It tries a job first in each magnetic reservation, and jobs of a higher PriorityTier before
    others. Where these find no room, it keeps their nodes from all that come after, whatever else
    could be started there: only backfilling starts those.
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
    """Whether a waiting job would be started as soon as there is room for it."""
    reason = job.reason.strip("()")
    in_line = reason in ("Resources", "Priority") or reason.startswith(_ALL_NODES_KEPT)
    return job.state is JobState.PENDING and not job.held and in_line
