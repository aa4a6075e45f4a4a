"""Snapshots as of large clusters: full of jobs of all shapes, with many more pending."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from scripts.testbed.job_views import changed, view
from slurm_tiresias.core.job import Job, Snapshot
from slurm_tiresias.core.placement.choose import place
from slurm_tiresias.core.placement.free_resources import FreeResources
from slurm_tiresias.model import Allocation, Amount, JobState, Node, PlacementStyle, Plan, Request

NOW_S = 1_000_000.0
THRESHOLDS_GPU_S = (3600.0, 36_000.0)
"""Thresholds of three tiers."""
PARTITION = "gpu"
NODES_PER_SWITCH = 20
MOST_RUNNING = 0.9
"""Largest share of jobs that run, if the cluster has room for them all."""
IDLE = 0.1
"""Mean number of idle GPUs per node in a full cluster: fragments."""
CHANGED = 10
"""Jobs that differ between a snapshot and the next: half have ended, half are new."""

_LARGE = Amount({"a100": 8}, cpus=64, memory_mb=512_000)
_SMALL = Amount({"v100": 4}, cpus=32, memory_mb=256_000)
_WIDTHS, _WIDTH_WEIGHTS = (1, 2, 4, 8, 16, 32), (50, 15, 15, 12, 5, 3)
_GRES_PER_NODE = 4
"""GPUs per node that ``--gres`` requests if the job is wider than that."""


Script = tuple[Request, float | None]
"""A request, and the skew of the model if known."""


@dataclass(frozen=True)
class LoadMix:
    """A kind of snapshot: the weights of the tiers among running and among pending jobs."""

    name: str
    running: tuple[int, int, int]
    waiting: tuple[int, int, int]


CONTESTED = LoadMix("contested", running=(20, 30, 50), waiting=(50, 30, 20))
"""Many pending jobs rank above running ones: the cycle preempts as many jobs as it may."""
SETTLED = LoadMix("settled", running=(60, 40, 0), waiting=(0, 40, 60))
"""No pending job ranks above a running one, as in most cycles."""
LOAD_MIXES = (CONTESTED, SETTLED)


def snapshot(mix: LoadMix, jobs: int, nodes: int, scripts: int, seed: int) -> Snapshot:
    """Return a snapshot determined by the arguments; jobs of one script share their request."""
    chance = random.Random(seed)
    machines = [_node(number, chance) for number in range(nodes)]
    known = [(_request(chance), chance.choice((None, None, 0.1, 0.7))) for _ in range(scripts)]
    asked = [_job(number, known, chance) for number in range(1, jobs + 1)]
    chance.shuffle(asked)
    placed = dict(_running(asked[: int(MOST_RUNNING * jobs)], machines))
    everybody = [
        _as_it_runs(job, placed[job.job_id], mix, chance)
        if job.job_id in placed
        else _as_it_waits(job, mix, chance)
        for job in asked
    ]
    chance.shuffle(everybody)
    return Snapshot(NOW_S, tuple(machines), tuple(everybody))


def settle(before: Snapshot, plan: Plan) -> Snapshot:
    """Return the snapshot after a plan's starts; the plan must preempt no job."""
    on = {start.job_id: start.start_on for start in plan.starts}
    jobs = (
        changed(
            job,
            state=JobState.RUNNING,
            allocation=on[job.job_id],
            running_since_s=before.now_s,
            first_started_s=job.first_started_s or before.now_s,
        )
        if job.job_id in on
        else job
        for job in before.jobs
    )
    return replace(before, jobs=tuple(jobs))


