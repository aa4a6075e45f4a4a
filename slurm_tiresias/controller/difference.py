"""Compute what must be written to Slurm for one job; nothing here changes anything.

A ``Difference`` has the writes, and what to remember before they are sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from slurm_tiresias.controller import bands
from slurm_tiresias.controller.manage import shares_managed_nodes
from slurm_tiresias.controller.prospects import is_put_off_for_us
from slurm_tiresias.core.job import most_service_gpu_s
from slurm_tiresias.core.lifecycle.nomination import Nomination
from slurm_tiresias.model import Action, Decision, JobAccount, JobState, JobStatus, Reason
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.hostlist import folded, refolded
from slurm_tiresias.slurm.protocol import Partition, Unpin, Update, Write

LIST_REFUSED = "Slurm held it for the nodes named here; they are left to Slurm from now on"

BAD_CONSTRAINTS = "BadConstraints"
"""Slurm's reason to hold a job that no set of nodes can satisfy."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The writes for one job, and its account as it must be before they are sent."""

    job: JobStatus
    record: JobAccount
    writes: tuple[Write, ...] = ()
    user_changed_nodes: bool = False
    """The job's user has changed its node list: withdraw a nomination on named nodes."""
    own_list_shown: bool = False
    """Slurm shows the user's own node list again after one was written here."""
    events: tuple[tuple[str, str], ...] = ()
    """What to note of it: kinds and texts."""


def is_pending(job: JobStatus | None) -> bool:
    return job is not None and job.state is JobState.PENDING


def from_decision(
    job: JobStatus,
    record: JobAccount,
    nomination: Nomination | None,
    decision: Decision,
    now_s: float,
    config: Config,
    *,
    factor_shows: bool = True,
    ranks_last: bool = False,
    goes_by_gpu_s: float | None = None,
) -> Difference:
    """Return what a managed job's node list, start time and priority must become.

    ``factor_shows``: the priority that Slurm shows can contain the site factor written for the job.
    ``ranks_last``: it waits behind all others, since its GPUs were idle. ``goes_by_gpu_s`` is
    ``Policy.goes_by_gpu_s``.
    """
    if not record.is_preemptible and not is_pending(job):
        return Difference(job, record)  # it is never requeued, so its priority no longer matters
    nodes = node_list(job, record, nomination)
    if nodes.user_changed_nodes or why_left_to_slurm(job, record):
        # A job left to Slurm must not get the nodes that victims leave for jobs with a node list.
        nomination = None
    (update,) = nodes.writes or (Update(job.key),)
    assert isinstance(update, Update)
    starts = decision.action is Action.START
    waits_for_us = starts and is_pending(job) and is_put_off_for_us(job)
    if waits_for_us and (job.eligible_s or 0.0) > now_s:
        update = replace(update, start_in_s=0)
    # A job over budget gets a place after all others, which would otherwise wait for it if they
    # need the same node.
    over_budget = decision.reason is Reason.OVER_BUDGET
    tier = config.policy.tier_count - 1 if over_budget else decision.tier or 0
    if config.priority.write == "pinned":
        most_gpu_s = most_service_gpu_s(job.spec.request.gpu_count, job.spec.time_limit_s)
        wanted = bands.tier_priority(
            nodes.record, tier, config.policy.order, most_gpu_s, goes_by_gpu_s
        )
        if ranks_last:
            wanted = bands.LOWEST["pinned"]
        if starts:
            wanted = bands.nomination_priority(nomination, is_preemptible=record.is_preemptible)
        return _with_priority(nodes, update, wanted)
    wanted = bands.LOWEST["site-factor"] if ranks_last else bands.tier_site_factor(tier)
    if starts:
        wanted = bands.nomination_site_factor(nomination)
    # Slurm does not show the site factor, and accepts it for pending jobs only.
    stands = record.written_site_factor == wanted and factor_shows
    if is_pending(job) and not stands:
        update = replace(update, site_factor=wanted)
    return _with(nodes, update)


