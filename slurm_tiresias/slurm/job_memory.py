"""What is remembered of jobs from one reading to the next.

scontrol is asked about a job only when something squeue shows of its shape has changed, and what a
job asked for is kept from before it started, because Slurm then shows what it got instead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from weakref import WeakValueDictionary

from slurm_tiresias.model import Allocation, JobState, Request
from slurm_tiresias.slurm import parse_jobs, text
from slurm_tiresias.slurm.job_details import JobDetails, details
from slurm_tiresias.slurm.job_rows import JobRow
from slurm_tiresias.slurm.protocol import ObservedJob
from slurm_tiresias.slurm.request import Asked, request_of

_SHAPE = attrgetter(
    "raw_id",
    "nodes",
    "most_nodes",
    "cpus",
    "cpus_per_node",
    "tasks",
    "cpus_per_task",
    "tasks_per_node",
    "sockets",
    "memory",
    "over_subscribe",
    "required_nodes",
    "node_list",
    "tres_per_job",
    "tres_per_node",
    "tres_per_socket",
    "tres_per_task",
    "cpus_per_tres",
    "memory_per_tres",
    "tres",
    "partitions",
    "features",
)

Shape = tuple[JobState | None, bool, str, tuple[str, ...]]
"""All that a request or an allocation is made from: while it stays the same, so do they."""


_NOTHING: Mapping[str, JobDetails] = {}


@dataclass(frozen=True, slots=True)
class _Known:
    row: JobRow
    job: ObservedJob
    shape: Shape
    complete: bool
    """False where its details were missing or not to be believed."""
    while_pending: Asked | None
    request: Request
    allocation: Allocation
    array_limit: int | None


class JobMemory:
    """The jobs of the last reading, by job key: of thousands that wait few have changed by then."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._requests: WeakValueDictionary[Hashable, Request] = WeakValueDictionary()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of any job: a first reading, or one of an empty cluster."""
        return not self._known

    def unknown(self, rows: Iterable[JobRow]) -> Sequence[JobRow]:
        """The live jobs about which scontrol must be asked; one task stands for its whole array."""
        asked_for: dict[str, JobRow] = {}
        for row in rows:
            known = self._known.get(row.key)
            if known is not None and known.complete and known.row == row:
                continue
            live = parse_jobs.state_of(row) in (JobState.PENDING, JobState.RUNNING)
            if live and (known is None or not known.complete or known.shape != _shape(row)):
                asked_for.setdefault(row.raw_id, row)
        return tuple(asked_for.values())

    def live_but_missing(self, rows: Iterable[JobRow]) -> set[str]:
        """Jobs, as scontrol names them, that were alive when last read and are not listed now."""
        listed = {row.key for row in rows}
        return {
            key if "_" in key else known.row.raw_id
            for key, known in self._known.items()
            if known.job.state is not None and key not in listed
        }

    def learn(
        self,
        rows: Iterable[JobRow],
        records: Mapping[str, str],
        seen: Mapping[str, JobDetails] = _NOTHING,
    ) -> None:
        """Take in a reading: the rows, scontrol's records by raw job id, and the details of jobs
        of which they were seen otherwise, by raw job id too. Forget the rest."""
        now_known: dict[str, _Known] = {}
        for row in rows:
            known = self._known.get(row.key)
            if known is None or not known.complete or known.row != row:
                found = seen.get(row.raw_id) or _details(records.get(row.raw_id), row)
                known = _learned(row, found, known, self._one_for_all)
            now_known[row.key] = known
        self._known = now_known

    def jobs(self, rows: Iterable[JobRow]) -> tuple[ObservedJob, ...]:
        """The rows as observed jobs. They must have been learnt; what is shown as before is the
        same object as before."""
        return tuple(self._known[row.key].job for row in rows)

    def _one_for_all(self, request: Request) -> Request:
        """The same object for all jobs that ask alike: who decides then sees that they do."""
        return self._requests.setdefault(request.shape, request)


def _shape(row: JobRow) -> Shape:
    """A pending job's start time is only a forecast, and counts for nothing.

    24.11 and later show ``NumNodes=1-1`` of a job without ``-N`` that was held when it was
    submitted, until Slurm has tried it: then nothing changes but the reason why it waits.
    """
    state = parse_jobs.state_of(row)
    pending = state is JobState.PENDING
    untried = pending and (row.priority == "0" or row.reason == "None")
    return state, untried, "" if pending else row.start, _SHAPE(row)


def _learned(
    row: JobRow,
    found: JobDetails | None,
    before: _Known | None,
    one_for_all: Callable[[Request], Request],
) -> _Known:
    shape = _shape(row)
    if before is not None and before.complete and before.shape == shape:
        job = parse_jobs.observed(row, before.request, before.allocation, before.array_limit)
        return replace(before, row=row, job=job)
    state = parse_jobs.state_of(row)
    remembered = before.while_pending if before else None
    asked = parse_jobs.asked(row, found, remembered)
    request = one_for_all(request_of(asked))
    allocation = _allocation(row, found, before)
    array_limit = found.array_limit if found else None
    return _Known(
        row=row,
        job=parse_jobs.observed(row, request, allocation, array_limit),
        shape=shape,
        complete=found is not None or state not in (JobState.PENDING, JobState.RUNNING),
        while_pending=asked if state is JobState.PENDING else remembered,
        request=request,
        allocation=allocation,
        array_limit=array_limit,
    )


def _details(record: str | None, row: JobRow) -> JobDetails | None:
    return None if record is None else details(record, row)


def _allocation(row: JobRow, found: JobDetails | None, before: _Known | None) -> Allocation:
    """What the job holds; while it completes, what it held on the nodes that are not yet done."""
    state = parse_jobs.state_of(row)
    if state not in (JobState.RUNNING, JobState.COMPLETING):
        return {}
    if found is not None and found.allocation:
        return found.allocation
    nodes = set(text.node_names(row.node_list))
    if state is JobState.COMPLETING and before is not None and nodes <= set(before.allocation):
        return {name: held for name, held in before.allocation.items() if name in nodes}
    return parse_jobs.even_split(row)
