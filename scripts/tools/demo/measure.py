"""The figures of a run, from Slurm's own accounting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scripts.testbed.jobs import COMPLETED, REQUEUED, AccountedRun
from scripts.tools.demo.jobs import Submitted
from scripts.tools.demo.mix import KINDS, MOST_GPUS


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
    steps_redone: int = 0
    faults: tuple[str, ...] = field(default=())


def measured(
    submitted: Sequence[Submitted],
    rows: Sequence[AccountedRun],
    proofs: Sequence[Mapping[str, object]],
) -> Result:
    """Return the result; ``rows`` and ``proofs`` belong to ``submitted``; a requeue adds a row."""
    gpus = {one.job_id: one.job.gpus for one in submitted}
    first_s = {i: min(row.submitted_s for row in rows if row.job_id == i) for i in gpus}
    last_s = {i: max(row.ended_s for row in rows if row.job_id == i) for i in gpus}
    jct_s = {job_id: float(last_s[job_id] - first_s[job_id]) for job_id in gpus}
    makespan_s = float(max(last_s.values()) - min(first_s.values()))
    used_gpu_s = sum(row.elapsed_s * gpus[row.job_id] for row in rows)
    return Result(
        average_jct_s=mean(list(jct_s.values())),
        median_jct_s=quantile(list(jct_s.values()), 0.5),
        p95_jct_s=quantile(list(jct_s.values()), 0.95),
        makespan_s=makespan_s,
        preemptions=sum(row.state == REQUEUED for row in rows),
        gpu_use=used_gpu_s / (makespan_s * MOST_GPUS),
        average_jct_s_by_kind={
            kind.name: mean([jct_s[o.job_id] for o in submitted if o.job.kind == kind.name])
            for kind in KINDS
            if any(one.job.kind == kind.name for one in submitted)
        },
        steps_redone=sum(int(str(proof["steps_redone"])) for proof in proofs),
        faults=(*ill_ended(submitted, rows), *not_proven(submitted, proofs)),
    )


def ill_ended(submitted: Sequence[Submitted], rows: Sequence[AccountedRun]) -> list[str]:
    names = {one.job_id: one.job.name for one in submitted}
    return [
        f"{names[row.job_id]} (job {row.job_id}) ended as {row.state}"
        for row in rows
        if row.state not in (COMPLETED, REQUEUED)
    ]


def not_proven(submitted: Sequence[Submitted], proofs: Sequence[Mapping[str, object]]) -> list[str]:
    return [
        f"{one.job.name} (job {one.job_id}) is not proven: {proof['problems']}"
        for one, proof in zip(submitted, proofs, strict=True)
        if not proof["each_step_once"]
    ]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile with linear interpolation, as numpy.percentile does."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
