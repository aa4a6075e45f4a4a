"""The figures of a report, from the records of its period (docs/how-to/monitor.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slurm_tiresias.plotting.curves import POINTS, Curve, course
from slurm_tiresias.report.comparisons import (
    Comparison,
    against_best_baseline,
    against_fair_share,
    by_width,
)
from slurm_tiresias.report.moved import VacatedGpus, moved_gpu_s
from slurm_tiresias.simulator.report import BINS, SHORT_S, SMALL_GPUS, mean, median, percentile
from slurm_tiresias.simulator.sim_cluster import SimCluster
from slurm_tiresias.status.published import PublishedCoverage
from slurm_tiresias.status.report_query import Period
from slurm_tiresias.store.period import PERIOD
from slurm_tiresias.store.records import LOST_PARTS, UNKNOWN, CostSource

Frame: TypeAlias = "pd.DataFrame"
Numbers = NDArray[np.float64]

SCHEMA = 1
SHORTEST_S = 10.0
"""Minimum running time in a slowdown ("bounded slowdown", Feitelson et al., JSSPP 1997); otherwise
a single 1-second job would outweigh all others."""

MOST_LISTED = 100
"""Maximum number of user pairs, and of jobs, in the lists of most preemptions."""

_HUNG = ("hung_s", "false_verdicts")
_NUMBERS = {
    "jobs": ("submitted_s", "ended_s", "restarts", "preemptions", "time_limit_s"),
    "runs": ("start_s", "end_s", "elapsed_s", "gpus", "confirmed", "idle_gpu_s", *_HUNG),
    "preemptions": tuple(
        c for c in PERIOD["preemptions"] if c not in ("job_id", "for_job", "cost_source")
    ),
}


@dataclass(frozen=True, slots=True)
class Filters:
    """The jobs that a report covers; an empty filter selects all."""

    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spread:
    """Statistics of times in seconds; None without jobs. The percentile is an actual value."""

    mean_s: float | None
    median_s: float | None
    p95_s: float | None


@dataclass(frozen=True, slots=True)
class SizeFigures:
    """The jobs of one size that ran and ended in the period."""

    name: str
    jobs: int
    jct: Spread
    queueing: Spread
    mean_slowdown: float | None
    preempted_jobs: int


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Numbers of jobs. ``there`` counts all jobs that existed in the period.

    ``submitted``, ``completed`` (ended after running) and ``never_ran`` (ended without) are events
    in the period; ``running`` and ``waiting`` are at its end. ``earlier`` jobs also ended in the
    period, but started before the controller's first observation; they count for GPU use only.
    """

    there: int
    submitted: int
    completed: int
    never_ran: int
    running: int
    waiting: int
    earlier: int


@dataclass(frozen=True, slots=True)
class TierFigures:
    """Preemptions of jobs in ``tier`` for jobs in ``for_tier``; None if not recorded."""

    for_tier: int | None
    tier: int | None
    preemptions: int
    moved_gpu_s: float


@dataclass(frozen=True, slots=True)
class PairFigures:
    """Preemptions of jobs of ``user`` for jobs of ``for_user``. A name is untrusted, and empty if
    the user is hidden or unknown."""

    user: str
    for_user: str
    preemptions: int
    moved_gpu_s: float


@dataclass(frozen=True, slots=True)
class PreemptedJob:
    """A job and its preemptions in the period. Its texts are untrusted."""

    job_id: str
    user: str
    account: str
    name: str
    preemptions: int
    moved_gpu_s: float
    waited_s: float


