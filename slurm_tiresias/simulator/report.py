"""The results of a simulation: figures for people, and records for programs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from slurm_tiresias import __version__
from slurm_tiresias.core.fair_share import SharedJob, fair_ends_s
from slurm_tiresias.core.features.min_run import KEPT_TIMES
from slurm_tiresias.gpu_hours import exact_gpu_hours
from slurm_tiresias.settings.preemption import PreemptionConfig
from slurm_tiresias.simulator.baselines import BEST, OWN_LIMITS, STOCK
from slurm_tiresias.simulator.engine import Outcome
from slurm_tiresias.simulator.not_simulated import not_simulated
from slurm_tiresias.simulator.run import Setup
from slurm_tiresias.simulator.saves import LOSSLESS, SaveModel
from slurm_tiresias.simulator.workload import TraceJob, Workload

SMALL_GPUS = 4
SHORT_S = 800.0
BINS: Mapping[str, str] = {
    "SS": "small and short",
    "SL": "small and long",
    "LS": "large and short",
    "LL": "large and long",
}
"""The bins of the paper's Table 3 (page 493): small is up to 4 GPUs, short is under 800 s."""

REFERENCES = ("tiresias-l", "tiresias-g")
"""Reference policies, in order of preference: figures are given as multiples of the first one that
was run (paper Table 5)."""

LINES_LISTED = 100
"""Maximum number of dropped lines that a record lists per reason; their count is always given."""


@dataclass(frozen=True, slots=True)
class BinFigures:
    """The figures of the jobs in one bin; the average is None without jobs."""

    name: str
    jobs: int
    average_jct_s: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """Job completion times, queueing delays, and the costs of preemption.

    A percentile is the smallest value that this percentage of the jobs does not exceed, so it is an
    actual value; the median of an even number of values is the mean of the middle two.
    """

    jobs: int
    average_jct_s: float
    median_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    makespan_s: float
    """From the first submission to the last end."""
    average_wait_s: float
    """Queueing delay: the total time between submission and end in which a job held no GPUs."""
    median_wait_s: float
    p95_wait_s: float
    preemptions: int
    promotions: int
    lost_gpu_s: float
    """GPU-seconds held while jobs saved and loaded because of preemptions."""
    lost_share: float
    """``lost_gpu_s`` as a share of all GPU-seconds held."""
    again_gpu_s: float
    """GPU-seconds of unsaved work that was lost in preemptions and repeated."""
    again_share: float
    """``again_gpu_s`` as a share of all GPU-seconds held."""
    failures: int
    """Runs that failed with their nodes."""
    goodput: float
    """GPU-seconds in which work was done that was not lost, as a share of all held."""
    gpu_use: float
    """GPU-seconds held as a share of those available until the last job ended."""
    bins: tuple[BinFigures, ...]


def figures(outcomes: Sequence[Outcome], gpus: int) -> Figures:
    """Return the figures of one simulation on a cluster with ``gpus``; all zero without jobs."""
    jct_s = _numbers(outcome.jct_s for outcome in outcomes)
    wait_s = _numbers(outcome.waited_s for outcome in outcomes)
    first_s = min((outcome.job.submitted_s for outcome in outcomes), default=0.0)
    makespan_s = max((outcome.end_s for outcome in outcomes), default=0.0) - first_s
    held_gpu_s = sum((each.jct_s - each.waited_s) * each.job.gpus for each in outcomes)
    lost_gpu_s = sum(outcome.lost_s * outcome.job.gpus for outcome in outcomes)
    again_gpu_s = sum(outcome.again_s * outcome.job.gpus for outcome in outcomes)
    return Figures(
        jobs=len(outcomes),
        average_jct_s=mean(jct_s),
        median_jct_s=median(jct_s),
        p95_jct_s=percentile(jct_s, 95),
        p99_jct_s=percentile(jct_s, 99),
        makespan_s=makespan_s,
        average_wait_s=mean(wait_s),
        median_wait_s=median(wait_s),
        p95_wait_s=percentile(wait_s, 95),
        preemptions=sum(outcome.preemptions for outcome in outcomes),
        promotions=sum(outcome.promotions for outcome in outcomes),
        lost_gpu_s=lost_gpu_s,
        lost_share=lost_gpu_s / held_gpu_s if held_gpu_s else 0.0,
        again_gpu_s=again_gpu_s,
        again_share=again_gpu_s / held_gpu_s if held_gpu_s else 0.0,
        failures=sum(outcome.failures for outcome in outcomes),
        goodput=1.0 - (lost_gpu_s + again_gpu_s) / held_gpu_s if held_gpu_s else 0.0,
        gpu_use=held_gpu_s / (gpus * makespan_s) if makespan_s else 0.0,
        bins=_bins(outcomes),
    )


