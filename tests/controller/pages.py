"""Published states of clusters of any size, to be shown on the live page."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from slurm_tiresias.model import EventRecord, JobAccount
from slurm_tiresias.status.published import (
    Blocker,
    PublishedGpus,
    PublishedHold,
    PublishedJob,
    PublishedNode,
    PublishedState,
    PublishedTier,
)
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import RunRecord
from tests.cli.states import running, state, unmanaged, waiting

GPUS = 8
USERS = ("alice", "bob", "carol", "dave", "erin", "frank")
NAMES = ("resnet50", "bert-large", "gpt-13b", "whisper", "ablation-17", "<b>sweep</b>")


def cluster(
    nodes: int, jobs: int, tiers: int, *, at_s: float, seed: int = 1, cycle: int = 1
) -> PublishedState:
    """A full cluster with this many nodes and jobs; a few jobs change in each cycle."""
    chance, later = random.Random(seed), random.Random(cycle)
    limits = [3600.0 * 5**tier for tier in range(tiers - 1)]
    shown, holds = _running(nodes, tiers, limits, chance, later, at_s)
    shown = shown[: max(1, jobs * 2 // 3)]
    kept = {job.job_id for job in shown}
    shown += _waiting(jobs - len(shown), tiers, limits, chance, at_s, shown[0].job_id)
    published = tuple(
        _node(number, [hold for hold in holds.get(number, []) if hold.job_id in kept])
        for number in range(nodes)
    )
    held = sum(hold.gpus for node in published for hold in node.held if hold.tier is not None)
    others = sum(hold.gpus for node in published for hold in node.held if hold.tier is None)
    down = sum(node.gpus for node in published if not node.available)
    total = sum(node.gpus for node in published)
    return replace(
        state(*shown),
        cycle=cycle,
        at_s=at_s,
        started_s=at_s - 86400,
        gpus=PublishedGpus(total, held, others, total - held - others - down, down),
        tiers=tuple(_tier(tier, limits, shown) for tier in range(tiers)),
        events=_events(shown, at_s),
        nodes=published,
    )


def _running(
    nodes: int,
    tiers: int,
    limits: list[float],
    chance: random.Random,
    later: random.Random,
    at_s: float,
) -> tuple[list[PublishedJob], dict[int, list[PublishedHold]]]:
    jobs: list[PublishedJob] = []
    holds: dict[int, list[PublishedHold]] = {}
    for number in range(nodes):
        if number % 37 == 36:
            continue  # out of service
        left = GPUS
        while left > 0 and chance.random() < 0.94:
            gpus = min(left, chance.choice((1, 1, 1, 2, 4, 8)))
            left -= gpus
            job_id, name = str(100 + len(jobs)), f"gpu{number:04}"
            if chance.random() < 0.05:
                jobs.append(unmanaged(job_id, gpus=gpus, nodes=name, user="root"))
                holds.setdefault(number, []).append(PublishedHold(job_id, gpus, None))
                continue
            tier = min(chance.randrange(tiers), chance.randrange(tiers))
            if later.random() < 0.02:
                tier = min(tiers - 1, tier + 1)
            low_gpu_s, high_gpu_s = ([0.0, *limits, limits[-1] * 5][tier + i] for i in (0, 1))
            share = (chance.random() + later.random() * 0.01) % 1.0
            jobs.append(
                running(
                    job_id,
                    tier=tier,
                    rank=len(jobs),
                    gpus=gpus,
                    nodes=name,
                    user=chance.choice(USERS),
                    name=chance.choice(NAMES),
                    attained_gpu_s=low_gpu_s + (high_gpu_s - low_gpu_s) * share,
                    running_since_s=at_s - chance.randrange(90_000),
                    preemptions=chance.choice((0, 0, 0, 1, 2)),
                )
            )
            holds.setdefault(number, []).append(PublishedHold(job_id, gpus, tier))
    return jobs, holds


def _waiting(
    number: int, tiers: int, limits: list[float], chance: random.Random, at_s: float, blocker: str
) -> list[PublishedJob]:
    reasons = ("no-room", "no-room", "no-room", "protected", "slurm-waits", "held", "never-fits")
    found = []
    for i in range(number):
        tier = min(chance.randrange(tiers), chance.randrange(tiers), chance.randrange(tiers))
        found.append(
            waiting(
                str(100_000 + i),
                tier=tier,
                rank=100_000 + i,
                gpus=chance.choice((1, 2, 4, 8, 16, 32)),
                user=chance.choice(USERS),
                name=chance.choice(NAMES),
                reason=chance.choice(reasons),
                waited_s=float(chance.randrange(50_000)),
                attained_gpu_s=[0.0, *limits][tier],
                blockers=(Blocker(blocker, "minimum-run-time", at_s + 60),),
            )
        )
    return found


def _node(number: int, held: list[PublishedHold]) -> PublishedNode:
    up = number % 37 != 36
    return PublishedNode(f"gpu{number:04}", GPUS, up, "ALLOCATED" if up else "DOWN", tuple(held))


def _tier(tier: int, limits: list[float], jobs: list[PublishedJob]) -> PublishedTier:
    edges = [0.0, *limits]
    mine = [job for job in jobs if job.tier == tier]
    runs = [job for job in mine if job.state == "running"]
    waits = [job for job in mine if job.state == "pending"]
    upper = limits[tier] if tier < len(limits) else None
    return PublishedTier(
        *(tier, edges[tier], upper, len(runs), sum(job.gpus for job in runs)),
        *(len(waits), sum(job.gpus for job in waits)),
    )


def _events(jobs: list[PublishedJob], at_s: float) -> tuple[EventRecord, ...]:
    told = (
        ("demoted", "", "from tier 0 to tier 1"),
        ("preempted", jobs[-1].job_id, "restart 1"),
        ("backed-off", "", "Slurm did not start it: Licenses"),
        ("promoted", "", "waited long enough to start afresh"),
    )
    return tuple(
        EventRecord(at_s - 3000 + 60 * i, kind, jobs[i % len(jobs)].job_id, other, text)
        for i, (kind, other, text) in enumerate(told * 12)
    )


def ledger_of(folder: Path, jobs: int, tiers: int, *, at_s: float) -> Path:
    """A ledger in which this many jobs have ended in the last two days."""
    chance = random.Random(7)
    path = folder / "ledger.sqlite"
    with closing(Ledger(path)) as ledger, ledger.transaction():
        for i in range(jobs):
            key, ended_s = str(i), at_s - 172_800 * (1 - i / jobs)
            ran_s = min(80_000.0, chance.lognormvariate(7, 1.4))
            began_s = ended_s - ran_s - chance.lognormvariate(5, 2)
            record = JobAccount(key, 0, began_s, began_s, began_s, i)
            tier = chance.randrange(tiers)
            ended = replace(record, tier=tier, first_started_s=ended_s - ran_s, ended_s=ended_s)
            ledger.jobs.put([ended])
            run = RunRecord(key, ended_s - ran_s, ended_s, ran_s, 4, True)
            ledger.runs.put([run])
    return path
