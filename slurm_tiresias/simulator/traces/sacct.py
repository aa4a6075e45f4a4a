"""Slurm's own history: the output of ``sacct``, saved to a file.

The header names the columns. Slurm writes a row for every run of a requeued job; these rows become
one job that was submitted with the first run and ran for the sum of all runs. ElapsedRaw and
Elapsed do not include suspended time (sacct subtracts it); if a file has neither, the running time
is End - Start - Suspended.

A job has a GPU type only if Slurm accounts for types (AccountingStorageTRES with gres/gpu:TYPE),
whatever the job requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_tiresias.model import ANY_TYPE
from slurm_tiresias.simulator.traces import reading
from slurm_tiresias.simulator.traces.reading import BadValueError, Harvest, NoJobError, TraceFile
from slurm_tiresias.simulator.workload import TraceJob, Workload
from slurm_tiresias.slurm import notation
from slurm_tiresias.slurm.job_fields import STATES

NAME = "sacct"

COLUMNS = (
    "JobID",
    "Submit",
    "Start",
    "End",
    "ElapsedRaw",
    "Suspended",
    "State",
    "AllocTRES",
    "ReqTRES",
    "TimelimitRaw",
    "Partition",
    "User",
    "Account",
)
"""Columns without text that users write. sacct prints a job's name unescaped, with any ``|`` and
line breaks, so a name may look like columns or rows. A file that includes names should have them in
the last column, where a ``|`` does no harm."""

ENVIRONMENT = {"TZ": "UTC0", "SLURM_TIME_FORMAT": "%s"}
"""Makes sacct print seconds since the epoch: local times are ambiguous when clocks go back."""


def arguments(since: str, *, until: str = "", partition: str = "", account: str = "") -> list[str]:
    """Return sacct's arguments for all jobs alive at or after ``since``, and before ``until``, in
    any of its time formats; only those of the ``partition`` and ``account``, or of several with
    commas between them, if they are given."""
    wanted = {"endtime": until, "partition": partition, "accounts": account}
    return [
        "--allusers",
        "--allocations",
        "--duplicates",
        "--parsable2",
        f"--starttime={since}",
        f"--format={','.join(COLUMNS)}",
        *(f"--{name}={value}" for name, value in wanted.items() if value),
    ]


EXPORT_COMMAND = " ".join(
    [*(f"{name}={value}" for name, value in ENVIRONMENT.items()), "sacct", *arguments("DATE")]
)
"""The command that saves the history, for administrators to complete with a date and a file."""

ALIVE = frozenset(state for state, now in STATES.items() if now) | {"REQUEUE_FED", "UPDATE_DB"}
"""States of jobs that are running or may run again."""

COMES_BACK = frozenset({"PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL"})
"""Terminal states after which Slurm itself requeues a job under the same id."""

ID_REUSED_AFTER_S = 86400.0
"""A job that ended can be requeued by hand as long as slurmctld remembers it (MinJobAge, minutes).
A row with the same id that was submitted more than a day later belongs to another job."""

NAMES = "JobName"
REST_OF_A_NAME = "has too few columns: it is the rest of a job name with a line break in it"
STEP = "is a step of a job"
HET = "is a part of a heterogeneous job"
SAME_AGAIN = "is the same run again"


@dataclass(frozen=True, slots=True)
class _Row:
    """One run."""

    line: int
    job_id: str
    submitted_s: float
    ended_s: float | None
    ran_s: float
    state: str
    gpus: Mapping[str, int]
    limit_s: float | None
    partition: str
    user: str
    account: str
    name: str


def fits(first_line: str) -> bool:
    return {"JobID", "State"} <= set(first_line.split("|"))


def load(path: Path) -> Workload:
    # Slurm passes on the bytes of a job's name unchanged, whatever their encoding.
    return history(reading.open_trace(path, errors="replace"))


def history(file: TraceFile) -> Workload:
    """Return the jobs of a saved or printed history."""
    harvest = Harvest(file, NAME)
    lines = file.lines()
    header = next((words for _, words in lines if words.strip()), "").split("|")
    positions = _positions(file, header)
    jobs: dict[str, list[_Row]] = {}
    seen = set()

    def take(line: int, words: str) -> None:
        row = _run(line, _values(words, len(header), positions))
        # Overlapping exports in one file repeat rows.
        key = (row.job_id, row.submitted_s, row.ended_s, row.state)
        if key in seen:
            raise NoJobError(SAME_AGAIN)
        seen.add(key)
        jobs.setdefault(row.job_id, []).append(row)

    harvest.each(((line, words) for line, words in lines if words), take)
    for job_id, rows in jobs.items():
        rows.sort(key=lambda row: row.submitted_s)
        for number, runs in enumerate(_lives(rows)):
            # Slurm may reuse an id for another job.
            name = f"{job_id}#{number + 1}" if number else job_id
            _take(harvest, name, runs)
    return harvest.workload()


def _values(words: str, width: int, positions: Mapping[str, int]) -> Mapping[str, str]:
    """Return the values of a line by column."""
    row = words.split("|", width - 1)
    if len(row) != width and NAMES in positions:
        raise NoJobError(REST_OF_A_NAME)
    if len(row) != width:
        raise BadValueError(f"has {len(row)} columns, and the header {width}")
    values = {name: row[at] for name, at in positions.items()}
    if "." in values["JobID"]:
        raise NoJobError(STEP)
    if "+" in values["JobID"]:
        raise NoJobError(HET)
    return values


def _positions(file: TraceFile, names: Sequence[str]) -> Mapping[str, int]:
    """Return the positions of the columns; ``TraceError`` if a required one is missing."""
    at = {name: position for position, name in enumerate(names) if name}
    for either in (
        ("JobID",),
        ("Submit",),
        ("State",),
        ("AllocTRES", "ReqTRES"),
        ("ElapsedRaw", "Elapsed", "End"),
    ):
        if not any(name in at for name in either):
            raise file.refuse(
                1, f"the header has no column {' or '.join(either)}", f"use: {EXPORT_COMMAND}"
            )
    if not at.keys() & {"ElapsedRaw", "Elapsed"} and "Start" not in at:
        raise file.refuse(1, "the header has no column ElapsedRaw", f"use: {EXPORT_COMMAND}")
    return at


def _run(line: int, values: Mapping[str, str]) -> _Row:
    state = values["State"].split(" ")[0].rstrip("+")
    if state not in ALIVE | STATES.keys():
        raise BadValueError(f"Slurm has no state {reading.quoted(values['State'])}")
    submitted_s = _moment(values["Submit"])
    if submitted_s is None or not values["JobID"]:
        raise BadValueError("the job id or the time of submission is missing")
    return _Row(
        line=line,
        job_id=values["JobID"],
        submitted_s=submitted_s,
        ended_s=_moment(values.get("End", "")),
        ran_s=_ran_s(values),
        state=state,
        gpus=notation.gpus(values.get("AllocTRES", "")) or notation.gpus(values.get("ReqTRES", "")),
        limit_s=_limit_s(values),
        partition=values.get("Partition", ""),
        user=values.get("User", ""),
        account=values.get("Account", ""),
        name=values.get(NAMES, ""),
    )


def _moment(words: str) -> float | None:
    """Parse seconds since the epoch, or a date and time; None if Slurm does not know the time."""
    if words in notation.UNKNOWN_TIMES:
        return None
    return reading.number(words, "a time") if words.isdigit() else reading.date_s(words)


def _ran_s(values: Mapping[str, str]) -> float:
    if "ElapsedRaw" in values:
        return reading.duration(values["ElapsedRaw"] or "0")
    if "Elapsed" in values:
        return notation.span(values["Elapsed"]) or 0.0 if values["Elapsed"] else 0.0
    start_s, end_s = _moment(values["Start"]), _moment(values["End"])
    if start_s is None or end_s is None:
        return 0.0
    suspended = values.get("Suspended", "")
    ran_s = end_s - start_s - ((notation.span(suspended) or 0.0) if suspended else 0.0)
    return reading.duration(str(ran_s))


def _limit_s(values: Mapping[str, str]) -> float | None:
    minutes = values.get("TimelimitRaw", "")
    if minutes and minutes not in notation.UNLIMITED_SPANS:
        return notation.whole(minutes) * 60.0 or None
    span = values.get("Timelimit", "")
    return (notation.span(span) or None) if span else None


def _lives(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Yield the rows of one id, grouped by job."""
    life: list[_Row] = []
    for row in rows:
        if life and _is_another_job(life[-1], row):
            yield life
            life = []
        life.append(row)
    yield life


