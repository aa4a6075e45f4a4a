"""Remember jobs from one reading to the next.

scontrol is asked about a job only when its shape, as squeue shows it, has changed. A job's request
is kept from before its start, because afterwards Slurm shows what the job got instead.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from weakref import WeakValueDictionary

from slurm_tiresias.model import Allocation, JobState, JobStatus, Request
from slurm_tiresias.slurm import observed_jobs
from slurm_tiresias.slurm.job_details import JobDetails, details
from slurm_tiresias.slurm.job_fields import JobFields
from slurm_tiresias.slurm.request import RequestFields, request_of

_SHAPE = attrgetter(
    "raw_id",
    "nodes",
    "most_nodes",
    "cpus",
    "cpus_per_node",
    "tasks",
    "tasks_per_node",
    "sockets_per_node",
    "memory_mb",
    "exclusive",
    "required_nodes",
    "allocated_nodes",
    "options",
    "tres_nodes",
    "tres_memory_mb",
    "tres_gpus",
    "unreadable",
    "unreadable_sum",
    "partitions",
    "features",
)

Shape = tuple[JobState | None, bool, float | None, tuple[object, ...]]
"""All values that determine a request or an allocation: while it is unchanged, so are they."""


MOST_ARRAYS_AGAIN = 20
"""About how many arrays scontrol is asked per reading whether their limit of running tasks
(ArrayTaskThrottle) has changed, which nothing else shows."""

_LIVE = (JobState.PENDING, JobState.RUNNING)
"""States in which scontrol shows more about a job than squeue."""

_NOTHING: Mapping[int, JobDetails] = {}


@dataclass(frozen=True, slots=True)
class _Known:
    fields: JobFields
    job: JobStatus
    shape: Shape
    complete: bool
    """False if its details were missing or not trusted."""
    times_asked: int
    """How often its details were asked for without success."""
    while_pending: RequestFields | None


class JobMemory:
    """The jobs of the last reading by key, because few of thousands change between readings."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._requests: WeakValueDictionary[Hashable, Request] = WeakValueDictionary()
        self._last_array = 0
        """The array that was last asked about again."""
        self.counts_memory = True
        """Whether Slurm allocates memory to jobs (SelectTypeParameters)."""
        self.now_s = time.time()
        """slurmctld's clock at the last reading."""

    @property
    def is_empty(self) -> bool:
        """Whether no job is known: before the first reading, or on an empty cluster."""
        return not self._known

    def unknown(self, jobs: Iterable[JobFields]) -> Sequence[JobFields]:
        """Return the live jobs to ask scontrol about; one task stands for its whole array record.

        Jobs that were asked about least often come first: a user can make the answers about their
        jobs permanently untrustworthy, and these must not displace the others.
        """
        asked_for: dict[int, JobFields] = {}
        waiting_arrays: dict[int, JobFields] = {}
        for fields in jobs:
            known = self._known.get(fields.key)
            if fields.state is JobState.PENDING and fields.array_id == fields.raw_id:
                waiting_arrays.setdefault(fields.raw_id, fields)
            if _is_as_before(known, fields) or fields.state not in _LIVE:
                continue
            if known is None or not known.complete or known.shape != _shape(fields):
                asked_for.setdefault(fields.raw_id, fields)
        unknown = sorted(asked_for.values(), key=self._times_asked)
        # Known arrays are asked about again in rotation, a few per reading.
        in_turn = sorted(
            waiting_arrays.keys() - asked_for,
            key=lambda raw_id: (raw_id <= self._last_array, raw_id),
        )[:MOST_ARRAYS_AGAIN]
        self._last_array = in_turn[-1] if in_turn else 0
        return (*unknown, *(waiting_arrays[raw_id] for raw_id in in_turn))

    def _times_asked(self, fields: JobFields) -> int:
        known = self._known.get(fields.key)
        same_shape = known is not None and known.shape == _shape(fields)
        return known.times_asked if known is not None and same_shape else 0

    def ask_again(self, keys: Iterable[str]) -> None:
        """Let scontrol be asked about these jobs again, although squeue shows no change."""
        for key in keys:
            if known := self._known.get(key):
                self._known[key] = replace(known, complete=False)

    def live_but_missing(self, jobs: Iterable[JobFields]) -> set[str]:
        """Return the ids for scontrol of jobs that were alive before and are not listed now."""
        listed = {fields.key for fields in jobs}
        return {
            key if "_" in key else str(known.fields.raw_id)
            for key, known in self._known.items()
            if known.job.state is not None and key not in listed
        }

    def learn(
        self,
        jobs: Iterable[JobFields],
        records: Mapping[int, str],
        seen: Mapping[int, JobDetails] = _NOTHING,
        asked: Collection[int] = (),
    ) -> None:
        """Store a reading and forget all other jobs.

        ``records`` (from scontrol) and ``seen`` (details from elsewhere) are by raw job id;
        ``asked`` are the raw ids of the jobs that scontrol was asked about one by one.
        """
        now_known: dict[str, _Known] = {}
        for fields in jobs:
            known = self._known.get(fields.key)
            if (
                known is None
                or not _is_as_before(known, fields)
                or (fields.array_id is not None and _may_have_another_limit(known, records, seen))
            ):
                found = seen.get(fields.raw_id)
                if found is None and fields.raw_id in records:
                    found = details(records[fields.raw_id], fields)
                known = self._learned(fields, found, known)
                if not known.complete and fields.raw_id in asked:
                    known = replace(known, times_asked=known.times_asked + 1)
            now_known[fields.key] = known
        self._known = now_known

    def jobs(self, jobs: Iterable[JobFields]) -> tuple[JobStatus, ...]:
        """Return the observed jobs for these fields, after ``learn``; an unchanged job is the same
        object as before."""
        return tuple(self._known[fields.key].job for fields in jobs)

    def _learned(
        self, fields: JobFields, found: JobDetails | None, before: _Known | None
    ) -> _Known:
        shape = _shape(fields)
        unchanged = before is not None and before.complete and before.shape == shape
        if before is not None and unchanged and not (before.job.unreadable or fields.unreadable):
            was = before.job
            array_limit = found.array_limit if found else was.spec.array_limit
            spec = observed_jobs.spec(fields, was.spec.request, array_limit, was.spec)
            if spec is was.spec and before.fields == fields:
                return before
            job = observed_jobs.status(fields, spec, was.allocation, self.now_s)
            return replace(before, fields=fields, job=job)
        while_pending = before.while_pending if before else None
        times_asked = before.times_asked if before is not None and before.shape == shape else 0
        if why := observed_jobs.why_unreadable(fields, found):
            job = observed_jobs.unreadable(fields, self.now_s, why)
            # Marked complete because asking again would not help.
            return _Known(fields, job, shape, True, times_asked, while_pending)
        asked = observed_jobs.request_fields(
            fields, found, while_pending, counts_memory=self.counts_memory
        )
        request = request_of(asked)
        # Equal requests share one object, so that scheduling can compare them by identity.
        request = self._requests.setdefault(request.shape, request)
        allocation = _allocation(fields, found, before)
        array_limit = found.array_limit if found else None
        spec = observed_jobs.spec(fields, request, array_limit, before.job.spec if before else None)
        job = observed_jobs.status(fields, spec, allocation, self.now_s)
        if fields.state is JobState.PENDING:
            while_pending = asked
        complete = found is not None or fields.state not in _LIVE
        return _Known(fields, job, shape, complete, times_asked, while_pending)