def with_others(
    before: Snapshot, mix: LoadMix, number: int, leaving: JobState, after_s: float
) -> Snapshot:
    """Return a later snapshot: some jobs of a state have left, and as many new ones wait.

    ``number`` identifies the step: the ids of the new jobs are derived from it.
    """
    chance = random.Random(number)
    left = set(chance.sample([j.job_id for j in before.jobs if j.state is leaving], CHANGED // 2))
    stay = [job for job in before.jobs if job.job_id not in left]
    first = 10_000_000 + number * CHANGED
    known = [(job.request, job.skew) for job in before.jobs]
    new = [_job(first + extra, known, chance) for extra in range(CHANGED // 2)]
    come = [_as_it_waits(job, mix, chance) for job in new]
    return Snapshot(before.now_s + after_s, before.nodes, (*stay, *come))


def all_run_on(before: Snapshot) -> Snapshot:
    """Return the snapshot with one more second of service for running jobs."""
    return replace(before, jobs=tuple(map(_runs_on, before.jobs)))


def _runs_on(job: Job) -> Job:
    if job.state is not JobState.RUNNING:
        return job
    return replace(
        job,
        attained_gpu_s=job.attained_gpu_s + job.gpus_held,
        attained_since_promotion_gpu_s=job.attained_since_promotion_gpu_s + job.gpus_held,
        executed_since_promotion_s=job.executed_since_promotion_s + 1.0,
    )


def _node(number: int, chance: random.Random) -> Node:
    return Node(
        f"gpu{number:05}",
        chance.choice((_LARGE, _SMALL)),
        partitions=frozenset({PARTITION}),
        features=frozenset({chance.choice(("ib", "eth"))}),
        available=chance.random() > 0.01,
        switch=f"leaf{number // NODES_PER_SWITCH}",
    )


def _job(number: int, scripts: Sequence[Script], chance: random.Random) -> Job:
    request, skew = chance.choice(scripts)
    submitted_s = NOW_S - chance.uniform(1000, 100_000)
    # Equal requests are one object, as in the driver (slurm/job_memory.py).
    return view(str(number), JobState.PENDING, request, submitted_s=submitted_s, skew=skew)


def _request(chance: random.Random) -> Request:
    """Return ``--gres=gpu:G -N n`` or ``--gpus=N``, with CPUs and memory per GPU."""
    (gpus,) = chance.choices(_WIDTHS, _WIDTH_WEIGHTS)
    cpus, memory_mb = chance.choice((2, 4, 8)), chance.choice((0, 16_000, 32_000))
    kind = "a100" if chance.random() < 0.2 else ""
    if chance.random() < 0.5:
        request = Request(Amount({kind: 1}, cpus, memory_mb), gpus, may_be_one_task=True)
    else:
        each = min(gpus, _GRES_PER_NODE)
        count = gpus // each
        chunk = Amount({kind: each}, cpus * each, memory_mb * each)
        request = Request(chunk, count, max_chunks_per_node=1, min_nodes=count, max_nodes=count)
    features = "ib" if chance.random() < 0.1 else ""
    return replace(request, features=features, partitions=(PARTITION,))


def _running(jobs: Sequence[Job], nodes: Sequence[Node]) -> Iterator[tuple[str, Allocation]]:
    """Yield the jobs that run, in order of arrival while there is room."""
    free = FreeResources(nodes)
    allowed = {"": free.all_nodes, "ib": free.nodes(n.name for n in nodes if "ib" in n.features)}
    for job in jobs:
        if free.most_free_gpus <= IDLE * len(nodes):
            return
        on = place(job.request, allowed[job.request.features], free, PlacementStyle.CONSOLIDATE)
        if on is not None:
            free.take(on)
            yield job.job_id, on


def _as_it_runs(job: Job, on: Allocation, mix: LoadMix, chance: random.Random) -> Job:
    ran_s = chance.expovariate(1 / 3600)
    return changed(
        _served(job, mix.running, chance),
        state=JobState.RUNNING,
        allocation=on,
        running_since_s=NOW_S - ran_s,
        first_started_s=NOW_S - ran_s - chance.choice((0.0, 900.0)),
    )


def _as_it_waits(job: Job, mix: LoadMix, chance: random.Random) -> Job:
    served = _served(job, mix.waiting, chance)
    new = served.attained_gpu_s == 0
    started_s = None if new else job.submitted_s + chance.uniform(0, 900)
    return changed(served, queued_s=NOW_S - chance.uniform(0, 1000), first_started_s=started_s)


def _served(job: Job, tiers: tuple[int, int, int], chance: random.Random) -> Job:
    """Return the job with a service that is typical of its tier."""
    (tier,) = chance.choices(range(3), tiers)
    starts = (0.0, *THRESHOLDS_GPU_S)
    attained_gpu_s = starts[tier] * chance.uniform(1, 5)
    return replace(
        job,
        attained_gpu_s=attained_gpu_s,
        attained_since_promotion_gpu_s=attained_gpu_s,
        executed_since_promotion_s=attained_gpu_s / job.request.gpu_count,
    )
