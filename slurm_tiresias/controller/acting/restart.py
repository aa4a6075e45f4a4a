"""Which failed jobs are restarted, and on which nodes.

A restart is in the ledger before it is sent, with the run that failed. Slurm counts each requeue,
so a controller that was killed knows whether its restart has taken place, and sends it again if
not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from slurm_tiresias.controller.acting.under_way import RESTART_IN_S, UnderWay
from slurm_tiresias.controller.prospects import why_cannot_be_requeued
from slurm_tiresias.core.features.failed_runs import FAILURES, FailedRun, judge
from slurm_tiresias.core.placement.node_index import NodeIndex
from slurm_tiresias.job_hints import hints_of
from slurm_tiresias.model import JobAccount, JobStatus
from slurm_tiresias.slurm.hostlist import folded
from slurm_tiresias.slurm.notation import node_names
from slurm_tiresias.slurm.protocol import Restart, Unpin, Update, Write

LAUNCH_FAILED = "launch failed requeued held"
"""Slurm's reason to hold a job after its prolog or its launch has failed on a node."""

HUNG_AVOIDS_S = 600.0
"""How long a job that hung waits for other nodes, which need not be at fault."""

MOST_JUDGED = 200
"""How many failed jobs are judged in one cycle: Slurm is asked for their exit codes."""


def restarts(under_way: UnderWay) -> Sequence[Write]:
    """Judge the runs that have failed, and return the restarts that are due."""
    judged: list[tuple[JobStatus, JobAccount, int]] = []
    writes: list[Write] = []
    accounts = under_way.job_store.accounts
    for job in under_way.seen.jobs:
        failed_run = _failed_run(job)
        account = None if failed_run is None else accounts.of(job.key)
        if failed_run is None or account is None or under_way.job_store.why_unmanaged(job.key):
            continue
        if account.failed_run != failed_run:
            judged.append((job, account, failed_run))
        elif account.is_restarted:
            writes.append(_restart(job))
    judged = judged[:MOST_JUDGED]
    codes = _exit_codes(under_way, judged)
    for job, account, failed_run in under_way.job_store.in_hand.each(judged):
        run = _described(under_way, job, failed_run, codes.get(job.key, 0))
        account, text = judge(run, account, under_way.config.failures)
        accounts.put(account)
        if text:
            kind = "restarted" if account.is_restarted else "not-restarted"
            under_way.job_store.events.note(under_way.now_s, kind, job.key, text)
        if account.is_restarted:
            writes.append(_restart(job))
    return writes


def returns(under_way: UnderWay) -> Iterator[Write]:
    """Yield what lets restarted jobs start soon, and these and those that hung on other nodes if
    others will do."""
    nodes: NodeIndex | None = None
    accounts = under_way.job_store.accounts
    for account in list(accounts.all.values()):
        goes_elsewhere = account.is_restarted or account.hung_requeues
        if not goes_elsewhere and account.own_excluded is None:
            continue
        job = under_way.jobs.get(account.key)
        if job is None or not under_way.waits(job.key) or job.spec.request.opaque:
            continue
        nodes = nodes or NodeIndex(under_way.seen.nodes)
        nomination = under_way.nominations.get(job.key)
        named = (nomination.allocated() if nomination else None) or ()
        update, changed = _return(job, account, named, nodes, under_way.now_s)
        if account.is_restarted and under_way.put_off_by_slurm(job):
            update = replace(update, start_in_s=RESTART_IN_S)
        accounts.put(changed)
        if update != Update(job.key):
            yield update


def _return(
    job: JobStatus, account: JobAccount, named: Collection[str], nodes: NodeIndex, now_s: float
) -> tuple[Update, JobAccount]:
    """Return how the excluded nodes of a waiting job must change, and its account.

    None of the nodes that were ``named`` for it is excluded: Slurm would hold it.
    """
    request = job.spec.request
    shown, own = folded(request.excluded_nodes), account.own_excluded
    failed_run = account.failed_run if account.is_restarted else None
    hung_run = account.hung_run if account.hung_requeues else None
    if now_s - account.queued_s > HUNG_AVOIDS_S:
        hung_run = None
    has_returned = any(n is not None and job.restarts == n + 1 for n in (failed_run, hung_run))
    excluded = frozenset(node_names(shown if own is None else own))
    both = excluded | set(node_names(account.avoided_nodes))
    without = replace(request, excluded_nodes=both)
    avoids = has_returned and both.isdisjoint(named) and nodes.could_hold(without, nodes.usable)
    wanted = folded(both if avoids else excluded)
    if own is not None and shown not in (own, account.written_excluded):
        # The user has changed the list meanwhile, which takes precedence.
        return Update(job.key), replace(account, own_excluded=None, avoided_nodes="")
    if wanted == shown:
        stands = own is not None and wanted != own
        return Update(job.key), account if stands else replace(account, own_excluded=None)
    written = replace(account, own_excluded=folded(excluded), written_excluded=wanted)
    return Update(job.key, excluded=wanted), written


def _failed_run(job: JobStatus) -> int | None:
    """Return which run of a job has failed, by its restarts; None if its last run has not."""
    if job.state is None and job.slurm_state in FAILURES:
        return job.restarts
    launch_failed = job.held and job.reason.strip("()").replace("_", " ") == LAUNCH_FAILED
    return job.restarts - 1 if launch_failed and job.restarts else None


def _restart(job: JobStatus) -> Write:
    return Restart(job.key) if job.state is None else Unpin(job.key)


def _exit_codes(
    under_way: UnderWay, judged: Sequence[tuple[JobStatus, JobAccount, int]]
) -> Mapping[str, int]:
    """Return the exit codes of those ended jobs for which they matter."""
    by_code = under_way.config.failures.restart_exit_codes
    keys = [job.key for job, _, _ in judged if job.state is None and (by_code or _asks_for(job))]
    codes = under_way.slurm.exit_codes(keys) if keys else {}
    return {key: int(code.partition(":")[0] or 0) for key, code in codes.items()}


def _asks_for(job: JobStatus) -> int:
    return hints_of(job.spec.admin_comment, job.spec.comment).restarts


def _described(under_way: UnderWay, job: JobStatus, failed_run: int, exit_code: int) -> FailedRun:
    runs = under_way.job_store.runs
    last = runs.last_ended(job.key)
    launch_failed = job.state is not None
    if launch_failed and last is not None:
        runs.keep(replace(last, outcome="NODE_FAIL"))
    steps = [one.step for one in under_way.reports_of(job.key)]
    return FailedRun(
        restarts=failed_run,
        state="NODE_FAIL" if launch_failed else job.slurm_state,
        exit_code=exit_code,
        nodes=folded(node_names(last.nodes)) if last else "",
        furthest_step=max(steps, default=None),
        ran_s=runs.executed_s(job.key),
        asks_for=_asks_for(job),
        cannot_be_requeued=why_cannot_be_requeued(job.spec),
    )