@dataclass(frozen=True, slots=True)
class CostFigures:
    """The cost of preemptions of one program, or of all, as far as it is known.

    A program is the set of a user's jobs with one name; both texts are untrusted, and empty for
    all.
    """

    user: str
    name: str
    preemptions: int
    measured: int
    """Number of preemptions whose cost is known."""
    not_yet: int
    """Number of preemptions whose cost is not known yet: the jobs have made no new step since."""
    unknown: int
    """Number of preemptions whose cost cannot be known: the jobs reported nothing, or ended too
    soon."""
    unknown_runs_gpu_s: float
    """GPU time of the runs that these ended, of which any part may be lost."""
    saved: int
    """Number of measured preemptions after which the job saved when it was asked to."""
    lost_all: int
    """Number of measured preemptions before which the job had saved nothing in its run."""
    lost_gpu_s: float
    save_gpu_s: float
    leave_gpu_s: float
    again_gpu_s: float
    restart_gpu_s: float
    answered: Spread
    again: Spread
    restart: Spread


@dataclass(frozen=True, slots=True)
class PreemptionFigures:
    """The preemptions of the period, with their costs and benefits."""

    preemptions: int
    jobs: int
    for_jobs: int
    incomplete: int
    """Number of preemptions whose preempted run is not known; they are left out of the times."""
    hidden: int
    """Number of preemptions in which one job is another user's; only its id is shown."""
    in_vain: int
    """Number in which the victim ran again, or ended, before the preemptor started."""
    grace: Spread
    grace_gpu_s: float
    handover: Spread
    handover_gpu_s: float
    requeue_wait: Spread
    not_yet_again: int
    ended_runs_gpu_s: float
    moved_gpu_s: float
    cost: CostFigures
    by_program: tuple[CostFigures, ...]
    by_tier: tuple[TierFigures, ...]
    by_user: tuple[PairFigures, ...]
    most_preempted: tuple[PreemptedJob, ...]


@dataclass(frozen=True, slots=True)
class PartyFigures:
    """A user or an account. The name is untrusted, and empty if unknown."""

    name: str
    jobs: int
    gpu_s: float
    mean_jct_s: float | None
    mean_queueing_s: float | None
    mean_slowdown: float | None
    progress: float | None
    """Share of the time from submission to end in which its jobs ran."""
    preempted: int
    preempting: int
    given_gpu_s: float
    received_gpu_s: float
    requeue_wait_s: float
    idle_gpu_s: float = 0.0
    """GPU time held idle, as far as the nodes reported it."""
    idle_requeues: int = 0
    """How often its jobs were requeued for idle GPUs; these do not count as preemptions."""

    @property
    def balance_gpu_s(self) -> float:
        return self.received_gpu_s - self.given_gpu_s


@dataclass(frozen=True, slots=True)
class HungFigures:
    """Runs that hung at their end or hang now, and the effect of the verdicts."""

    runs: int = 0
    held_gpu_s: float = 0.0
    """GPU time that they held while they hung."""
    requeues: int = 0
    saved_gpu_s: float = 0.0
    """What the requeued ones could have held longer: until their time limits, or if they have none,
    for as long as a typical job runs."""
    false_verdicts: int = 0
    """How often a run made a step after it was found to hang."""
    lost_gpu_s: float = 0.0
    """The GPU time of runs that were requeued by a false verdict: at most that was lost."""


@dataclass(frozen=True, slots=True)
class Fairness:
    """Jain's index of the progress of users and of accounts; None if there was no progress."""

    users: float | None
    accounts: float | None


@dataclass(frozen=True, slots=True)
class OverTime:
    """Means over equal spans of ``step_s`` seconds from the beginning of the period."""

    step_s: float
    gpus: tuple[float, ...]
    waiting: tuple[float, ...]
    peak_gpus: float
    peak_waiting: float