def _is_another_job(before: _Row, row: _Row) -> bool:
    if before.state in ALIVE | COMES_BACK or before.ended_s is None:
        return False
    return row.user != before.user or row.submitted_s > before.ended_s + ID_REUSED_AFTER_S


def _take(harvest: Harvest, job_id: str, runs: Sequence[_Row]) -> None:
    """Combine all runs into one job; its request is that of the last run."""
    first, last = runs[0], runs[-1]
    gpus = next((row.gpus for row in reversed(runs) if row.gpus), {})
    ran_s = sum(row.ran_s for row in runs)
    why = _why_dropped(last, gpus, ran_s)
    if why:
        for row in runs:
            harvest.drop(row.line, why)
        return
    harvest.keep(
        first.line,
        TraceJob(
            job_id,
            first.submitted_s,
            sum(gpus.values()),
            ran_s,
            # A job with several types counts as having none.
            gpu_type=next(iter(gpus)) if len(gpus) == 1 else ANY_TYPE,
            user=last.user,
            account=last.account,
            name=last.name,
            group=last.partition,
            limit_s=last.limit_s,
        ),
    )


def _why_dropped(last: _Row, gpus: Mapping[str, int], ran_s: float) -> str:
    if not gpus:
        return reading.NO_GPU
    if last.state in ALIVE:
        return reading.NOT_OVER
    return "" if ran_s else reading.RAN_FOR_NO_TIME
