"""What a report says, part by part, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from slurm_tiresias.gpu_hours import gpu_hours, hours
from slurm_tiresias.report.comparisons import Compared, Comparison
from slurm_tiresias.report.figures import (
    CostFigures,
    PairFigures,
    PartyFigures,
    PreemptedJob,
    PreemptionFigures,
    Report,
    SizeFigures,
    Spread,
    TierFigures,
)
from slurm_tiresias.simulator.report import PAYS_ABOVE
from slurm_tiresias.table import Column
from slurm_tiresias.text import (
    NOTHING,
    count,
    date_and_time,
    duration,
    listed,
    moment,
    or_dash,
    printable,
)

SPANS = 10
BAR_CELLS = 20


@dataclass(frozen=True, slots=True)
class Table:
    """A table, with columns for which only a page has room (``more``), and a sentence below it."""

    columns: Sequence[Column[Any]]
    rows: Sequence[Any]
    more: Sequence[Column[Any]] = ()
    below: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A heading, sentences and tables. On a page, ``pictures`` take the place of ``course``."""

    title: str
    sentences: tuple[str, ...]
    tables: tuple[Table, ...] = ()
    pictures: tuple[str, ...] = ()
    course: Table | None = None


@dataclass(frozen=True, slots=True)
class _Span:
    """A slice of the period: its means, and the full scale of its bar."""

    since_s: float
    gpus: float
    waiting: float
    most: float


def summary(report: Report) -> tuple[str, ...]:
    """Return what the report covers."""
    where = f", cluster {printable(report.cluster)}" if report.cluster else ""
    span = duration(report.until_s - report.since_s)
    return (
        f"From {moment(report.since_s)} to {moment(report.until_s)}, {span}{where}.",
        *_limits(report),
        _jobs(report),
        _service(report),
    )


def parts(report: Report, most: int) -> tuple[Part, ...]:
    """Return the parts of the report that have content; long tables show ``most`` rows."""
    return tuple(
        part
        for part in (
            _sizes(report),
            _preemptions(report.preemptions, most),
            _fair_share(report, most),
            _stock_slurm(report, most),
            _parties(report, most),
            _held_idle(report, most),
            _hung(report),
            _starts(report),
            _over_time(report),
        )
        if part is not None
    )


def _sizes(report: Report) -> Part:
    return Part(
        "Jobs that ran and ended: completion time (JCT), queueing (Q) and slowdown",
        (),
        (
            Table(_size_columns("KIND"), [report.all_sizes, *report.by_kind]),
            Table(_size_columns("GPUS"), report.by_gpus),
        ),
        ("jct", "queueing"),
    )


def _preemptions(found: PreemptionFigures, most: int) -> Part:
    if not found.preemptions:
        return Part("Preemptions", ("No job was preempted.",))
    return Part(
        "Preemptions",
        (*_preempted(found), *_costs(found.cost)),
        (
            Table(PROGRAM_COLUMNS, found.by_program[:most], (KEPT_NOTHING,)),
            Table(TIER_COLUMNS, found.by_tier),
            Table(PAIR_COLUMNS, found.by_user[:most]),
            Table(JOB_COLUMNS, found.most_preempted[:most], (JOB_ACCOUNT,)),
        ),
    )


def _fair_share(report: Report, most: int) -> Part | None:
    found = report.fair_share
    if found is None or not found.all.jobs:
        return None
    sentences = [
        f"Completion times in multiples of those if all jobs had shared {found.gpus:,} GPUs "
        f"evenly at all times, and how many jobs took more than {PAYS_ABOVE:g} times as long."
    ]
    return Part("Against a fair share", tuple(sentences), _compared(found, most))


def _stock_slurm(report: Report, most: int) -> Part | None:
    found = report.stock_slurm
    if found is None or not found.all.jobs:
        return None
    mean_s, stock_mean_s = found.all.mean_jct_s or 0.0, found.all.other_mean_jct_s or 0.0
    said = (
        f"The same jobs on {found.gpus:,} GPUs under the best of the baselines, {found.baseline}, "
        f"simulated: average JCT {duration(stock_mean_s)}, measured {duration(mean_s)}. Completion "
        "times in multiples of the simulated ones. Only jobs that came and ended in this time are "
        "compared; jobs that Tiresias does not manage are not simulated. How programs save where "
        f"a baseline preempts: {found.saves}."
    )
    title = f"Against {found.baseline}, the best baseline, simulated"
    return Part(title, (said,), _compared(found, most))


