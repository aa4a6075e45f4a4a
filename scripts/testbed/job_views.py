"""Build jobs for tests from named facts, which are sorted into the shapes of ``model.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, overload

from slurm_tiresias.model import JobAccount, JobSpec, JobState, JobStatus, JobView, Request

_SPEC, _STATUS, _VIEW = (
    {field.name for field in fields(shape) if field.init} for shape in (JobSpec, JobStatus, JobView)
)
_ACCOUNT = {field.name for field in fields(JobAccount)} - {"account"}


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


def view(job_id: str, state: JobState, request: Request, **facts: Any) -> JobView:
    """Return a job as decisions see it, submitted at ``submitted_s``."""
    shown = status(job_id, request, state, submit_s=facts.get("submitted_s", 0.0))
    return changed(JobView(shown, JobAccount.opened(shown), request), **facts)


@overload
def changed(job: JobStatus, **facts: Any) -> JobStatus: ...
@overload
def changed(job: JobView, **facts: Any) -> JobView: ...
def changed(job: JobStatus | JobView, **facts: Any) -> JobStatus | JobView:
    """Return the job with these facts changed, each in the shape that holds it.

    ``held`` sets the priority. ``queued_s`` or ``tier_entered_s`` of None is the submission time.
    """
    if isinstance(job, JobStatus):
        assert facts.keys() <= _SPEC | _STATUS
        spec = replace(job.spec, **_those(_SPEC, facts))
        return replace(job, **{"spec": spec, **_those(_STATUS, facts)})
    if "job_id" in facts:
        facts["key"] = facts.pop("job_id")
    if "held" in facts:
        facts["priority"] = 0 if facts.pop("held") else 1
    for name in {"queued_s", "tier_entered_s"} & facts.keys():
        if facts[name] is None:
            facts[name] = facts.get("submitted_s", job.submitted_s)
    assert facts.keys() <= _SPEC | _STATUS | _ACCOUNT | _VIEW
    return replace(
        job,
        status=changed(job.status, **_those(_SPEC | _STATUS, facts)),
        account=replace(job.account, **_those(_ACCOUNT, facts)),
        **_those(_VIEW, facts),
    )


def _those(names: set[str], facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name in names}
