"""Build jobs for tests from named facts, which are sorted into the shapes of ``model.py``."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import fields, replace
from typing import Any, overload

from slurm_tiresias.core.job import Job
from slurm_tiresias.core.rank import job_id_key
from slurm_tiresias.model import JobSpec, JobState, JobStatus, Request

_SPEC, _STATUS, _JOB = (
    {field.name for field in fields(shape) if field.init} for shape in (JobSpec, JobStatus, Job)
)


def status(
    key: str, request: Request, state: JobState | None = JobState.PENDING, **facts: Any
) -> JobStatus:
    """Return a job as Slurm shows it."""
    spec = JobSpec(
        key=key,
        array_id=None,
        array_limit=None,
        name="",
        user="",
        account="",
        qos="",
        partitions=("gpu",),
        batch=True,
        requeue=True,
        het=False,
        submit_s=0.0,
        time_limit_s=None,
        request=request,
    )
    shown = JobStatus(
        spec=spec,
        raw_id=int(key) if key.isdecimal() else 0,
        unsplit_array=False,
        state=state,
        slurm_state=state.name if state else "COMPLETED",
        reason="Priority",
        priority=1,
        restarts=0,
        eligible_s=None,
        start_s=None,
        end_s=None,
        elapsed_s=0.0,
        allocation={},
    )
    return changed(shown, **facts)


def view(job_id: str, state: JobState, request: Request, **facts: Any) -> Job:
    """Return a job as the core knows it."""
    shown = status(job_id, request, state, submit_s=facts.get("submitted_s", 0.0))
    job = Job(job_id, request, state=state, status_in_slurm=shown)
    return changed(job, **facts)


@overload
def changed(job: JobStatus, **facts: Any) -> JobStatus: ...
@overload
def changed(job: Job, **facts: Any) -> Job: ...
def changed(job: JobStatus | Job, **facts: Any) -> JobStatus | Job:
    """Return the job with these facts changed, each in the shape that holds it."""
    if isinstance(job, JobStatus):
        assert facts.keys() <= _SPEC | _STATUS
        spec = replace(job.spec, **_those(_SPEC, facts))
        return replace(job, **{"spec": spec, **_those(_STATUS, facts)})
    assert facts.keys() <= _SPEC | _STATUS | _JOB
    job = copy(job)
    job.set(**_those(_JOB, facts))
    job.id_key = job_id_key(job.job_id)
    job.count_gpus()
    shown = {name: value for name, value in facts.items() if name in _SPEC | _STATUS}
    job.status_in_slurm = changed(job.status, **shown, key=job.job_id)
    return job


def _those(names: set[str], facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name in names}