def _compared(found: Comparison, most: int) -> tuple[Table, ...]:
    return tuple(
        Table((Column(name, _named, least=8), *COMPARED_COLUMNS), rows)
        for name, rows in (
            ("GPUS", (found.all, *found.by_gpus)),
            ("USER", found.users[:most]),
            ("ACCOUNT", found.accounts[:most]),
        )
    )


def _parties(report: Report, most: int) -> Part:
    tables = []
    for name, parties in (("USER", report.users), ("ACCOUNT", report.accounts)):
        left_out = max(0, len(parties) - 2 * most)
        # The parties that gained most, and those that paid most.
        shown = (*parties[:most], *parties[-most:]) if left_out else parties
        below = f"{left_out:,} between them are left out; --json has them." if left_out else ""
        by_name: Column[PartyFigures] = Column(name, _named, least=6)
        columns = (by_name, *PARTY_COLUMNS)
        tables.append(Table(columns, shown, PARTY_COLUMNS_OF_A_PAGE, below))
    return Part("Who gained and who paid", (_fairness(report),), tuple(tables), ("balance",))


def _held_idle(report: Report, most: int) -> Part | None:
    if not report.idle_gpu_s:
        return None
    sentences = [
        f"Jobs held GPUs that they did not use for {gpu_hours(report.idle_gpu_s)}, as far as "
        "their nodes told."
    ]
    if report.idle_requeues:
        sentences.append(
            f"For that, jobs were requeued {count(report.idle_requeues, 'time')}; these do not "
            "count as preemptions."
        )
    columns = [*IDLE_COLUMNS, *((IDLE_REQUEUES,) if report.idle_requeues else ())]
    tables = []
    for name, parties in (("USER", report.users), ("ACCOUNT", report.accounts)):
        idle = sorted((one for one in parties if one.idle_gpu_s), key=lambda one: -one.idle_gpu_s)
        tables.append(Table((Column(name, _named, least=6), *columns), idle[:most]))
    return Part("GPU-hours held idle", tuple(sentences), tuple(tables))


def _starts(report: Report) -> Part | None:
    held = report.starts_held
    if held is None or not held.ranges:
        return None
    return Part(
        "When waiting jobs start",
        (
            f"Of the last {count(held.ranges, 'range')} that were given, {held.outer:.0%} held "
            f"(meant: 90%), and {held.inner:.0%} of their inner halves (meant: 50%).",
        ),
    )


def _hung(report: Report) -> Part | None:
    hung = report.hung
    if not (hung.runs or hung.requeues or hung.false_verdicts):
        return None
    sentences = [
        f"{count(hung.runs, 'run')} hung, and held {gpu_hours(hung.held_gpu_s)} meanwhile."
    ]
    if hung.requeues:
        sentences.append(
            f"{count(hung.requeues, 'requeue')} of hung jobs saved up to "
            f"{gpu_hours(hung.saved_gpu_s)}: what they could have held until their time limits, or "
            "without one for as long as a typical job runs."
        )
    if hung.false_verdicts:
        sentences.append(
            f"{count(hung.false_verdicts, 'verdict')} proved false, since the run made a step "
            f"afterwards. Requeues for them lost {gpu_hours(hung.lost_gpu_s)} at most."
        )
    return Part("Hung jobs", tuple(sentences), ())


def _over_time(report: Report) -> Part:
    course = report.over_time
    return Part(
        "GPUs in use and waiting jobs over time",
        (
            f"{course.peak_gpus:,.0f} GPUs at most, {course.peak_waiting:,.0f} waiting jobs at "
            "most.",
        ),
        pictures=("course",),
        course=Table(SPAN_COLUMNS, _spans(report)),
    )


# Sentences


def _limits(report: Report) -> Iterator[str]:
    """Yield what the report does not cover."""
    filters = report.filters
    for noun, names in (
        ("user", filters.users),
        ("account", filters.accounts),
        ("partition", filters.partitions),
    ):
        if names:
            yield f"Only {noun} {printable(listed(names))}."
    if report.only_of:
        yield f"Only jobs of {printable(report.only_of)}; other users' jobs are not shown."
    if not report.live:
        yield "No controller runs: events since its last cycle are unknown."
    if report.since_s < report.pruned_before_s:
        before = date_and_time(report.pruned_before_s)
        yield (
            f"Jobs that ended before {before} have been removed from the ledger "
            "(controller.keep_ended_jobs_days), and are not included."
        )
    if would := report.events.get("would"):
        yield (
            f"In shadow mode it would have acted {count(would, 'time')}, and Slurm alone decided: "
            "see tiresias-slurm shadow report."
        )


