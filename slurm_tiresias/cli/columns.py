"""The columns of ``status``: what each shows of a job."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from slurm_tiresias.errors import UsageError
from slurm_tiresias.explanation import progress
from slurm_tiresias.explanation.folded import in_order, numbers_in
from slurm_tiresias.explanation.short import PREEMPTED, nodes_or_reason, reason
from slurm_tiresias.gpu_hours import gpu_hours
from slurm_tiresias.model import JobState, Reason
from slurm_tiresias.status.published import PublishedJob
from slurm_tiresias.table import Column
from slurm_tiresias.text import NOTHING, duration, moment, or_dash, printable, with_times

LEAST_REASON = 24
"""Terminal cells that the reason keeps when columns have to shrink."""

LEAST_REASON_IN_SHADOW = 40
"""The same for a controller that does not act: the column then shows Slurm's action and its own."""

STATE_CODES: Mapping[str, str] = {
    "PENDING": "PD",
    "RUNNING": "R",
    "SUSPENDED": "S",
    "CONFIGURING": "CF",
    "COMPLETING": "CG",
    "STOPPED": "ST",
    "RESIZING": "RS",
    "SIGNALING": "SI",
    "STAGE_OUT": "SO",
    "REQUEUED": "RQ",
    "REQUEUE_HOLD": "RH",
    "REQUEUE_FED": "RF",
    "SPECIAL_EXIT": "SE",
}
"""Slurm's short job states, as squeue shows them."""

_TROUBLE = {Reason.NEVER_FITS.value, Reason.NO_NODES.value, Reason.BACKS_OFF.value}


def state_code(job: PublishedJob) -> str:
    return STATE_CODES.get(job.slurm_state, printable(job.slurm_state)[:2] or NOTHING)


def _preemptions(job: PublishedJob) -> str:
    if not job.preemptions:
        return NOTHING
    by = f" by {printable(job.preempted_by)}" if job.preempted_by else ""
    return f"{job.preemptions}{by}"


def _ends(job: PublishedJob) -> str:
    return or_dash(job.progress.eta_s if job.progress else None, moment)


def _start(job: PublishedJob) -> str:
    return or_dash(job.start.likely_s if job.start else None, moment)


def _saved(job: PublishedJob) -> str:
    return or_dash(job.progress.saved_step if job.progress else None, "{:,}".format)


def _needs(job: PublishedJob) -> str:
    return or_dash(job.estimate.remaining_gpu_s if job.estimate else None, gpu_hours)


def _waited(job: PublishedJob) -> str:
    waits = job.managed and job.state != JobState.RUNNING.value
    return duration(job.waited_s) if waits else NOTHING


def _look_of_state(job: PublishedJob) -> str:
    if not job.managed:
        return "quiet"
    return "good" if job.state == JobState.RUNNING.value else ""


def _look_of_reason(job: PublishedJob) -> str:
    if job.reason in _TROUBLE or progress.alarm(job):
        return "bad"
    if job.reason in PREEMPTED:
        return "note"
    return _look_of_state(job)


def _text(field: str) -> Callable[[PublishedJob], str]:
    return lambda job: printable(getattr(job, field)) or NOTHING


def _number(field: str, written: Callable[[float], str] = str) -> Callable[[PublishedJob], str]:
    return lambda job: or_dash(getattr(job, field), written)


_BY_DEFAULT: tuple[Column[PublishedJob], ...] = (
    Column("JOBID", _text("job_id"), "job id", right=True),
    Column("USER", _text("user"), "user", least=6, goes=7),
    Column("NAME", _text("name"), "job name", least=8, goes=4),
    Column("ST", state_code, "Slurm's job state, short", look=_look_of_state),
    Column("TIER", _number("tier"), "tier; 0 is the highest", right=True, goes=8),
    Column("GPUS", _number("gpus"), "GPUs held or requested", right=True, goes=6),
    Column(
        "ATTAINED",
        lambda job: gpu_hours(job.attained_gpu_s) if job.managed else NOTHING,
        "GPU-time attained over all its runs",
        right=True,
        goes=5,
    ),
    Column(
        "PROGRESS",
        progress.cell,
        "share of its steps done, as it reports",
        right=True,
        goes=9,
        optional=True,
    ),
    Column(
        "ETA",
        progress.time_left,
        "remaining running time, without waiting",
        right=True,
        goes=6,
        optional=True,
    ),
    Column("WAITED", _waited, "time waited since it last ran", right=True, goes=3),
    Column("PREEMPT", _preemptions, "times preempted, and the last preemptor", goes=2),
    Column("NODES", _text("nodes"), "nodes it runs on", least=8, goes=1),
    Column(
        "REASON",
        lambda job: with_times(reason(job)),
        "why it runs or waits",
        least=LEAST_REASON,
        worth=14,
        look=_look_of_reason,
    ),
)

