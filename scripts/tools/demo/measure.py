"""The figures of a run, from Slurm's own accounting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

import numpy as np

from scripts.testbed.real_cluster import COMPLETED, REQUEUED
from scripts.tools.demo.jobs import Proof, Submitted
from scripts.tools.demo.mix import KINDS, MOST_GPUS, STEP_S
from slurm_tiresias.slurm.protocol import AccountedRun


@dataclass(frozen=True)
class Result:
    """Times in seconds. Job completion time counts from first submission to end."""

    average_jct_s: float
    median_jct_s: float
    p95_jct_s: float
    makespan_s: float
    preemptions: int
    gpu_use: float
    average_jct_s_by_kind: Mapping[str, float]
    average_jct_s_by_user: Sequence[float] = ()
    again_share: float = 0.0
    """Work done again after preemptions, of all GPU time."""
    faults: tuple[str, ...] = field(default=())


def measured(
    submitted: Sequence[Submitted], rows: Sequence[AccountedRun], proofs: Sequence[Proof]
) -> Result:
    """Return the result; ``rows`` and ``proofs`` belong to ``submitted``; a requeue adds a row."""
    gpus = {one.job_id: one.job.gpus for one in submitted}
    first_s = {i: min(row.submit_s or 0.0 for row in rows if row.key == i) for i in gpus}
    last_s = {i: max(row.end_s or 0.0 for row in rows if row.key == i) for i in gpus}
    jct_s = {job_id: last_s[job_id] - first_s[job_id] for job_id in gpus}
    makespan_s = max(last_s.values()) - min(first_s.values())
    used_gpu_s = sum(row.elapsed_s * gpus[row.key] for row in rows)
    again_gpu_s = sum(
        each.steps_redone * STEP_S * one.job.gpus
        for one, each in zip(submitted, proofs, strict=True)
    )
    users = sorted({one.job.user for one in submitted})
    return Result(
        average_jct_s=fmean(jct_s.values()),
        median_jct_s=median(jct_s.values()),
        p95_jct_s=float(np.percentile(list(jct_s.values()), 95)),
        makespan_s=makespan_s,
        preemptions=sum(row.state == REQUEUED for row in rows),
        gpu_use=used_gpu_s / (makespan_s * MOST_GPUS),
        average_jct_s_by_kind={
            kind.name: fmean(jct_s[o.job_id] for o in submitted if o.job.kind == kind.name)
            for kind in KINDS
            if any(one.job.kind == kind.name for one in submitted)
        },
        average_jct_s_by_user=[
            fmean(jct_s[one.job_id] for one in submitted if one.job.user == user) for user in users
        ],
        again_share=again_gpu_s / used_gpu_s,
        faults=tuple(faults(submitted, rows, proofs)),
    )


def faults(
    submitted: Sequence[Submitted], rows: Sequence[AccountedRun], proofs: Sequence[Proof]
) -> Iterator[str]:
    names = {one.job_id: one.job.name for one in submitted}
    for row in rows:
        if row.state not in (COMPLETED, REQUEUED):
            yield f"{names[row.key]} (job {row.key}) ended as {row.state}"
    for one, each in zip(submitted, proofs, strict=True):
        if each.fault:
            yield f"{one.job.name} (job {one.job_id}): {each.fault}"