def _share(part_gpu_s: float, all_gpu_s: float) -> str:
    return f"{part_gpu_s / all_gpu_s:.0%}" if all_gpu_s else "-"


def _jobs(report: Report) -> str:
    jobs = report.jobs
    earlier = ""
    if jobs.earlier:
        earlier = (
            f" {jobs.earlier:,} more ended that had started before the controller: they count for "
            "the use of the GPUs only."
        )
    return (
        f"{count(jobs.there, 'managed job')} existed: {jobs.completed:,} ran and ended, "
        f"{jobs.never_ran:,} ended without, {jobs.running:,} ran and {jobs.waiting:,} waited at "
        f"the end.{earlier}"
    )


def _service(report: Report) -> str:
    share = ""
    if report.gpu_use is not None:
        share = f", {report.gpu_use:.0%} of the {report.gpus_now:,} GPUs that there are now"
    unsure = ""
    if report.unconfirmed_runs:
        runs = count(report.unconfirmed_runs, "run")
        unsure = f" Of {runs} Slurm's accounting has not confirmed the length yet."
    return f"They used {gpu_hours(report.gpu_s)}{share}.{unsure}"


def _preempted(found: PreemptionFigures) -> Iterator[str]:
    times, jobs = count(found.preemptions, "preemption"), count(found.jobs, "job")
    yield (
        f"{times} of {jobs}, for {count(found.for_jobs, 'other')}. {gpu_hours(found.moved_gpu_s)} "
        "moved: service of the others on those GPUs while the preempted jobs waited."
    )
    if found.grace.mean_s is not None:
        yield (
            f"Grace and kill took {_times(found.grace.median_s, found.grace.p95_s)}, "
            f"{gpu_hours(found.grace_gpu_s)} in all."
        )
    if found.handover.mean_s is not None:
        yield (
            f"From then to the start of the other job: "
            f"{_times(found.handover.median_s, found.handover.p95_s)}. At most "
            f"{gpu_hours(found.handover_gpu_s)} were idle meanwhile."
        )
    if found.requeue_wait.mean_s is not None:
        wait = found.requeue_wait
        still = f"; {found.not_yet_again:,} still wait" if found.not_yet_again else ""
        yield f"The preempted jobs waited {_times(wait.median_s, wait.p95_s)} to run again{still}."
    if found.in_vain:
        yield (
            f"In vain: {count(found.in_vain, 'preemption')}, because the preempted job ran again "
            "before the other had started."
        )
    if found.hidden:
        yield (
            f"In {count(found.hidden, 'preemption')} the other job is another user's: what it ran, "
            "and what moved, is not shown."
        )
    if found.incomplete:
        yield f"Of {count(found.incomplete, 'preemption')} nothing else is known."


def _costs(cost: CostFigures) -> Iterator[str]:
    """Yield what preemptions lost, and how much of that is unknown."""
    if cost.measured:
        yield (
            f"Lost to preemption, as reported by jobs: {gpu_hours(cost.lost_gpu_s)}, for saves "
            f"{hours(cost.save_gpu_s)}, exits {hours(cost.leave_gpu_s)}, repeated work "
            f"{hours(cost.again_gpu_s)} and restarts {hours(cost.restart_gpu_s)}. Of "
            f"{cost.measured:,} that were measured, {cost.saved:,} saved when asked, and "
            f"{cost.lost_all:,} saved nothing in their run."
        )
        if cost.restart.mean_s is not None:
            yield (
                "From the next start to the first new step: "
                f"{_times(cost.restart.median_s, cost.restart.p95_s)}."
            )
    if cost.unknown:
        yield (
            f"What {count(cost.unknown, 'preemption')} cost is unknown, because the jobs reported "
            "nothing or ended too soon. These runs had used "
            f"{gpu_hours(cost.unknown_runs_gpu_s)}; how much of that was lost depends on when they "
            "had saved."
        )
    if cost.not_yet:
        yield (
            f"What {count(cost.not_yet, 'preemption')} cost is not known yet: the jobs have made "
            "no new step since."
        )


