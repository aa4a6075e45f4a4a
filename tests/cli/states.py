"""Builders of published states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slurm_tiresias.explanation.reasons import would_do
from slurm_tiresias.model import EventRecord, Protection
from slurm_tiresias.status.published import (
    Blocker,
    PublishedGpus,
    PublishedJob,
    PublishedProgress,
    PublishedState,
    PublishedTier,
)

NOW_S = 1_700_000_000.0

_JOB = PublishedJob(
    job_id="1",
    name="train",
    user="alice",
    account="vision",
    partition="gpu",
    state="pending",
    slurm_state="PENDING",
    slurm_reason="Priority",
    managed=True,
    tier=0,
    rank=0,
    gpus=4,
    attained_gpu_s=0.0,
    attained_since_promotion_gpu_s=0.0,
    waited_s=90.0,
    running_since_s=None,
    submitted_s=NOW_S - 90,
    first_started_s=None,
    restarts=0,
    preemptions=0,
    preempted_by="",
    preempted_at_s=None,
    promotions=0,
    nodes="",
    style="",
    action="wait",
    reason="no-room",
    detail="",
    start_on="",
    victims=(),
    preempted_for="",
    blockers=(),
)


def _job(job_id: str, **changes: Any) -> PublishedJob:
    """Return a job; all of its service counts since the last promotion, unless ``changes`` says
    otherwise."""
    attained_gpu_s = changes.get("attained_gpu_s", _JOB.attained_gpu_s)
    usual = {"attained_since_promotion_gpu_s": attained_gpu_s}
    return replace(_JOB, job_id=job_id, **{**usual, **changes})


def progress(step: int, total: int | None = 1000, **changes: Any) -> PublishedProgress:
    """The progress of a job that makes one step per second and saves every hundred steps."""
    left_s = None if total is None else float(total - step)
    usual = PublishedProgress(
        source="reports",
        state="running",
        step=step,
        total=total,
        reported_s=NOW_S - 10,
        remaining_s=left_s,
        remaining_least_s=left_s and 0.95 * left_s,
        remaining_most_s=left_s and 1.05 * left_s,
        eta_s=left_s and NOW_S + left_s,
        step_s=1.0,
        saved_step=step // 100 * 100,
        saved_s=NOW_S - 10 - step % 100,
        resumed_step=None,
        quiet_since_s=None,
        lost=False,
    )
    return replace(usual, **changes)


def waiting(job_id: str, **changes: Any) -> PublishedJob:
    """A pending job of alice that requests 4 GPUs and does not fit."""
    return _job(job_id, **changes)


def running(job_id: str, **changes: Any) -> PublishedJob:
    """A running job of alice on 4 GPUs of gpu01."""
    usual: dict[str, Any] = {
        "state": "running",
        "slurm_state": "RUNNING",
        "slurm_reason": "None",
        "waited_s": 0.0,
        "attained_gpu_s": 2400.0,
        "running_since_s": NOW_S - 600,
        "first_started_s": NOW_S - 600,
        "nodes": "gpu01",
        "action": "run-on",
        "reason": "runs-on",
    }
    return _job(job_id, **{**usual, **changes})


def unmanaged(job_id: str, **changes: Any) -> PublishedJob:
    """A running job that is not managed."""
    usual: dict[str, Any] = {
        "managed": False,
        "tier": None,
        "rank": None,
        "user": "root",
        "action": "leave",
        "reason": "unmanaged",
    }
    return running(job_id, **{**usual, **changes})


def state(*jobs: PublishedJob, **changes: Any) -> PublishedState:
    """A healthy controller in enforce mode that has just completed a cycle."""
    return replace(
        PublishedState(
            schema=1,
            cluster="hopper",
            slurm_version="24.05.4",
            version="0.1.0",
            driver="commands",
            pid=4242,
            mode="enforce",
            policy="2d-las",
            order="first-start",
            interval_s=10.0,
            started_s=NOW_S - 86400,
            cycle=4821,
            at_s=NOW_S - 4,
            took_s=0.12,
            failures=0,
            error="",
            gpus=PublishedGpus(total=256, managed=180, others=40, idle=28, down=8),
            tiers=(
                PublishedTier(0, 0.0, 3600.0, 12, 60, 5, 20),
                PublishedTier(1, 3600.0, 18000.0, 8, 80, 9, 44),
                PublishedTier(2, 18000.0, None, 3, 40, 14, 112),
            ),
            jobs=jobs,
            events=(),
        ),
        **changes,
    )


def not_acting(published: PublishedState, mode: str = "shadow") -> PublishedState:
    """The same decisions by a controller that does not carry them out."""
    jobs = (
        replace(job, would=would_do(job.reason, job.victims, job.preempted_for))
        for job in published.jobs
    )
    return replace(published, mode=mode, jobs=tuple(jobs))


def empty_state(**changes: Any) -> PublishedState:
    """An empty cluster."""
    usual: dict[str, Any] = {
        "gpus": PublishedGpus(0, 0, 0, 0, 0),
        "tiers": (
            PublishedTier(0, 0.0, 3200.0, 0, 0, 0, 0),
            PublishedTier(1, 3200.0, None, 0, 0, 0, 0),
        ),
    }
    return state(**{**usual, **changes})


def busy_state(**changes: Any) -> PublishedState:
    """A cluster that shows a bit of everything."""
    jobs = (
        running("40712", user="mchen", name="bert-finetune", rank=0, gpus=8, attained_gpu_s=1900.0),
        running(
            "40718_3",
            user="alice",
            name="sweep-lr",
            rank=1,
            gpus=1,
            attained_gpu_s=312.0,
            running_since_s=NOW_S - 60,
            nodes="gpu07",
        ),
        waiting(
            "40731",
            user="priya",
            name="debug-dataloader",
            rank=2,
            gpus=8,
            waited_s=41.0,
            action="start",
            reason="starts-preempting",
            start_on="gpu02",
            style="consolidate",
            victims=("40655",),
        ),
        waiting(
            "40729",
            user="tomas",
            name="resnet50-imagenet-1k-seed7",
            rank=3,
            gpus=16,
            waited_s=380.0,
            reason="protected",
            blockers=(
                Blocker("40718_3", Protection.MIN_RUN.value, until_s=NOW_S + 60),
                Blocker("40600", Protection.NEAR_TIER.value, until_s=None),
            ),
        ),
        running(
            "40655",
            user="jsmith",
            name="gpt2-medium",
            tier=1,
            rank=4,
            gpus=8,
            attained_gpu_s=9100.0,
            nodes="gpu02",
            preemptions=2,
            preempted_by="40601",
            preempted_at_s=NOW_S - 4000,
            restarts=2,
            action="preempt",
            reason="preempted",
            preempted_for="40731",
        ),
        running(
            "40600",
            user="wei",
            name="llama-7b-sft",
            tier=1,
            rank=5,
            gpus=32,
            attained_gpu_s=15000.0,
            nodes="gpu[03-06]",
            promotions=1,
        ),
        waiting(
            "39911",
            user="wei",
            name="vit-huge-pretrain",
            tier=2,
            rank=6,
            gpus=32,
            attained_gpu_s=512000.0,
            waited_s=9000.0,
            preemptions=3,
            preempted_by="40712",
            preempted_at_s=NOW_S - 9000,
            restarts=4,
            detail="needs 4 whole nodes; 1 is free",
        ),
        waiting(
            "40735",
            user="bob",
            name="huge",
            rank=7,
            gpus=512,
            reason="never-fits",
            detail="asks 512 GPUs; the nodes it may use have 256",
        ),
        unmanaged("40500", name="jupyter", gpus=1, nodes="gpu08"),
    )
    events = (
        EventRecord(NOW_S - 9000, "preempted", "39911", "40712", "made room for 40712"),
        EventRecord(NOW_S - 4, "preempted", "40655", "40731", "made room for 40731"),
    )
    return state(*jobs, **{"events": events, **changes})