PAYS_ABOVE = 2.0
"""A job pays for others if it takes more than this many times as long as with a fair share."""


@dataclass(frozen=True, slots=True)
class Multiples:
    """Completion times as multiples of others; all zero without jobs."""

    median: float
    p99: float
    most: float
    above_twice: int
    """Number of jobs that took more than ``PAYS_ABOVE`` times as long."""


def multiples_of(ratios: np.typing.NDArray[np.float64]) -> Multiples:
    return Multiples(
        median(ratios),
        percentile(ratios, 99),
        float(ratios.max(initial=0.0)),
        int((ratios > PAYS_ABOVE).sum()),
    )


@dataclass(frozen=True, slots=True)
class FairShareFigures:
    """Completion times as multiples of those with a fair share (``core/fair_share.py``)."""

    median: float
    p99: float
    most: float
    above_twice_share: float
    """The share of jobs above ``PAYS_ABOVE``."""


def fair_jct_s(jobs: Sequence[TraceJob], gpus: int) -> Mapping[str, float]:
    """Return the completion time of each job if all shared the GPUs evenly, by job id."""
    shared = [SharedJob(job.submitted_s, job.gpus, job.duration_s) for job in jobs]
    ends_s = fair_ends_s(shared, gpus)
    return {job.job_id: end_s - job.submitted_s for job, end_s in zip(jobs, ends_s, strict=True)}


def _numbers(values: Iterable[float]) -> np.typing.NDArray[np.float64]:
    return np.fromiter(values, dtype=np.float64)


def mean(values: np.typing.NDArray[np.float64]) -> float:
    """Return the mean; 0.0 without values, as for ``median`` and ``percentile``."""
    return float(values.mean()) if values.size else 0.0


def median(values: np.typing.NDArray[np.float64]) -> float:
    """Return the median; for an even number of values, the mean of the middle two."""
    return float(np.median(values)) if values.size else 0.0


def percentile(values: np.typing.NDArray[np.float64], percent: float) -> float:
    """Return the smallest value that ``percent`` percent of the values do not exceed."""
    return float(np.percentile(values, percent, method="inverted_cdf")) if values.size else 0.0


def bin_of(job: TraceJob) -> str:
    """Return SS, SL, LS or LL: small or large, short or long (paper Table 3, page 493)."""
    size = "S" if job.gpus <= SMALL_GPUS else "L"
    return size + ("S" if job.duration_s < SHORT_S else "L")


def _bins(outcomes: Sequence[Outcome]) -> tuple[BinFigures, ...]:
    jct_s: dict[str, list[float]] = {name: [] for name in BINS}
    for outcome in outcomes:
        jct_s[bin_of(outcome.job)].append(outcome.jct_s)
    return tuple(
        BinFigures(name, len(found), mean(np.array(found)) if found else None)
        for name, found in jct_s.items()
    )


@dataclass(frozen=True, slots=True)
class Result:
    """The outcomes and figures of one policy."""

    policy: str
    outcomes: tuple[Outcome, ...]
    figures: Figures
    best_of: Mapping[str, float] = field(default_factory=dict)
    """For ``BEST``: the average completion times of the baselines that it was chosen from."""

    @property
    def baseline(self) -> str | None:
        """For ``BEST``: which one it is."""
        return min(self.best_of, key=self.best_of.__getitem__) if self.best_of else None

    @property
    def label(self) -> str:
        return f"{self.policy}: {self.baseline}" if self.best_of else self.policy


def best_of(results: Sequence[Result]) -> Result:
    """Return the result with the smallest average completion time, as the one of ``BEST``."""
    averages_s = {result.policy: result.figures.average_jct_s for result in results}
    best = min(results, key=lambda result: averages_s[result.policy])
    return replace(best, policy=BEST, best_of=averages_s)