_ON_REQUEST: tuple[Column[PublishedJob], ...] = (
    Column("ACCOUNT", _text("account"), "account", least=6),
    Column("PARTITION", _text("partition"), "partitions", least=6),
    Column("STATE", _text("slurm_state"), "Slurm's job state", least=6),
    Column("RANK", _number("rank"), "place in the order of all jobs, from 0", right=True),
    Column("ENDS", _ends, "likely end, if it does not wait"),
    Column("START", _start, "likely start of a waiting job (explain shows the range)"),
    Column("SAVED", _saved, "the step after which it last saved", right=True),
    Column("NEEDS", _needs, "remaining GPU-time, if it is ranked by that", right=True),
    Column("SUBMITTED", _number("submitted_s", moment), "time of submission"),
    Column("STARTED", _number("running_since_s", moment), "start of the current run"),
    Column("FIRST", _number("first_started_s", moment), "first start ever"),
    Column("RESTARTS", _number("restarts"), "times requeued, for any reason", right=True),
    Column("PROMOTIONS", _number("promotions"), "times promoted to tier 0", right=True),
    Column("LANE", _text("lane"), "interactive or idle-only, if it cannot be preempted"),
    Column("STYLE", _text("style"), "placement: consolidate or spread"),
    Column("STARTON", _text("start_on"), "nodes chosen for its start", least=8),
    Column("DETAIL", _text("detail"), "detail of the reason", least=LEAST_REASON),
    Column("SLURMREASON", _text("slurm_reason"), "Slurm's own reason", least=8),
)

NODES_OR_REASON: Column[PublishedJob] = Column(
    "NODES(REASON)",
    lambda job: with_times(nodes_or_reason(job)),
    least=LEAST_REASON,
    worth=14,
    look=_look_of_reason,
)
"""Takes the place of REASON if there is no room for NODES."""

COLUMNS: Mapping[str, Column[PublishedJob]] = {c.title: c for c in (*_BY_DEFAULT, *_ON_REQUEST)}


def chosen(names: Sequence[str]) -> tuple[Column[PublishedJob], ...]:
    """Return the named columns; names after a ``+`` are added to the default columns."""
    if not names:
        return _BY_DEFAULT
    added = names[0].startswith("+")
    columns = tuple(_named(name.removeprefix("+") if added else name) for name in names)
    return (*_BY_DEFAULT, *(c for c in columns if c not in _BY_DEFAULT)) if added else columns


def checked(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return these names; raise ``UsageError`` unless each is that of a column."""
    chosen(names)
    return names


def _named(name: str) -> Column[PublishedJob]:
    try:
        return COLUMNS[name.upper()]
    except KeyError:
        raise UsageError(
            f"There is no column {printable(name)!r}", f"There are: {', '.join(COLUMNS)}"
        ) from None


_SORTED_BY: Mapping[str, Callable[[PublishedJob], Any]] = {
    "JOBID": lambda job: numbers_in(job.job_id),
    "USER": lambda job: job.user,
    "NAME": lambda job: job.name,
    "ST": state_code,
    "STATE": lambda job: job.slurm_state,
    "ACCOUNT": lambda job: job.account,
    "PARTITION": lambda job: job.partition,
    "TIER": lambda job: _or_last(job.tier),
    "RANK": lambda job: _or_last(job.rank),
    "GPUS": lambda job: job.gpus,
    "ATTAINED": lambda job: job.attained_gpu_s,
    "PROGRESS": lambda job: _or_last(_share_done(job)),
    "ETA": lambda job: _or_last(job.progress.remaining_s if job.progress else None),
    "ENDS": lambda job: _or_last(job.progress.eta_s if job.progress else None),
    "WAITED": lambda job: job.waited_s,
    "PREEMPT": lambda job: job.preemptions,
    "RESTARTS": lambda job: job.restarts,
    "PROMOTIONS": lambda job: job.promotions,
    "SUBMITTED": lambda job: job.submitted_s,
    "STARTED": lambda job: _or_last(job.running_since_s),
    "START": lambda job: _or_last(job.start.likely_s if job.start else None),
    "FIRST": lambda job: _or_last(job.first_started_s),
    "REASON": lambda job: job.reason,
    "NODES": lambda job: job.nodes,
}
"""The sort key of each column: numbers sort by value, not as text."""


def _share_done(job: PublishedJob) -> float | None:
    progress = job.progress
    return progress.step / progress.total if progress and progress.total else None


def _or_last(value: float | None) -> float:
    return math.inf if value is None else value


def sorted_by(names: Sequence[str], jobs: Iterable[PublishedJob]) -> list[PublishedJob]:
    """Sort jobs by these columns, in descending order if the name begins with ``-``. Ties stay in
    the order in which the controller considers the jobs."""
    found = in_order(jobs)
    for name in reversed(names):
        column = name.lstrip("+-").upper()
        found.sort(key=_SORTED_BY[column], reverse=name.startswith("-"))
    return found


def checked_sort(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return these names; raise ``UsageError`` unless jobs can be sorted by all the columns."""
    for name in names:
        if name.lstrip("+-").upper() not in _SORTED_BY:
            raise UsageError(
                f"Jobs cannot be sorted by column {printable(name)!r}",
                f"Sort by one of: {', '.join(_SORTED_BY)}",
            )
    return names


def help_on_columns() -> str:
    """List all columns with their meaning, for ``--help``."""
    width = max(map(len, COLUMNS))
    return "\n".join(f"{name:{width}}  {column.doc}" for name, column in COLUMNS.items())