def _times(median_s: float | None, p95_s: float | None) -> str:
    return f"{duration(median_s or 0)} in the median, {duration(p95_s or 0)} at the 95th percentile"


def _fairness(report: Report) -> str:
    index = report.fairness.users
    meaning = (
        "JCT, queueing and slowdown are means over the jobs that ended. MOVED is the service "
        "gained (+) or lost (-) by preemption, in GPU-hours."
    )
    if index is None:
        return meaning
    return (
        f"{meaning} Jain's index of the users' progress is {index:.2f}: 1 if the jobs of all users "
        "run for the same share of their time in the system."
    )


def _spans(report: Report) -> list[_Span]:
    course = report.over_time
    points = len(course.gpus) // SPANS
    found = [
        _Span(
            report.since_s + first * course.step_s,
            mean(course.gpus[first : first + points]),
            mean(course.waiting[first : first + points]),
            0.0,
        )
        for first in range(0, len(course.gpus), points)
    ]
    most = max(report.gpus_now or 0, max(span.gpus for span in found), 1)
    return [replace(span, most=most) for span in found]


# Tables


def _whose(name: str) -> str:
    return printable(name) or NOTHING


def _named(row: Compared | PartyFigures) -> str:
    return _whose(row.name)


def _median(times: Spread, row: CostFigures) -> str:
    return or_dash(times.median_s, duration) if row.measured else "?"


def _moved(gpu_s: float) -> str:
    return f"{'+' if gpu_s > 0 else ''}{hours(gpu_s)}"


def _balance_look(party: PartyFigures) -> str:
    return "good" if party.balance_gpu_s > 0 else "note" if party.balance_gpu_s < 0 else ""


def _size_columns(title: str) -> tuple[Column[SizeFigures], ...]:
    return (
        Column(title, lambda row: row.name, least=13),
        Column("JOBS", lambda row: f"{row.jobs:,}", right=True, goes=8),
        Column("JCT", lambda row: or_dash(row.jct.mean_s, duration), right=True),
        Column("MEDIAN", lambda row: or_dash(row.jct.median_s, duration), right=True, goes=4),
        Column("P95", lambda row: or_dash(row.jct.p95_s, duration), right=True, goes=3),
        Column("Q", lambda row: or_dash(row.queueing.mean_s, duration), right=True, goes=7),
        Column("MEDIAN", lambda row: or_dash(row.queueing.median_s, duration), right=True, goes=6),
        Column("P95", lambda row: or_dash(row.queueing.p95_s, duration), right=True, goes=5),
        Column(
            "SLOW", lambda row: or_dash(row.mean_slowdown, "{:,.1f}".format), right=True, goes=2
        ),
        Column("PREEMPTED", lambda row: f"{row.preempted_jobs:,}", right=True, goes=1),
    )


def _unless_unmeasured(value: Callable[[CostFigures], str]) -> Callable[[CostFigures], str]:
    return lambda row: value(row) if row.measured else "?"


PROGRAM_COLUMNS: tuple[Column[CostFigures], ...] = (
    Column("PREEMPTED", lambda row: f"{_whose(row.user)}: {_whose(row.name)}", least=8),
    Column("TIMES", lambda row: f"{row.preemptions:,}", right=True, goes=3),
    Column("KNOWN", lambda row: f"{row.measured:,}", right=True, goes=1),
    Column("SAVED", _unless_unmeasured(lambda row: f"{row.saved:,}"), right=True, goes=2),
    Column("AGAIN", lambda row: _median(row.again, row), right=True, goes=4),
    Column("RESTART", lambda row: _median(row.restart, row), right=True, goes=5),
    Column("GPU-H LOST", _unless_unmeasured(lambda row: hours(row.lost_gpu_s)), right=True),
)
KEPT_NOTHING: Column[CostFigures] = Column(
    "KEPT NOTHING", _unless_unmeasured(lambda row: f"{row.lost_all:,}"), right=True
)
TIER_COLUMNS: tuple[Column[TierFigures], ...] = (
    Column("FOR TIER", lambda row: or_dash(row.for_tier, str), right=True),
    Column("OF TIER", lambda row: or_dash(row.tier, str), right=True, goes=2),
    Column("TIMES", lambda row: f"{row.preemptions:,}", right=True),
    Column("GPU-H MOVED", lambda row: hours(row.moved_gpu_s), right=True, goes=1),
)