@dataclass(frozen=True, slots=True)
class Report:
    """A comparison of policies on the same jobs and the same cluster.

    ``workload`` has the jobs that the cluster can run; ``unfit`` counts the others. ``cluster``
    and ``config_file`` are as the user named them. ``lower_bound_jct_s`` is a lower bound on the
    average job completion time of any scheduler.
    """

    workload: Workload
    cluster: str
    unfit: int
    setup: Setup
    lower_bound_jct_s: float
    results: tuple[Result, ...]
    fair_jct_s: Mapping[str, float]
    """The completion time of each job with a fair share of the GPUs, by job id."""
    config_file: str | None = None
    preset: str | None = None

    @property
    def reference(self) -> Result:
        """The policy that the others are compared to: Tiresias-L or -G, or else the first."""
        results = {result.policy: result for result in self.results}
        return next((results[name] for name in REFERENCES if name in results), self.results[0])

    @property
    def seed(self) -> int | None:
        """The seed of a generated workload, taken from its name; None for other workloads."""
        if self.workload.format != "generated":
            return None
        return int(self.workload.name.split(":")[1])

    @property
    def input_sha256(self) -> str:
        """SHA-256 of the trace file, or of the jobs themselves if they were generated."""
        if self.workload.sha256:
            return self.workload.sha256
        rows = (
            f"{job.job_id},{job.submitted_s},{job.gpus},{job.duration_s},{job.model}"
            for job in self.workload.jobs
        )
        return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest()

    def unfinished(self, result: Result) -> int:
        """Return the number of jobs that never ended because this policy cannot place them."""
        return len(self.workload.jobs) - len(result.outcomes)

    def over_the_bound(self, result: Result) -> float | None:
        """Return the average job completion time as a multiple of the lower bound."""
        return ratio(result.figures.average_jct_s, self.lower_bound_jct_s)

    def over_fair_share(self, result: Result) -> FairShareFigures:
        """Compare completion times with those of a fair share; all zero without jobs."""
        fair_s = self.fair_jct_s
        ratios = _numbers(one.jct_s / max(1e-9, fair_s[one.job.job_id]) for one in result.outcomes)
        found = multiples_of(ratios)
        share = found.above_twice / ratios.size if ratios.size else 0.0
        return FairShareFigures(found.median, found.p99, found.most, share)

    def not_simulated(self) -> list[str]:
        """Return the settings that were changed and have no effect here."""
        return not_simulated(self.setup.config)

    def left_out(self) -> tuple[str, ...]:
        """Return a sentence for each reason why a part of the input was not simulated."""
        dropped = self.workload.what_was_dropped()
        unfit = (what_cannot_run(self.unfit),) if self.unfit else ()
        never = tuple(
            f"under {result.label} {_jobs(self.unfinished(result))} never found a place: its "
            "figures are without them"
            for result in self.results
            if self.unfinished(result)
        )
        return (*dropped, *unfit, *never)

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return the named inputs that determine the results: equal facts give equal bytes."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        without_file = f"the preset {self.preset}" if self.preset else "none, the defaults"
        interval_s = self.setup.slurm.bf_interval_s
        stock = (STOCK, f"main scheduler at every event, backfill every {interval_s:g} s")
        has_stock = {result.policy for result in self.results} & {BEST, STOCK, *OWN_LIMITS}
        best = next((result for result in self.results if result.best_of), None)
        left_out = self.not_simulated()
        return (
            ("version", f"slurm-tiresias {__version__}"),
            ("input", f"{self.workload.name}, {_jobs(len(self.workload.jobs))}{seed}"),
            ("sha256", self.input_sha256),
            ("cluster", f"{self.cluster}, {self.setup.cluster.gpus:,} GPUs"),
            ("config", self.config_file or without_file),
            *((("ignored", ", ".join(left_out)),) if left_out else ()),
            *_settings(self.setup),
            *((stock,) if has_stock else ()),
            *(((BEST, _chosen(best)),) if best else ()),
            *((("reports", str(self.setup.reports)),) if self.setup.reports else ()),
        )


def what_cannot_run(jobs: int) -> str:
    """Return a sentence on the jobs of the trace that the cluster could never run."""
    return f"left out {_jobs(jobs)} that cannot run here: too wide, or bound to other GPUs"


def _chosen(best: Result) -> str:
    averages = ", ".join(f"{name} {s:,.0f} s" for name, s in best.best_of.items())
    return f"{best.baseline}, by the average JCT of {averages}"


def ratio(value: float, reference: float) -> float | None:
    """Return the value as a multiple of the reference; None if that is zero."""
    return value / reference if reference else None


def _jobs(number: int) -> str:
    return f"{number:,} {'job' if number == 1 else 'jobs'}"


