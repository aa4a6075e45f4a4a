"""Tuning: which thresholds would have been best for a history, and whether that is significant.

Every candidate is simulated on the whole history. The jobs are then split by submission into two
halves, and each half into parts of equally many jobs. The first half selects the settings that are
as good as the best. If the default is among them, it is chosen; otherwise the simplest of them that
the second half confirms to be better than the default. The default is the site's present setting.

Significance is estimated by resampling the parts of a half with replacement, with the same draws
for every setting. Parts are drawn, not jobs, because jobs that queue together are not independent
(block bootstrap; Efron and Tibshirani 1993, chapter 8).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slurm_tiresias.errors import TiresiasError, UsageError
from slurm_tiresias.settings.policy import REPORTS, PolicyConfig
from slurm_tiresias.simulator import sensitivity
from slurm_tiresias.simulator.report import mean, median, percentile
from slurm_tiresias.simulator.reports import ReportModel
from slurm_tiresias.simulator.sweep import NOTICED_WAIT_S, Cell, Failed, Measured, Result
from slurm_tiresias.simulator.workload import Workload

Seconds = NDArray[np.float64]

OBJECTIVES: Mapping[str, Callable[[Seconds], float]] = {
    "average": mean,
    "median": median,
    "p95": lambda jct_s: percentile(jct_s, 95),
}
"""The objectives to minimize, by name."""

DEFAULT_GPU_S = PolicyConfig().thresholds_gpu_s

PARTS = 10
"""Number of parts in each half."""
FEWEST_JOBS_A_PART = 30
FEWEST_DAYS = 21.0
FEWEST_WAITING = 0.05
"""A history below these limits is insufficient: the advice has warnings and keeps the default."""

RESAMPLES = 400
CERTAINTY = (2.5, 97.5)
"""The percentiles that bound the 95 % confidence interval of a ratio."""
WORTH = 0.01
"""A setting within this share of the best counts as equally good, to prefer simple settings."""

QUANTILES = (0.5, 0.65, 0.8, 0.9, 0.95)
LADDER_TIERS = (3, 4, 5)
LADDER_STEPS = (2, 8)
"""Ratios between successive thresholds of a ladder; the paper uses 2 (Fig. 15)."""
ALIKE = 1.15
LOWEST_GPU_S, HIGHEST_GPU_S = 60.0, 1e9


def candidates(
    workload: Workload, present: tuple[float, ...] = DEFAULT_GPU_S
) -> tuple[tuple[float, ...], ...]:
    """Return the thresholds to try: ascending lists of GPU-seconds, the present ones first.

    They are the paper's (Figs. 14 and 15), quantiles of the GPU-seconds per job in the history, and
    ladders that begin at the default's first threshold and at the median job. Raises ``UsageError``
    if the halves of the history cannot be split into their parts.
    """
    jobs = len(workload.jobs)
    if jobs < 2 * PARTS:
        raise UsageError(
            f"{jobs} {'job is' if jobs == 1 else 'jobs are'} too few to compare settings",
            f"Name at least {2 * PARTS} jobs, or an earlier --since; advice needs "
            f"{2 * PARTS * FEWEST_JOBS_A_PART}",
        )
    service_gpu_s = [job.gpus * job.duration_s for job in workload.jobs]
    # Rounded to two digits, because a threshold of 3,847 GPU-seconds is hard to read.
    quantiles = [
        float(f"{max(float(cut), LOWEST_GPU_S):.2g}")
        for cut in np.quantile(service_gpu_s, QUANTILES)
    ]
    ladders = (
        tuple(start * step**rung for rung in range(tiers - 1))
        for tiers in LADDER_TIERS
        for start in (DEFAULT_GPU_S[0], quantiles[0])
        for step in LADDER_STEPS
    )
    cuts = ((cut,) for cut in quantiles)
    kept: list[tuple[float, ...]] = [present]
    for each in (DEFAULT_GPU_S, *sensitivity.THRESHOLDS, *sensitivity.TIERS, *cuts, *ladders):
        if each[-1] <= HIGHEST_GPU_S and not any(_alike(each, other) for other in kept):
            kept.append(each)
    return tuple(kept)


def _alike(these: Sequence[float], those: Sequence[float]) -> bool:
    return len(these) == len(those) and all(
        max(a, b) < ALIKE * min(a, b) for a, b in zip(these, those, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Ratio:
    """A setting's objective as a multiple of the default's; below 1 is better.

    ``low`` and ``high`` are its 95 % confidence interval; ``parts`` has the ratio of each part.
    """

    value: float
    low: float
    high: float
    parts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The results of one candidate."""

    cell: Cell
    objective_s: float
    """The objective over the whole history, in seconds."""
    first: Ratio
    second: Ratio
    as_good_as_best: bool
    """Whether it is as good as the best in the first half, within the confidence interval."""
    preemptions: int
    lost_gpu_s: float


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommended setting and its evidence. If there are ``warnings``, the history is
    insufficient and the default is recommended."""

    objective: str
    evidence: tuple[Evidence, ...]
    failed: tuple[Failed, ...]
    chosen: Evidence
    """The simplest setting that is as good as the best in the first half and that the second half
    confirms."""
    best: Evidence
    """The best setting in the first half."""
    recommended: Evidence
    default: Evidence
    waiting: float
    """Share of the jobs that waited a minute or more under the default."""
    warnings: tuple[str, ...]


def advise(workload: Workload, results: Sequence[Result], objective: str) -> Advice:
    """Choose a setting from the results of the candidates; the first is the default's.

    Raises ``TiresiasError`` if the default could not be simulated.
    """
    default = results[0]
    if isinstance(default, Failed):
        raise TiresiasError(
            f"The default setting could not be simulated: {default.why}",
            "Solve that first: without it there is nothing to compare with",
        )
    measured = [result for result in results if isinstance(result, Measured)]
    evidence = _weighed(measured, OBJECTIVES[objective])
    best = min(evidence, key=lambda each: each.first.value)
    waiting = default.jobs_that_waited / len(workload.jobs)
    warnings = tuple(_warnings(workload, waiting))
    chosen = _simplest_proven([each for each in evidence if each.as_good_as_best], evidence[0])
    proven = chosen.second.high < 1.0 and not warnings
    return Advice(
        objective=objective,
        evidence=tuple(evidence),
        failed=tuple(result for result in results if isinstance(result, Failed)),
        chosen=chosen,
        best=best,
        recommended=chosen if proven else evidence[0],
        default=evidence[0],
        waiting=waiting,
        warnings=warnings,
    )


def _simplest_proven(as_good: Sequence[Evidence], default: Evidence) -> Evidence:
    """Return the simplest setting that the second half confirms, or the simplest if it confirms
    none. The default needs no confirmation.
    """
    if default in as_good:
        return default
    # Simplest means fewest tiers; ties go to the best in the first half.
    by_simplicity = sorted(as_good, key=lambda each: (each.cell.tiers, each.first.value))
    proven = (each for each in by_simplicity if each.second.high < 1.0)
    return next(proven, by_simplicity[0])


def _weighed(measured: Sequence[Measured], of: Callable[[Seconds], float]) -> list[Evidence]:
    jct_s = [np.array(each.jct_s) for each in measured]
    # Both halves have parts of equally many jobs, by submission; fewer parts if there are few jobs.
    count = min(PARTS, len(jct_s[0]) // 2)
    parts = [np.array_split(each, 2 * count) for each in jct_s]
    # A fixed seed, so that the draws are the same on every machine.
    draw = random.Random("tune").random
    draws = [[int(draw() * count) for _ in range(count)] for _ in range(RESAMPLES)]
    first = _Half.of([each[:count] for each in parts], of, draws)
    second = _Half.of([each[count:] for each in parts], of, draws)
    best = int(np.argmin(first.values))
    return [
        Evidence(
            cell=each.cell,
            objective_s=of(jct_s[number]),
            first=first.against_default(number),
            second=second.against_default(number),
            as_good_as_best=first.may_equal(number, best),
            preemptions=each.preemptions,
            lost_gpu_s=each.lost_gpu_s,
        )
        for number, each in enumerate(measured)
    ]


@dataclass(frozen=True, slots=True)
class _Half:
    """The objective of each setting in one half: overall, by part, and by resample."""

    values: Seconds
    by_part: Seconds
    by_resample: Seconds

    @classmethod
    def of(
        cls,
        settings: Sequence[Sequence[Seconds]],
        of: Callable[[Seconds], float],
        draws: Sequence[Sequence[int]],
    ) -> _Half:
        """Return the objective of these parts of the half, by setting."""
        return cls(
            values=np.array([of(np.concatenate(parts)) for parts in settings]),
            by_part=np.array([[of(part) for part in parts] for parts in settings]),
            by_resample=np.array(
                [
                    [of(np.concatenate([parts[i] for i in draw])) for draw in draws]
                    for parts in settings
                ]
            ),
        )

    def against_default(self, number: int) -> Ratio:
        low, high = np.percentile(self.by_resample[number] / self.by_resample[0], CERTAINTY)
        return Ratio(
            value=float(self.values[number] / self.values[0]),
            low=float(low),
            high=float(high),
            parts=tuple(map(float, self.by_part[number] / self.by_part[0])),
        )

    def may_equal(self, number: int, best: int) -> bool:
        """Whether the setting may be as good as the best, by chance or within ``WORTH``."""
        ratios = self.by_resample[number] / self.by_resample[best]
        return bool(np.percentile(ratios, CERTAINTY[0]) <= 1.0 + WORTH)


def what_jobs_could_tell(like: Cell) -> Mapping[str, Cell]:
    """Return variants of a setting with more information about jobs, each with a title."""
    return {
        "half of the jobs report": replace(like, reports=ReportModel(0.5)),
        "all jobs report": replace(like, reports=ReportModel(1.0)),
        "no history counts": replace(like, estimates=(REPORTS,)),
    }


def told_ratio(default: Result, told: Result, objective: str) -> float | None:
    """Return the objective of one setting as a multiple of the default's; None if either could not
    be simulated."""
    if isinstance(default, Failed) or isinstance(told, Failed):
        return None
    of = OBJECTIVES[objective]
    return of(np.array(told.jct_s)) / of(np.array(default.jct_s))


def _warnings(workload: Workload, waiting: float) -> list[str]:
    jobs = len(workload.jobs)
    needed = 2 * PARTS * FEWEST_JOBS_A_PART
    days = span_days(workload)
    found = []
    if jobs < needed:
        found.append(
            f"{jobs:,} jobs are too few to choose on one half and judge on the other: "
            f"{needed:,} are needed"
        )
    if days < FEWEST_DAYS:
        found.append(
            f"{days:.1f} days of history do not show how weeks differ: "
            f"{FEWEST_DAYS:.0f} days are needed"
        )
    if waiting < FEWEST_WAITING:
        found.append(
            f"queues hardly ever form: {waiting:.1%} of the jobs waited {NOTICED_WAIT_S:.0f} s or "
            f"more, and below {FEWEST_WAITING:.0%} no threshold matters"
        )
    return found


def span_days(workload: Workload) -> float:
    """Return the days from the first submission to the last."""
    return (workload.jobs[-1].submitted_s - workload.jobs[0].submitted_s) / 86400.0


def fragment(advice: Advice) -> str:
    """Return the lines of ``tiresias.toml`` with the recommended setting."""
    cuts = ", ".join(f"{cut:.12g}" for cut in advice.recommended.cell.thresholds_gpu_s)
    return f"[policy]\nthresholds_gpu_s = [{cuts}]\n"