PAIR_COLUMNS: tuple[Column[PairFigures], ...] = (
    Column("FOR JOBS OF", lambda row: _whose(row.for_user), least=8),
    Column("JOBS OF", lambda row: _whose(row.user), least=8),
    Column("TIMES", lambda row: f"{row.preemptions:,}", right=True, goes=2),
    Column("GPU-H MOVED", lambda row: hours(row.moved_gpu_s), right=True, goes=1),
)

JOB_COLUMNS: tuple[Column[PreemptedJob], ...] = (
    Column("JOBID", lambda row: printable(row.job_id), right=True),
    Column("USER", lambda row: _whose(row.user), least=6, goes=3),
    Column("NAME", lambda row: _whose(row.name), least=8, goes=2),
    Column("PREEMPTED", lambda row: f"{row.preemptions:,}", right=True),
    Column("WAITED", lambda row: duration(row.waited_s), right=True, goes=4),
    Column("GPU-H GIVEN", lambda row: hours(row.moved_gpu_s), right=True, goes=1),
)
JOB_ACCOUNT: Column[PreemptedJob] = Column("ACCOUNT", lambda row: _whose(row.account))


PARTY_COLUMNS: tuple[Column[PartyFigures], ...] = (
    Column("JOBS", lambda row: f"{row.jobs:,}", right=True),
    Column("GPU-H", lambda row: hours(row.gpu_s), right=True, goes=7),
    Column("JCT", lambda row: or_dash(row.mean_jct_s, duration), right=True, goes=4),
    Column("QUEUEING", lambda row: or_dash(row.mean_queueing_s, duration), right=True, goes=6),
    Column("SLOW", lambda row: or_dash(row.mean_slowdown, "{:,.1f}".format), right=True, goes=3),
    Column("PROGRESS", lambda row: or_dash(row.progress, "{:.0%}".format), right=True, goes=2),
    Column("PREEMPTED", lambda row: f"{row.preempted:,}", right=True, goes=5),
    Column("PREEMPTING", lambda row: f"{row.preempting:,}", right=True, goes=1),
    Column("MOVED", lambda row: _moved(row.balance_gpu_s), right=True, look=_balance_look),
)


PARTY_COLUMNS_OF_A_PAGE: tuple[Column[PartyFigures], ...] = (
    Column("WAITED AFTER IT", lambda row: duration(row.requeue_wait_s), right=True),
    Column("GIVEN", lambda row: hours(row.given_gpu_s), right=True),
    Column("RECEIVED", lambda row: hours(row.received_gpu_s), right=True),
)

IDLE_COLUMNS: tuple[Column[PartyFigures], ...] = (
    Column("GPU-H HELD", lambda row: hours(row.gpu_s), right=True),
    Column("IDLE", lambda row: hours(row.idle_gpu_s), right=True),
    Column("SHARE", lambda row: _share(row.idle_gpu_s, row.gpu_s), right=True),
)
IDLE_REQUEUES: Column[PartyFigures] = Column(
    "REQUEUED", lambda row: f"{row.idle_requeues:,}", right=True, goes=1
)

COMPARED_COLUMNS: tuple[Column[Compared], ...] = (
    Column("JOBS", lambda row: f"{row.jobs:,}", right=True),
    Column("MEDIAN", lambda row: or_dash(row.median, "{:,.2f}".format), right=True),
    Column("P99", lambda row: or_dash(row.p99, "{:,.2f}".format), right=True, goes=2),
    Column("MOST", lambda row: or_dash(row.most, "{:,.2f}".format), right=True),
    Column(f"ABOVE {PAYS_ABOVE:g}", lambda row: f"{row.above_twice:,}", right=True, goes=1),
)

SPAN_COLUMNS: tuple[Column[_Span], ...] = (
    Column("FROM", lambda row: moment(row.since_s), least=12),
    Column("GPUS", lambda row: f"{row.gpus:,.1f}", right=True),
    Column("WAITING", lambda row: f"{row.waiting:,.1f}", right=True, goes=2),
    Column("", lambda row: "█" * round(BAR_CELLS * row.gpus / row.most), goes=1),
)