def _is_as_before(known: _Known | None, fields: JobFields) -> bool:
    # Compared by identity first, because the driver keeps the object of most jobs.
    return (
        known is not None and known.complete and (known.fields is fields or known.fields == fields)
    )


def _may_have_another_limit(
    task: _Known, records: Mapping[int, str], seen: Mapping[int, JobDetails]
) -> bool:
    """Whether the limit of a task's array was read again and may have changed."""
    raw_id = task.fields.raw_id
    shown = seen.get(raw_id)
    return raw_id in records or (
        shown is not None and shown.array_limit != task.job.spec.array_limit
    )


def _shape(fields: JobFields) -> Shape:
    """Return the shape; a pending job's start time is only a forecast and left out.

    24.11 and later show ``NumNodes=1-1`` for a job without ``-N`` that was submitted held, until
    Slurm first tries it. Only the pending reason shows that, hence ``untried``.
    """
    pending = fields.state is JobState.PENDING
    untried = pending and (fields.priority == 0 or fields.reason == "None")
    return fields.state, untried, None if pending else fields.start_s, _SHAPE(fields)


def _allocation(fields: JobFields, found: JobDetails | None, before: _Known | None) -> Allocation:
    """The job's allocation; while it completes, only on the nodes that are not done yet."""
    if fields.state not in (JobState.RUNNING, JobState.COMPLETING):
        return {}
    if found is not None and found.allocation:
        return found.allocation
    if fields.state is JobState.COMPLETING and before is not None:
        held = before.job.allocation
        if held.keys() >= set(fields.allocated_nodes):
            return {name: held[name] for name in held if name in fields.allocated_nodes}
    return observed_jobs.even_split(fields)