def _settings(setup: Setup) -> tuple[tuple[str, str], ...]:
    policy, costs, timing = setup.config.policy, setup.costs, setup.timing
    cuts = ", ".join(map(exact_gpu_hours, policy.thresholds_gpu_s))
    restart = "what was measured by model" if costs.flat_s is None else f"{costs.flat_s:g} s"
    speeds = "speeds by model" if costs.speeds else "speeds the same everywhere"
    when = f"every {timing.interval_s:g} s" if timing.interval_s else "at every event"
    return (
        ("tiers", f"cut at {cuts}, order {policy.order}"),
        ("promotion", f"knob {policy.promote_knob:g}" if policy.promote_knob else "off"),
        ("protection", protection(setup.config.preemption)),
        (
            "placement",
            f"{setup.cluster.placement}, pack limit {setup.config.placement.pack_limit:g}; "
            f"{speeds}",
        ),
        ("decisions", when),
        ("preemption", f"costs {restart}, requeue delay {timing.requeue_delay_s:g} s"),
        ("saves", how_saved(costs.saves)),
        ("failures", str(setup.failures or "none")),
    )


def how_saved(saves: SaveModel | None) -> str:
    """Return a description of how programs are assumed to save."""
    return LOSSLESS if saves is None else str(saves)


def protection(preemption: PreemptionConfig) -> str:
    """Return a description of the protection of running jobs."""
    limits = {
        f"none preempted within {preemption.min_run_s:g} s of a start, after preemptions within "
        f"{KEPT_TIMES:g} times what one costs": preemption.min_run_s > 0,
        f"no user's jobs cost others more than {preemption.budget_share:.0%} of all GPU time": (
            preemption.budget_share > 0
        ),
    }
    return ", ".join(limit for limit, is_set in limits.items() if is_set) or "off"


def settings(setup: Setup) -> dict[str, Any]:
    """Return the configuration as tables: the settings that a simulation uses, and its own.

    The policy's name is left out, because it differs between the policies of a comparison.
    """
    config = asdict(setup.config)
    del config["policy"]["name"]
    return {
        "policy": config["policy"],
        "preemption": {name: config["preemption"][name] for name in ("min_run_s", "budget_share")},
        "placement": config["placement"],
        "simulation": {
            "placement": setup.cluster.placement,
            "model_speeds": setup.costs.speeds,
            "restart_s": "by model" if setup.costs.flat_s is None else setup.costs.flat_s,
            **asdict(setup.timing),
            "slurm": asdict(setup.slurm),
            "reports": asdict(setup.reports) if setup.reports else None,
            "saves": setup.costs.saves.as_record() if setup.costs.saves else None,
            "failures": asdict(setup.failures) if setup.failures else None,
        },
    }


def records(report: Report) -> list[dict[str, Any]]:
    """Return the report for programs: one self-contained object per policy."""
    return [_figures_record(report, result) | _input_record(report) for result in report.results]


def _figures_record(report: Report, result: Result) -> dict[str, Any]:
    found, reference = result.figures, report.reference.figures
    figures = {name.replace("average", "avg"): value for name, value in asdict(found).items()}
    return {
        "policy": result.policy,
        "baseline": result.baseline,
        "best_of": dict(result.best_of) or None,
        "unfinished": report.unfinished(result),
        "lower_bound_avg_jct_s": report.lower_bound_jct_s,
        "avg_jct_over_lower_bound": report.over_the_bound(result),
        "reference": report.reference.policy,
        "over_reference": {
            "avg_jct": ratio(found.average_jct_s, reference.average_jct_s),
            "median_jct": ratio(found.median_jct_s, reference.median_jct_s),
            "p95_jct": ratio(found.p95_jct_s, reference.p95_jct_s),
            "makespan": ratio(found.makespan_s, reference.makespan_s),
        },
        "over_fair_share": asdict(report.over_fair_share(result)),
        **figures,
        "bins": {
            each.name: {"jobs": each.jobs, "avg_jct_s": each.average_jct_s} for each in found.bins
        },
    }


def _input_record(report: Report) -> dict[str, Any]:
    workload = report.workload
    return {
        "version": __version__,
        "workload": workload.name,
        "format": workload.format,
        "seed": report.seed,
        "input_sha256": report.input_sha256,
        "notes": list(workload.notes),
        "dropped": {
            "count": len(workload.dropped),
            "reasons": [
                {"why": why, "count": len(numbers), "lines": numbers[:LINES_LISTED]}
                for why, numbers in workload.dropped_lines().items()
            ],
        },
        "cannot_run_on_the_cluster": report.unfit,
        "cluster": report.cluster,
        "gpus": report.setup.cluster.gpus,
        "config_file": report.config_file,
        "not_simulated": report.not_simulated(),
        "preset": report.preset,
        "config": settings(report.setup),
    }