@dataclass(frozen=True, slots=True)
class Report:
    """All figures; fields are added, never changed."""

    schema: int
    since_s: float
    until_s: float
    cluster: str
    only_of: str
    live: bool
    filters: Filters
    jobs: JobCounts
    gpu_s: float
    gpus_now: int | None
    gpu_use: float | None
    unconfirmed_runs: int
    all_sizes: SizeFigures
    by_kind: tuple[SizeFigures, ...]
    by_gpus: tuple[SizeFigures, ...]
    preemptions: PreemptionFigures
    users: tuple[PartyFigures, ...]
    accounts: tuple[PartyFigures, ...]
    fairness: Fairness
    over_time: OverTime
    events: Mapping[str, int]
    pruned_before_s: float
    """Some jobs that ended before this time may have been pruned; 0.0 if none."""
    fair_share: Comparison | None = None
    """Against an even share of the GPUs at all times (``core/fair_share.py``); None if the number
    of GPUs is not known, or not all jobs are shown."""
    starts_held: PublishedCoverage | None = None
    """How often the ranges of starts have held lately."""
    idle_gpu_s: float = 0.0
    """GPU time held idle, as far as the nodes reported it."""
    idle_requeues: int = 0
    """How often jobs were requeued for idle GPUs; these do not count as preemptions."""
    hung: HungFigures = field(default_factory=HungFigures)
    stock_slurm: Comparison | None = None
    """Against the best baseline, simulated; None if no cluster was named, or not all jobs are
    shown."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Data for the pictures only: times of single jobs by kind, and two curves over time."""

    jct_s: Mapping[str, Numbers]
    queueing_s: Mapping[str, Numbers]
    gpus: Curve
    waiting: Curve


@dataclass(frozen=True, slots=True)
class _Frames:
    """The rows of a period: ``every`` job, and those of the ``jobs`` that the report covers."""

    every: Frame
    jobs: Frame
    runs: Frame
    completed: Frame
    preemptions_of_all: Frame
    preemptions: Frame
    idle_requeues: Frame
    hung_requeues: Frame


