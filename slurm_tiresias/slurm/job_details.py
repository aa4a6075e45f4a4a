"""Parse from ``scontrol -o -d show job`` what squeue does not show of a job.

That is the allocation on each node, the bounds of ``-N``, the excluded nodes, and whether memory
was requested per node or per CPU. The text is not quoted and has user-written text near its start
(the job's name) and at its end (comments), so a record is parsed only between the two, and trusted
only if it agrees with squeue.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from slurm_tiresias.errors import SlurmAnswerError
from slurm_tiresias.model import Allocation, Amount
from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.job_fields import JobFields


@dataclass(frozen=True, slots=True)
class JobDetails:
    """The contents of one record. Node bounds are None if ``-N`` set none, or if Slurm does not
    show them."""

    least_nodes: int | None
    most_nodes: int | None
    excluded_nodes: frozenset[str]
    memory_per_cpu: bool
    array_limit: int | None = None
    """How many tasks of its array may run at once (``--array=0-9%2``)."""
    allocation: Allocation = field(default_factory=dict)
    not_modelled: tuple[str, ...] = ()
    """Options in the request that placement does not model, and squeue does not show."""


_RECORD = re.compile(r"^JobId=(\d{1,18}) ", re.MULTILINE | re.ASCII)
_BEFORE_THE_NAME = re.compile(r"JobId=\d+ (?:(?:Array|Het)\w+=\S* )*JobName=", re.ASCII)
_ARRAY_LIMIT = re.compile(r" ArrayTaskThrottle=(\d{1,9})(?= |$)", re.ASCII)
_HOLDING = re.compile(r" Nodes=(\S+) CPU_IDs=([\d,-]+) Mem=(\d{1,15}) GRES=(\S*)", re.ASCII)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_AFTER_THE_NAME = re.compile(r" (?:SLUID=\w+ )?(?:HetJobIdSet|UserId)=", re.ASCII)
_SEGMENTS = {
    " SpreadSegments=Yes": "--spread-segments",
    " ConsolidateSegments=Yes": "--consolidate-segments",
}
"""They come after what users write, who can thus only make their own jobs opaque."""
_END = " MinTmpDiskNode="
"""After it come features, paths and comments, which users write."""


def records_of_all(answer: str) -> Mapping[int, str]:
    """Return the records of ``show job`` by raw job id, without jobs that have several.

    Users' text may contain a line that looks like a job's record. It cannot hide the real record,
    so such a job has several records, and none is used.
    """
    starts = [(int(match[1]), match.start()) for match in _RECORD.finditer(answer)]
    times = Counter(raw_id for raw_id, _ in starts)
    ends = [start for _, start in starts[1:]] + [len(answer)]
    return {
        raw_id: answer[start:end]
        for (raw_id, start), end in zip(starts, ends, strict=bool(starts))
        if times[raw_id] == 1
    }


def record_of_one(answer: str) -> Mapping[int, str]:
    """Return the first record of ``show job ID`` by raw job id; empty if the job is gone."""
    match = _RECORD.search(answer)
    return {int(match[1]): answer[match.start() :]} if match else {}


def details(record: str, fields: JobFields) -> JobDetails | None:
    """Parse the record of a job; return None if it does not agree with squeue."""
    trusted = _without_users_words(record, fields)
    if trusted is None:
        return None
    limit = _ARRAY_LIMIT.search(record.partition(" JobName=")[0])
    has = notation.attributes(trusted)
    if has.get("JobState") != fields.slurm_state:
        return None
    bounds = _RANGE.fullmatch(has.get("NumNodes", ""))
    try:
        allocation = _allocation(trusted)
        nodes = notation.node_names(has.get("NodeList", ""))
        excluded_nodes = frozenset(notation.node_names(has.get("ExcNodeList", "")))
    except SlurmAnswerError:
        return None
    if bounds is None or nodes != fields.allocated_nodes or not _agrees(allocation, fields):
        return None
    bounded = bounds[2] is not None
    return JobDetails(
        least_nodes=int(bounds[1]) if bounded else None,
        most_nodes=int(bounds[2]) if bounded else None,
        excluded_nodes=excluded_nodes,
        memory_per_cpu="MinMemoryCPU" in has,
        array_limit=int(limit[1]) if limit else None,
        allocation=allocation,
        not_modelled=tuple(option for shown, option in _SEGMENTS.items() if shown in record),
    )


def _without_users_words(record: str, fields: JobFields) -> str | None:
    before = _BEFORE_THE_NAME.match(record)
    if before is None or not record.startswith(fields.printed_name, before.end()):
        return None
    rest = record[before.end() + len(fields.printed_name) :]
    if not _AFTER_THE_NAME.match(rest):
        return None
    wckey = f" WCKey={fields.wckey} "
    if fields.wckey and wckey in rest:
        rest = rest.replace(wckey, " ", 1)
    trusted, end, _ = rest.partition(_END)
    return trusted if end else None


def _allocation(trusted: str) -> Allocation:
    holdings: dict[str, Amount] = {}
    for match in _HOLDING.finditer(trusted):
        amount = Amount(notation.gpus(match[4]), _cpu_count(match[2]), int(match[3]))
        holdings |= dict.fromkeys(notation.node_names(match[1]), amount)
    return holdings


def _cpu_count(cpu_ids: str) -> int:
    """Count the CPUs in ``0-3,8``."""
    count = 0
    for part in cpu_ids.split(","):
        first, _, last = part.partition("-")
        count += notation.whole(last or first) - notation.whole(first) + 1
    return count


def _agrees(allocation: Allocation, fields: JobFields) -> bool:
    """Whether the allocation is empty or adds up to squeue's nodes, CPUs and GPUs."""
    if not allocation:
        return True
    if set(allocation) != set(fields.allocated_nodes):
        return False
    held = sum(amount.gpu_count for amount in allocation.values())
    cpus = sum(amount.cpus for amount in allocation.values())
    gpus = fields.tres_gpus
    return cpus == fields.cpus and (gpus is None or held == sum(gpus.values()))