def node_list(job: JobStatus, record: JobAccount, nomination: Nomination | None) -> Difference:
    """Write the node list of a nomination, or restore the user's own.

    The list requires the nodes, although an exclusion of all others could never end the job
    (``slurm/removed_nodes.py``). Slurm's main scheduler tries no later job of a partition before
    the first that cannot start, except after one that requires nodes: then it only withholds these.
    With exclusions and Slurm's default settings, a small job started on idle nodes after 10 to 26 s
    instead of 2 to 3 s (22.05, by backfill), and only the first of four preemptors was tried.
    scontrol also cuts a line off at 4,095 characters, which may be too few for the other nodes.

    The written list is remembered for a while after Slurm shows the user's own again
    (``own_list_shown``): a slurmctld that is killed may come back with the list from before.
    """
    named = nomination is not None and not why_left_to_slurm(job, record)
    allocation = nomination.allocated() if nomination and named else None
    if not is_pending(job) or not (allocation or record.written_nodes):
        return Difference(job, record)
    shown, own = refolded(job.spec.required_node_list), refolded(record.own_nodes)
    written = record.written_nodes.split()
    if written and shown not in (*written, own):
        # The user has changed the list meanwhile, which takes precedence.
        return Difference(job, without_lists(record), user_changed_nodes=True)
    if allocation is None:
        if shown == own:
            return Difference(job, record, own_list_shown=True)
        return Difference(job, record, (Update(job.key, node_list=record.own_nodes),))
    wanted = folded(allocation)
    if written and written[-1] == wanted == shown:
        return Difference(job, record)
    remembered = replace(
        record,
        own_nodes=record.own_nodes if written else job.spec.required_node_list,
        written_nodes=" ".join([*(name for name in written if name != wanted), wanted]),
    )
    return Difference(job, remembered, (Update(job.key, node_list=wanted),))


def why_left_to_slurm(job: JobStatus, record: JobAccount) -> str:
    """Why the job's nodes are left to Slurm, in words; "" if they may be named.

    Slurm holds a job for good if its node list does not suit the request (BadConstraints), and a
    request that is not understood completely cannot be checked for that.
    """
    if job.spec.request.opaque:
        return f"it asks for {job.spec.request.opaque}, which only Slurm can place"
    if record.list_refused:
        return "Slurm has held it once for the nodes that were named for it (BadConstraints)"
    return ""


def let_go(job: JobStatus, record: JobAccount) -> Difference:
    """Return what a held job must become: with its user's own node list.

    The job is also released if Slurm holds it because of the list that was written here.
    """
    nodes = node_list(job, record, None)
    if job.reason.strip("()") != BAD_CONSTRAINTS or not nodes.writes:
        return nodes
    # The first write lifts the hold on the known releases of Slurm, the second on any other.
    return replace(
        nodes,
        record=replace(nodes.record, list_refused=True),
        writes=(*nodes.writes, Unpin(job.key)),
        events=(("list-refused", LIST_REFUSED),),
    )


def without_lists(record: JobAccount) -> JobAccount:
    """Return the account of a job whose node list is its user's own."""
    return replace(record, own_nodes="", written_nodes="")


def handed_back(job: JobStatus, record: JobAccount) -> Difference:
    """Give back a waiting job that is no longer managed, for example because its partition was
    changed."""
    if not is_pending(job):
        return Difference(job, record)
    nodes = node_list(job, record, None)
    return replace(nodes, writes=(*nodes.writes, *unpinned(job, record)))


def unpinned(job: JobStatus, record: JobAccount) -> tuple[Write, ...]:
    """Return the writes that give a job's priority back to Slurm."""
    writes: list[Write] = []
    if record.written_site_factor:
        writes.append(Update(job.key, site_factor=0))
    if record.written_priority is not None:
        writes.append(Unpin(job.key))
    return tuple(writes)


def has_unwritten_band(
    job: JobStatus, record: JobAccount | None, partitions: Iterable[Partition], config: Config
) -> bool:
    """Whether a job's priority is from this program or etc/job_submit.lua, although no write is
    recorded.

    For a job that was never seen managed, only the numbers that no other writer uses count, and for
    one that was, any in a band, but not in a partition that shares no node with a managed one.
    Others' numbers may be in the bands too.
    """
    if record and (record.written_site_factor or record.written_priority is not None):
        return False
    written_as = config.priority.write
    if bands.starts_managed(job.priority, written_as):
        return True
    return (
        record is not None
        and bands.is_in_a_band(job.priority, written_as)
        and shares_managed_nodes(job.spec, partitions, config.manage)
    )


def without_band(job: JobStatus, config: Config) -> Write:
    """Return the write that takes a job out of the bands."""
    if config.priority.write == "pinned":
        return Unpin(job.key)
    return Update(job.key, site_factor=0)


def _with(difference: Difference, update: Update) -> Difference:
    nothing = update == Update(difference.job.key)
    return replace(difference, writes=() if nothing else (update,))


def _with_priority(difference: Difference, update: Update, wanted: int) -> Difference:
    found, written = difference.job.priority, difference.record.written_priority
    if found == wanted:
        record = difference.record
        if written != wanted:
            record = replace(record, written_priority=wanted)
        return _with(replace(difference, record=record), update)
    if written not in (None, found, 0):
        repaired = f"priority was {written}, found {found}; set to {wanted}"
        difference = replace(difference, events=(("repaired", repaired),))
    return _with(difference, replace(update, priority=wanted))