def make_report(
    period: Period,
    filters: Filters,
    cluster: str = "",
    gpus_now: int | None = None,
    starts_held: PublishedCoverage | None = None,
    stock_cluster: SimCluster | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[Report, Drawn]:
    """Return the report of a period, and the data for its pictures.

    ``gpus_now`` is the number of GPUs in the managed partitions; None if unknown. With a
    ``stock_cluster`` the jobs are also simulated under the baselines on these nodes; ``progress``
    gets the number of simulated jobs that have ended, for each baseline.
    """
    # In whole seconds, like Slurm's start times.
    began_s = -math.inf if period.began_s is None else math.floor(period.began_s)
    # The report does not cover the time before the controller's first observation.
    period = replace(period, since_s=max(period.since_s, began_s))
    frames = _frames(period, filters, began_s)
    gpus, waiting = _courses(frames.jobs, frames.runs, period)
    report = _report(frames, period, filters, gpus, waiting)
    report = replace(report, cluster=cluster, gpus_now=gpus_now, starts_held=starts_held)
    if gpus_now:
        span_s = period.until_s - period.since_s
        report = replace(report, gpu_use=report.gpu_s / (gpus_now * span_s))
    # If other users' jobs are not shown, no comparison with another schedule of all is possible.
    if gpus_now and not period.only_of:
        fair_share = against_fair_share(frames.every, frames.completed, gpus_now)
        report = replace(report, fair_share=fair_share)
    if stock_cluster and not period.only_of:
        need_s = _needed_s(frames.every, frames.preemptions_of_all)
        every = frames.every.assign(need_s=need_s)
        stock_slurm = against_best_baseline(
            every, frames.completed, stock_cluster, period.since_s, progress
        )
        report = replace(report, stock_slurm=stock_slurm)
    kinds = _by_kind(frames.completed).items()
    return report, Drawn(
        jct_s={BINS[kind]: _numbers(part["jct_s"]) for kind, part in kinds},
        queueing_s={BINS[kind]: _numbers(part["queued_s"]) for kind, part in kinds},
        gpus=gpus,
        waiting=waiting,
    )


def _report(
    frames: _Frames, period: Period, filters: Filters, gpus: Curve, waiting: Curve
) -> Report:
    """Return the figures that follow from the records alone."""
    jobs, runs, completed = frames.jobs, frames.runs, frames.completed
    preemptions, idle_requeues = frames.preemptions, frames.idle_requeues
    return Report(
        schema=SCHEMA,
        since_s=period.since_s,
        until_s=period.until_s,
        cluster="",
        only_of=period.only_of,
        live=period.live,
        filters=filters,
        jobs=_counts(jobs, runs, completed, period),
        gpu_s=float(jobs["gpu_s"].sum()),
        gpus_now=None,
        gpu_use=None,
        unconfirmed_runs=int((runs["end_s"].notna() & (runs["confirmed"] == 0)).sum()),
        all_sizes=_size("all", completed),
        by_kind=tuple(_size(BINS[kind], part) for kind, part in _by_kind(completed).items()),
        by_gpus=tuple(_size(title, part) for title, part in by_width(completed)),
        preemptions=_preemptions(preemptions),
        users=_parties("user", jobs, completed, preemptions, idle_requeues),
        accounts=_parties("account", jobs, completed, preemptions, idle_requeues),
        fairness=Fairness(_jain("user", completed), _jain("account", completed)),
        over_time=OverTime(
            step_s=(period.until_s - period.since_s) / POINTS,
            gpus=tuple(map(float, gpus.y[:-1])),
            waiting=tuple(map(float, waiting.y[:-1])),
            peak_gpus=gpus.peak,
            peak_waiting=waiting.peak,
        ),
        events=dict(sorted(period.events.items())),
        pruned_before_s=period.pruned_before_s,
        idle_gpu_s=float(jobs["idle_gpu_s"].sum()),
        idle_requeues=len(idle_requeues),
        hung=_hung(frames),
    )


def _hung(frames: _Frames) -> HungFigures:
    runs = frames.runs[frames.runs["job_id"].isin(frames.jobs["job_id"])]
    requeues, limits_s = frames.hung_requeues, frames.jobs.set_index("job_id")["time_limit_s"]
    typical_s = frames.completed["ran_s"].median() if len(frames.completed) else 0.0
    ran_s = (requeues["left_s"] - requeues["start_s"]).clip(lower=0.0)
    would_s = requeues["job_id"].map(limits_s).fillna(typical_s).astype(float)
    left_gpu_s = (would_s - ran_s).clip(lower=0.0) * requeues["gpus"]
    was_false = requeues["false_verdicts"] > 0
    return HungFigures(
        runs=int((runs["hung_s"] > 0).sum()),
        held_gpu_s=float((runs["hung_s"] * runs["gpus"]).sum()),
        requeues=len(requeues),
        saved_gpu_s=float(left_gpu_s[~was_false].sum()),
        false_verdicts=int(runs["false_verdicts"].sum()),
        lost_gpu_s=float((ran_s * requeues["gpus"])[was_false].sum()),
    )


# From rows to frames


def _frames(period: Period, filters: Filters, began_s: float) -> _Frames:
    all_jobs, runs = _frame("jobs", period.jobs), _frame("runs", period.runs)
    requeues = _frame("preemptions", period.preemptions)
    every = _with_runs(all_jobs, runs, period)
    every = every.assign(earlier=every["first_s"] < began_s)
    jobs = every[_selected(every, filters)]
    for_itself, hung = requeues["for_itself"] > 0, requeues["hung"] > 0
    mine = requeues["job_id"].isin(jobs["job_id"])
    return _Frames(
        every,
        jobs,
        runs[runs["job_id"].isin(jobs["job_id"])],
        _completed(jobs, period),
        requeues[~for_itself],
        _with_both_sides(requeues[~for_itself], all_jobs, jobs, period),
        requeues[for_itself & ~hung & mine],
        requeues[hung & mine],
    )


def _frame(table: str, rows: Sequence[Sequence[object]]) -> Frame:
    frame = pd.DataFrame(rows, columns=list(PERIOD[table]))
    return frame.astype(dict.fromkeys(_NUMBERS[table], "float64"))


def _selected(jobs: Frame, filters: Filters) -> pd.Series[bool]:
    chosen = pd.Series(True, index=jobs.index)
    for column, names in (("user", filters.users), ("account", filters.accounts)):
        if names:
            chosen &= jobs[column].isin(names)
    if filters.partitions:
        wanted = set(filters.partitions)
        # There are few distinct partition lists and many jobs, so each list is parsed once.
        lists = [
            text for text in jobs["partition"].unique() if not wanted.isdisjoint(text.split(","))
        ]
        chosen &= jobs["partition"].isin(lists)
    return chosen


def _with_runs(jobs: Frame, runs: Frame, period: Period) -> Frame:
    """Return the jobs of the period with totals of their runs; ``gpu_s`` covers the period only."""
    until_s = runs["end_s"].fillna(runs["start_s"] + runs["elapsed_s"])
    lasted_s = until_s - runs["start_s"]
    inside_s = until_s.clip(upper=period.until_s) - runs["start_s"].clip(lower=period.since_s)
    # Less than 1 for runs that were suspended; when they were is not recorded.
    share = (runs["elapsed_s"] / lasted_s.where(lasted_s > 0)).fillna(1.0).clip(upper=1.0)
    inside_s = inside_s.clip(lower=0.0)
    idle_share = (inside_s / lasted_s.where(lasted_s > 0)).fillna(1.0).clip(upper=1.0)
    each = pd.DataFrame(
        {
            "job_id": runs["job_id"],
            "ran_s": runs["elapsed_s"],
            "first_s": runs["start_s"],
            "last_s": until_s,
            "gpus": runs["gpus"],
            "gpu_s": inside_s * share * runs["gpus"],
            # When in its run a job was idle is not recorded: spread the time evenly over the run.
            "idle_gpu_s": idle_share * runs["idle_gpu_s"],
        }
    )
    how = {"ran_s": "sum", "first_s": "min", "last_s": "max", "gpus": "max", "gpu_s": "sum"}
    how["idle_gpu_s"] = "sum"
    sums = each.groupby("job_id").agg(how)
    sums["runs"] = each.groupby("job_id").size()
    joined = jobs.join(sums, on="job_id").fillna(
        {"runs": 0, "ran_s": 0.0, "gpu_s": 0.0, "idle_gpu_s": 0.0}
    )
    # The end of a job that Slurm has forgotten is recorded late. The end of its last run is
    # accurate, unless the job was requeued after it.
    by_run = joined["ended_s"].notna() & (joined["runs"] > joined["restarts"])
    joined["end_s"] = joined["last_s"].where(by_run, joined["ended_s"])
    return joined[~(joined["end_s"] < period.since_s)]


def _needed_s(jobs: Frame, preemptions: Frame) -> pd.Series[float]:
    """Return how long each job ran in the period, less what its preemptions are known to have cost.

    Stock Slurm would not have preempted, so nothing would have been lost.
    """
    lost_s = preemptions[[f"lost_{part}_s" for part in LOST_PARTS]].sum(axis=1)
    by_job_s = lost_s.groupby(preemptions["job_id"]).sum()
    ran_s = jobs["gpu_s"] / jobs["gpus"].clip(lower=1)
    return (ran_s - jobs["job_id"].map(by_job_s).fillna(0.0)).clip(lower=1.0)


def _completed(jobs: Frame, period: Period) -> Frame:
    """Return the jobs that ran and ended in the period, with JCT, queueing delay and slowdown."""
    done = jobs[(jobs["runs"] > 0) & (jobs["end_s"] < period.until_s) & ~jobs["earlier"]]
    jct_s = (done["end_s"] - done["submitted_s"]).clip(lower=0.0)
    slowdown = (jct_s / done["ran_s"].clip(lower=SHORTEST_S)).clip(lower=1.0)
    queued_s = (jct_s - done["ran_s"]).clip(lower=0.0)
    return done.assign(jct_s=jct_s, queued_s=queued_s, slowdown=slowdown)


def _with_both_sides(found: Frame, all_jobs: Frame, jobs: Frame, period: Period) -> Frame:
    """Return the preemptions that involve the jobs, with both parties, waits and moved service."""
    left, came = found["job_id"].isin(jobs["job_id"]), found["for_job"].isin(jobs["job_id"])
    found = found.assign(mine_left=left, mine_came=came)[left | came]
    known = all_jobs.set_index("job_id")
    for side, party in (("", "user"), ("", "account"), ("for_", "user"), ("for_", "account")):
        ids = found["for_job" if side else "job_id"]
        found[side + party] = ids.map(known[party]).fillna("")
    found["name"] = found["job_id"].map(known["name"]).fillna("")
    own_both = found["job_id"].isin(known.index) & found["for_job"].isin(known.index)
    found["hidden"] = bool(period.only_of) & ~own_both
    again_s = found["again_s"].fillna(found["ended_s"])
    until_s = again_s.fillna(period.until_s).clip(upper=period.until_s)
    found["wait_s"] = (until_s - found["left_s"]).clip(lower=0.0)
    never_began = again_s.notna() & ~(found["for_start_s"] < again_s)
    found["in_vain"] = never_began & ~found["hidden"]
    found["moved_gpu_s"] = moved_gpu_s(
        [
            # Preemptions in vain, or with an unknown run, count as 0 GPUs and so move nothing.
            VacatedGpus(int(gpus), again, job, int(for_gpus), start, end)
            for gpus, again, job, for_gpus, start, end in zip(
                found["gpus"].where(~found["in_vain"]).fillna(0.0),
                again_s.fillna(math.inf),
                found["for_job"],
                found["for_gpus"].fillna(0.0),
                found["for_start_s"].fillna(0.0),
                found["for_end_s"].fillna(0.0),
                strict=True,
            )
        ],
        period.until_s,
    )
    return found


# The figures


def _counts(jobs: Frame, runs: Frame, completed: Frame, period: Period) -> JobCounts:
    ended = jobs["end_s"] < period.until_s
    still_s = runs["end_s"].fillna(math.inf)
    now = runs[(runs["start_s"] < period.until_s) & (still_s >= period.until_s)]
    running = int((~ended & jobs["job_id"].isin(now["job_id"])).sum())
    return JobCounts(
        there=len(jobs),
        submitted=int((jobs["submitted_s"] >= period.since_s).sum()),
        completed=len(completed),
        never_ran=int((ended & (jobs["runs"] == 0)).sum()),
        running=running,
        waiting=int((~ended).sum()) - running,
        earlier=int((ended & jobs["earlier"]).sum()),
    )


def _numbers(values: pd.Series[Any]) -> Numbers:
    return values.to_numpy(dtype=np.float64)


def _spread(values: pd.Series[float]) -> Spread:
    numbers = _numbers(values.dropna())
    if not numbers.size:
        return Spread(None, None, None)
    return Spread(mean(numbers), median(numbers), percentile(numbers, 95))


def _size(name: str, jobs: Frame) -> SizeFigures:
    return SizeFigures(
        name=name,
        jobs=len(jobs),
        jct=_spread(jobs["jct_s"]),
        queueing=_spread(jobs["queued_s"]),
        mean_slowdown=float(jobs["slowdown"].mean()) if len(jobs) else None,
        preempted_jobs=int((jobs["preemptions"] > 0).sum()),
    )


def _by_kind(completed: Frame) -> dict[str, Frame]:
    """Split jobs into the bins of the paper's Table 3 (``simulator.report.BINS``)."""
    small, short = completed["gpus"] <= SMALL_GPUS, completed["ran_s"] < SHORT_S
    return {
        "SS": completed[small & short],
        "SL": completed[small & ~short],
        "LS": completed[~small & short],
        "LL": completed[~small & ~short],
    }


def _preemptions(found: Frame) -> PreemptionFigures:
    known = found[found["left_s"].notna()]
    grace_s = (known["left_s"] - known["signalled_s"]).clip(lower=0.0)
    handover_s = (known["for_start_s"] - known["left_s"]).clip(lower=0.0).where(~known["in_vain"])
    return PreemptionFigures(
        preemptions=len(found),
        jobs=found["job_id"].nunique(),
        for_jobs=found["for_job"].nunique(),
        incomplete=int((found["left_s"].isna() & ~found["hidden"]).sum()),
        hidden=int(found["hidden"].sum()),
        in_vain=int(found["in_vain"].sum()),
        grace=_spread(grace_s),
        grace_gpu_s=float((grace_s * known["gpus"]).sum()),
        handover=_spread(handover_s),
        handover_gpu_s=float((handover_s * known["gpus"]).sum()),
        requeue_wait=_spread(known["wait_s"]),
        not_yet_again=int((known["again_s"].isna() & known["ended_s"].isna()).sum()),
        ended_runs_gpu_s=float(((known["left_s"] - known["start_s"]) * known["gpus"]).sum()),
        moved_gpu_s=float(found["moved_gpu_s"].sum()),
        cost=_cost("", "", found[found["mine_left"]]),
        by_program=_costs_by_program(found[found["mine_left"]]),
        by_tier=tuple(
            TierFigures(_whole(for_tier), _whole(tier), times, moved)
            for for_tier, tier, times, moved in _grouped(found, ["for_tier", "tier"])
        ),
        by_user=tuple(
            PairFigures(user, for_user, times, moved)
            for user, for_user, times, moved in _most(_grouped(found, ["user", "for_user"]))
        ),
        most_preempted=tuple(_most_preempted(found[found["mine_left"]])),
    )


def _cost(user: str, name: str, found: Frame) -> CostFigures:
    source = found["cost_source"].fillna(CostSource.SILENT)
    measured = found[~source.isin(UNKNOWN)]
    unknown = found[source.isin(UNKNOWN) & (source != CostSource.AWAITED)]
    lost_gpu_s = {
        part: float((measured[f"lost_{part}_s"].fillna(0.0) * measured["gpus"]).sum())
        for part in LOST_PARTS
    }
    used_gpu_s = (unknown["left_s"] - unknown["start_s"]).clip(lower=0.0) * unknown["gpus"]
    return CostFigures(
        user=user,
        name=name,
        preemptions=len(found),
        measured=len(measured),
        not_yet=int((source == CostSource.AWAITED).sum()),
        unknown=len(unknown),
        unknown_runs_gpu_s=float(used_gpu_s.sum()),
        saved=int(measured["answered_s"].notna().sum()),
        lost_all=int((measured["lost_all"] > 0).sum()),
        lost_gpu_s=sum(lost_gpu_s.values()),
        save_gpu_s=lost_gpu_s["save"],
        leave_gpu_s=lost_gpu_s["leave"],
        again_gpu_s=lost_gpu_s["again"],
        restart_gpu_s=lost_gpu_s["restart"],
        answered=_spread(measured["answered_s"]),
        again=_spread(measured["lost_again_s"]),
        restart=_spread(measured["lost_restart_s"]),
    )


def _costs_by_program(found: Frame) -> tuple[CostFigures, ...]:
    """Return the programs that lost most first; programs without known losses by number of
    preemptions."""
    programs = [
        _cost(str(user), str(name), part) for (user, name), part in found.groupby(["user", "name"])
    ]
    programs.sort(key=lambda one: (-one.lost_gpu_s, -one.preemptions, one.user, one.name))
    return tuple(programs[:MOST_LISTED])


def _whole(number: float) -> int | None:
    return None if math.isnan(number) else int(number)


def _grouped(found: Frame, by: list[str]) -> list[tuple[Any, ...]]:
    """Return for each group its key, the number of preemptions, and the GPU-seconds they moved."""
    sums = found.groupby(by, dropna=False)["moved_gpu_s"].agg(["size", "sum"])
    return list(sums.reset_index().itertuples(index=False, name=None))


def _most(groups: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(groups, key=lambda group: (-group[2], -group[3]))[:MOST_LISTED]


def _most_preempted(found: Frame) -> list[PreemptedJob]:
    what = ["job_id", "user", "account", "name"]
    how = {"at_s": "size", "moved_gpu_s": "sum", "wait_s": "sum"}
    sums = found.groupby(what).agg(how).reset_index()
    most = sums.sort_values(["at_s", "wait_s"], ascending=False, kind="stable")[:MOST_LISTED]
    return [PreemptedJob(*row) for row in most.itertuples(index=False, name=None)]


def _parties(
    kind: str, jobs: Frame, completed: Frame, preemptions: Frame, idle_requeues: Frame
) -> tuple[PartyFigures, ...]:
    """Return the users or accounts by balance of moved service, then by GPU use, largest first."""
    left = preemptions[preemptions["mine_left"]].groupby(kind)
    came = preemptions[preemptions["mine_came"]].groupby(f"for_{kind}")
    done = completed.groupby(kind)
    means = done[["jct_s", "queued_s", "slowdown"]].mean()
    party_of = jobs.set_index("job_id")[kind]
    rows = pd.DataFrame(
        {
            "jobs": done.size(),
            "gpu_s": jobs.groupby(kind)["gpu_s"].sum(),
            "mean_jct_s": means["jct_s"],
            "mean_queueing_s": means["queued_s"],
            "mean_slowdown": means["slowdown"],
            "progress": _progress(kind, completed),
            "preempted": left.size(),
            "preempting": came.size(),
            "given_gpu_s": left["moved_gpu_s"].sum(),
            "received_gpu_s": came["moved_gpu_s"].sum(),
            "requeue_wait_s": left["wait_s"].sum(),
            "idle_gpu_s": jobs.groupby(kind)["idle_gpu_s"].sum(),
            "idle_requeues": idle_requeues["job_id"].map(party_of).value_counts(),
        }
    )
    averages = ("mean_jct_s", "mean_queueing_s", "mean_slowdown", "progress")
    rows = rows.fillna({name: 0 for name in rows if name not in averages})
    counts = ("jobs", "preempted", "preempting", "idle_requeues")
    rows = rows.astype(dict.fromkeys(counts, int))
    found = []
    for name, row in zip(rows.index, rows.to_dict("records"), strict=True):
        values: dict[str, Any] = {
            str(key): None if math.isnan(value) else value for key, value in row.items()
        }
        found.append(PartyFigures(str(name), **values))
    return tuple(sorted(found, key=lambda one: (-one.balance_gpu_s, -one.gpu_s, one.name)))


def _progress(kind: str, completed: Frame) -> pd.Series[float]:
    sums = completed.groupby(kind)[["ran_s", "jct_s"]].sum()
    # Slurm rounds to whole seconds, so a job may seem to have run longer than it existed.
    return (sums["ran_s"] / sums["jct_s"].where(sums["jct_s"] > 0)).fillna(1.0).clip(upper=1.0)


def _jain(kind: str, completed: Frame) -> float | None:
    """Return (sum of x)^2 / (n * sum of x^2): 1 if all x are equal, 1/n if only one is not 0."""
    x = _numbers(_progress(kind, completed))
    squares = float((x**2).sum())
    return float(x.sum()) ** 2 / (x.size * squares) if squares else None


def _courses(jobs: Frame, runs: Frame, period: Period) -> tuple[Curve, Curve]:
    """Return the number of GPUs in use and of waiting jobs over time."""

    def at(times_s: pd.Series[float]) -> Numbers:
        return _numbers(times_s.clip(period.since_s, period.until_s) - period.since_s)

    until_s = runs["end_s"].fillna(runs["start_s"] + runs["elapsed_s"])
    over = runs["end_s"].dropna()
    span_s = period.until_s - period.since_s
    gpus = _numbers(runs["gpus"])
    # The last value holds until the end of the period.
    end = ([span_s], 0.0)
    held = course([(at(runs["start_s"]), gpus), (at(until_s), -gpus), end], span_s)
    waiting = course(
        [
            (at(jobs["submitted_s"]), 1.0),
            (at(jobs["end_s"].dropna()), -1.0),
            (at(runs["start_s"]), -1.0),
            (at(over), 1.0),
            end,
        ],
        span_s,
    )
    return held, waiting
