"""Turn a cycle into the state that is published."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from slurm_tiresias import __version__
from slurm_tiresias.controller.difference import why_left_to_slurm
from slurm_tiresias.controller.job_store import JobStore
from slurm_tiresias.controller.prospects import is_put_off_for_us
from slurm_tiresias.core.features.bad_nodes import BadNodes, NodeStanding
from slurm_tiresias.core.features.claims import is_broken
from slurm_tiresias.core.features.estimates import WithEstimates, is_promoted
from slurm_tiresias.core.features.feature import Feature
from slurm_tiresias.core.features.min_run import min_run_s
from slurm_tiresias.core.features.policy import Policy
from slurm_tiresias.core.features.protections import protections
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.errors import TiresiasError
from slurm_tiresias.explanation.reasons import would_do
from slurm_tiresias.model import Action, Decision, JobProgress, JobState, Node, Plan, Protection
from slurm_tiresias.progress.saving import checkpoint_for
from slurm_tiresias.settings import Config
from slurm_tiresias.settings.policy import REPORTS
from slurm_tiresias.settings.preemption import Checkpoint, PreemptionConfig
from slurm_tiresias.slurm import release
from slurm_tiresias.slurm.hostlist import folded
from slurm_tiresias.slurm.protocol import Cluster
from slurm_tiresias.status.published import (
    SCHEMA,
    Blocker,
    PublishedEstimate,
    PublishedGpus,
    PublishedHold,
    PublishedJob,
    PublishedNode,
    PublishedProgress,
    PublishedState,
    PublishedTier,
)
from slurm_tiresias.store.records import EventRecord


def nothing_yet(
    cluster: Cluster, config: Config, mode: str, host: str = "", term: int = 0
) -> PublishedState:
    """Return the state to publish before the first cycle has ended."""
    now_s = time.time()
    return PublishedState(
        schema=SCHEMA,
        cluster=cluster.name,
        slurm_version=release.written(cluster.version),
        version=__version__,
        driver="commands",
        pid=os.getpid(),
        mode=mode,
        policy=config.policy.name,
        order=config.policy.order,
        charge=config.policy.charge,
        interval_s=config.controller.interval_s,
        started_s=now_s,
        cycle=0,
        at_s=now_s,
        took_s=0.0,
        failures=0,
        error="",
        gpus=PublishedGpus(0, 0, 0, 0, 0),
        tiers=(),
        jobs=(),
        events=(),
        host=host,
        term=term,
        output_appended=cluster.output_appended,
    )


def after_a_failure(
    state: PublishedState, error: TiresiasError, now_s: float, pause_s: float
) -> PublishedState:
    """Return the state after one more failed cycle; the next try comes after the pause."""
    times = state.failed_cycles.get(error.kind, 0) + 1
    return replace(
        state,
        failures=state.failures + 1,
        error=str(error),
        failed_cycles={**state.failed_cycles, error.kind: times},
        last_failure_s=now_s,
        next_try_s=now_s + pause_s,
    )


def in_a_line(state: PublishedState, now_s: float) -> str:
    """Return a one-line status for systemd."""
    if state.failures:
        pause_s = max(0.0, (state.next_try_s or 0.0) - now_s)
        return f"{state.failures} cycles failed, next try in {pause_s:.0f} s: {state.error}"
    return f"{state.mode}, cycle {state.cycle}"


def in_mode(state: PublishedState, mode: str) -> PublishedState:
    """Return the state in a mode: only if the controller does not act, jobs show what it would do
    with them."""
    shown = replace(state, mode=mode)
    if shown.acts is state.acts:
        return shown
    jobs = (replace(job, would="" if shown.acts else _would(job)) for job in shown.jobs)
    return replace(shown, jobs=tuple(jobs))


def _would(job: PublishedJob) -> str:
    return would_do(job.reason, job.victims, job.preempted_for)


def report(
    config: Config,
    state: PublishedState,
    snapshot: Snapshot,
    plan: Plan,
    job_store: JobStore,
    policy: Policy,
    events: Sequence[EventRecord],
    features: Sequence[Feature] = (),
) -> PublishedState:
    """Return the state with everything that ``status`` and ``explain`` may show of a cycle."""
    nodes = [n for n in snapshot.nodes if not n.partitions.isdisjoint(config.manage.partitions)]
    return replace(
        state,
        gpus=_gpus(nodes, snapshot.jobs),
        tiers=tuple(_tiers(config, snapshot, plan)),
        jobs=tuple(_jobs(config, snapshot, plan, job_store, features, policy, acts=state.acts)),
        events=tuple(events),
        nodes=tuple(_nodes(nodes, snapshot.jobs, plan, features)),
    )


def _gpus(nodes: Sequence[Node], jobs: Iterable[Job]) -> PublishedGpus:
    up = {node.name for node in nodes if node.available}
    held = {True: 0, False: 0}
    for job in jobs:
        for name, amount in job.allocation.items():
            if name in up and job.state is JobState.RUNNING:
                held[job.managed] += amount.gpu_count
    total = sum(node.total.gpu_count for node in nodes)
    down = sum(node.total.gpu_count for node in nodes if not node.available)
    return PublishedGpus(
        total=total,
        managed=held[True],
        others=held[False],
        idle=max(0, total - down - held[True] - held[False]),
        down=down,
    )


def _nodes(
    nodes: Iterable[Node], jobs: Iterable[Job], plan: Plan, features: Iterable[Feature]
) -> Iterable[PublishedNode]:
    standings = {
        name: one
        for feature in features
        if isinstance(feature, BadNodes)
        for name, one in feature.standings.items()
    }
    held: dict[str, list[PublishedHold]] = {}
    for job in jobs:
        if job.state is JobState.RUNNING:
            tier = plan.decisions[job.job_id].tier
            for name, amount in job.allocation.items():
                if gpus := amount.gpu_count:
                    held.setdefault(name, []).append(PublishedHold(job.job_id, gpus, tier))
    for node in nodes:
        if gpus := node.total.gpu_count:
            what = tuple(held.get(node.name, ()))
            one = standings.get(node.name, NodeStanding())
            yield PublishedNode(
                *(node.name, gpus, node.available, node.state, what),
                **one._asdict(),
                is_suspect=one.is_suspect,
            )


def _tiers(config: Config, snapshot: Snapshot, plan: Plan) -> Iterable[PublishedTier]:
    limits = (0.0, *config.policy.thresholds_gpu_s, math.inf)
    by_tier: dict[int, list[Job]] = {tier: [] for tier in range(config.policy.tier_count)}
    for job in snapshot.jobs:
        tier = plan.decisions[job.job_id].tier
        if tier is not None:
            by_tier[tier].append(job)
    for tier, jobs in by_tier.items():
        running = [job for job in jobs if job.state is JobState.RUNNING]
        pending = [job for job in jobs if job.state is not JobState.RUNNING]
        upper = limits[tier + 1]
        yield PublishedTier(
            tier=tier,
            from_gpu_s=limits[tier],
            to_gpu_s=None if math.isinf(upper) else upper,
            running_jobs=len(running),
            running_gpus=sum(job.gpus_held for job in running),
            pending_jobs=len(pending),
            pending_gpus=sum(job.request.gpu_count for job in pending),
        )


def _jobs(
    config: Config,
    snapshot: Snapshot,
    plan: Plan,
    job_store: JobStore,
    features: Sequence[Feature],
    policy: Policy,
    *,
    acts: bool,
) -> Iterable[PublishedJob]:
    places = _slurm_places(snapshot.jobs)
    views = {job.job_id: job for job in snapshot.jobs}
    # Most of thousands of waiting jobs share their blockers: convert each set once.
    known: dict[int, tuple[Blocker, ...]] = {}
    ranks = plan.ranks
    estimates = policy if isinstance(policy, WithEstimates) else None
    for key, decision in job_store.in_hand.each(plan.decisions.items()):
        blockers = known.get(id(decision.blockers))
        if blockers is None:
            blockers = known[id(decision.blockers)] = tuple(
                _blocker(views[blocker], protection, config)
                for blocker, protection in decision.blockers
            )
        job = _job(views[key], decision, job_store, snapshot.now_s, config.preemption)
        job.rank, job.blockers, job.slurm_place = ranks.get(key), blockers, places.get(key)
        told = views[key].progress
        if told is not None and not _is_of_former_run(told, views[key]):
            job.progress = _progress(told, views[key], snapshot.now_s)
        account = job_store.accounts.of(key)
        for feature in features:
            if shown := feature.explain(views[key], account, snapshot.now_s):
                job.says, job.alarm = (*job.says, *shown.says), job.alarm or shown.alarm
                for name, fact in shown.facts.items():
                    setattr(job, name, fact)
        if estimates and job.managed and views[key].is_preemptible:
            job.estimate = _estimate(views[key], estimates)
        if not acts:
            job.would = _would(job)
        yield job


def _slurm_places(jobs: Iterable[Job]) -> Mapping[str, int]:
    """Return each waiting job's place in Slurm's order, in the partition where it is foremost."""
    waiting = [job.status for job in jobs if job.state is JobState.PENDING and not job.held]
    waiting.sort(key=lambda job: (-job.priority, job.spec.submit_s, job.raw_id))
    before = Counter[str]()
    places = {}
    for job in waiting:
        partitions = job.spec.partitions
        places[job.key] = min(before[partition] for partition in partitions)
        before.update(partitions)
    return places


def _blocker(job: Job, protection: Protection, config: Config) -> Blocker:
    ends_s = (one.until_s for one in protections(job, config) if one.why is protection)
    until_s = max(ends_s, default=math.inf)
    return Blocker(job.job_id, protection.value, until_s if until_s < math.inf else None)


def _is_of_former_run(told: JobProgress, job: Job) -> bool:
    """Whether a job runs again and has not reported since: how far it is, is unknown."""
    return job.state is JobState.RUNNING and told.restarts != job.status.restarts


def _progress(told: JobProgress, job: Job, now_s: float) -> PublishedProgress:
    runs = job.state is JobState.RUNNING
    step, total, per_step, saved_step = told.step, told.total, told.per_step, told.saved_step
    quiet_since_s = eta_s = likely_s = least_s = most_s = step_s = None
    if runs:
        quiet_since_s = told.quiet_since_s(now_s)
    if per_step:
        step_s = per_step.likely_s
        if total is not None and quiet_since_s is None and not (told.lost or told.printed_its_end):
            steps = total - (step if runs or saved_step is None else saved_step)
            ago_s = now_s - told.reported_s if runs else 0.0
            likely_s = max(0.0, steps * step_s - ago_s)
            least_s = max(0.0, steps * per_step.least_s - ago_s)
            most_s = max(0.0, steps * per_step.most_s - ago_s)
            eta_s = now_s + likely_s if runs else None
    # By position: ten thousand of them take a third less time than by name.
    return PublishedProgress(
        told.source,
        told.state,
        step,
        total,
        told.reported_s,
        likely_s,
        least_s,
        most_s,
        eta_s,
        step_s,
        saved_step,
        told.saved_s,
        told.resumed_step,
        quiet_since_s,
        runs and told.lost,
        told.saved_s - told.saving_s if told.saved_s and told.saving_s else None,
        told.longest_step_s or None,
        *((told.slowest.rank, told.slowest.node) if runs and told.slowest else (None, "")),
        *((told.slowest.slower_by, told.slowest.of) if runs and told.slowest else (None, None)),
    )


def _estimate(job: Job, policy: WithEstimates) -> PublishedEstimate | None:
    remaining = policy.remaining(job)
    if remaining is not None:
        return PublishedEstimate(remaining.estimator.name, remaining.gpu_s)
    if job.account.claim is None:
        return None
    if job.reports_stopped:
        why_not = job.reports_stopped
    elif is_promoted(job):
        why_not = "it was promoted"
    elif is_broken(job):
        why_not = "it has attained far more than it said it would"
    else:
        why_not = "by them it should have ended, and it has told nothing since"
    return PublishedEstimate(REPORTS, None, why_not)


def _job(
    job: Job, decision: Decision, job_store: JobStore, now_s: float, site: PreemptionConfig
) -> PublishedJob:
    """Convert a view and its decision; the caller fills in what depends on all jobs."""
    spec, status, account = job.spec, job.status, job.account
    checkpoint = Checkpoint("", 0.0)
    if job.managed and account.is_preemptible:
        over_budget = spec.user in job_store.users_over_budget
        checkpoint, _ = checkpoint_for(status, job.progress, site, now_s, over_budget=over_budget)
        # The job store has the account as it is after the plan was carried out.
        account = job_store.accounts.of(job.job_id) or account
    waits = status.state is JobState.PENDING and not status.held
    # Slurm delays it because of a begin time set by its user, or after a requeue.
    slurm_waits = waits and (status.eligible_s or 0.0) > now_s
    style = decision.style.value if decision.style and decision.action is Action.START else ""
    return PublishedJob(
        job_id=job.job_id,
        name=spec.name,
        user=spec.user,
        account=spec.account,
        partition=",".join(spec.partitions),
        state=job.state.value,
        slurm_state=status.slurm_state,
        slurm_reason=status.reason,
        managed=job.managed,
        tier=decision.tier,
        rank=None,
        gpus=job.gpus,
        attained_gpu_s=job.attained_gpu_s,
        attained_since_promotion_gpu_s=job.attained_since_promotion_gpu_s,
        waited_s=job.waited_s(now_s),
        running_since_s=job.running_since_s,
        submitted_s=job.submitted_s,
        first_started_s=job.first_started_s,
        restarts=status.restarts,
        preemptions=job.preemptions,
        preempted_by=account.preempted_by,
        preempted_at_s=account.preempted_at_s,
        promotions=account.promotions,
        nodes=folded(status.allocation),
        style=style,
        action=decision.action.value,
        reason=decision.reason.value,
        detail=decision.detail,
        start_on=folded(decision.start_on),
        victims=decision.victims,
        preempted_for=decision.preempted_for,
        blockers=(),
        placement=job.style.value if job.style else "",
        placement_because=job.style_because,
        signal=checkpoint.signal,
        grace_s=checkpoint.grace_s,
        inherited_gpu_s=job.inherited_gpu_s,
        left_to_slurm=why_left_to_slurm(status, account) if job.managed else "",
        begins_s=status.eligible_s if slurm_waits and not is_put_off_for_us(status) else None,
        min_run_s=min_run_s(job, site) if job.managed else 0.0,
    )
