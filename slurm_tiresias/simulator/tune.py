"""Which thresholds would have served a history best, and whether that is more than chance.

Every candidate is simulated on the whole history. The jobs are then cut by submission into two
halves, and each half into parts of equally many jobs. The first half says which settings are as
good as the best; of these the simplest is taken that the second half confirms to be better than
the default, and if the default is among them, it is. The default is what the site has now.

Chance is judged by drawing the parts of a half anew, with replacement, the same draws for every
setting: parts, not jobs, because jobs that queue together are no independent witnesses (block
bootstrap; Efron and Tibshirani 1993, chapter 8).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slurm_tiresias.config import PolicyConfig
from slurm_tiresias.errors import TiresiasError, UsageError
from slurm_tiresias.simulator import sensitivity
from slurm_tiresias.simulator.report import mean, median, percentile
from slurm_tiresias.simulator.sweep import NOTICED_WAIT_S, Cell, Failed, Measured, Result
from slurm_tiresias.simulator.workload import Workload

Seconds = NDArray[np.float64]

OBJECTIVES: Mapping[str, Callable[[Seconds], float]] = {
    "average": mean,
    "median": median,
    "p95": lambda jct_s: percentile(jct_s, 95),
}
"""What is to be small."""

DEFAULT_GPU_S = PolicyConfig().thresholds_gpu_s

PARTS = 10
"""Of each half."""
FEWEST_JOBS_A_PART = 30
FEWEST_DAYS = 21.0
FEWEST_WAITING = 0.05
"""Below these a history says too little: it is told so, and the default stays."""

RESAMPLES = 400
CERTAINTY = (2.5, 97.5)
"""The percentiles between which a ratio lies with 95 % certainty."""
WORTH = 0.01
"""A setting within one percent of the best is as good as the best: simplicity is worth that."""

QUANTILES = (0.5, 0.65, 0.8, 0.9, 0.95)
LADDER_QUEUES = (3, 4, 5)
LADDER_STEPS = (2, 8)
"""Several thresholds each the same multiple of the one before: 2 is the paper's (Fig. 15)."""
ALIKE = 1.15
LOWEST_GPU_S, HIGHEST_GPU_S = 60.0, 1e9


def candidates(
    workload: Workload, present: tuple[float, ...] = DEFAULT_GPU_S
) -> tuple[tuple[float, ...], ...]:
    """The thresholds to try, ascending lists of GPU-seconds, those there are now first.

    The paper's (Figs. 14 and 15), quantiles of the history's GPU-seconds a job, and ladders from
    one hour and from the median job. ``UsageError`` for less than two jobs: they have no halves.
    """
    if len(workload.jobs) < 2:
        raise UsageError("One job is no history", "Name more jobs, or an earlier --since")
    service_gpu_s = [job.gpus * job.duration_s for job in workload.jobs]
    # Two digits are enough: few want to read a threshold of 3,847 GPU-seconds.
    quantiles = [
        float(f"{max(float(cut), LOWEST_GPU_S):.2g}")
        for cut in np.quantile(service_gpu_s, QUANTILES)
    ]
    ladders = (
        tuple(start * step**rung for rung in range(queues - 1))
        for queues in LADDER_QUEUES
        for start in (DEFAULT_GPU_S[0], quantiles[0])
        for step in LADDER_STEPS
    )
    cuts = ((cut,) for cut in quantiles)
    kept: list[tuple[float, ...]] = [present]
    for each in (DEFAULT_GPU_S, *sensitivity.THRESHOLDS, *sensitivity.QUEUES, *cuts, *ladders):
        if each[-1] <= HIGHEST_GPU_S and not any(_alike(each, other) for other in kept):
            kept.append(each)
    return tuple(kept)


def _alike(these: Sequence[float], those: Sequence[float]) -> bool:
    return len(these) == len(those) and all(
        max(a, b) < ALIKE * min(a, b) for a, b in zip(these, those, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Ratio:
    """A setting's objective as a multiple of the default's: below 1 is better.

    ``low`` and ``high`` bound it with 95 % certainty; ``parts`` has each part's own ratio.
    """

    value: float
    low: float
    high: float
    parts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One candidate: what it would have brought."""

    cell: Cell
    objective_s: float
    """Over the whole history."""
    first: Ratio
    second: Ratio
    as_good_as_best: bool
    """In the first half, as far as can be told."""
    preemptions: int
    lost_gpu_s: float


@dataclass(frozen=True, slots=True)
class Advice:
    """What to set, and why. With ``warnings`` the history says too little and the default stays."""

    objective: str
    evidence: tuple[Evidence, ...]
    failed: tuple[Failed, ...]
    chosen: Evidence
    """The simplest of those as good as the best in the first half that the second confirms."""
    best: Evidence
    """The best in the first half."""
    recommended: Evidence
    default: Evidence
    waiting: float
    """The share of the jobs that waited a minute or more under the default."""
    warnings: tuple[str, ...]


def advise(workload: Workload, results: Sequence[Result], objective: str) -> Advice:
    """Weigh the results of the candidates, the default's first.

    Raises ``TiresiasError`` if the default could not be simulated.
    """
    default = results[0]
    if isinstance(default, Failed):
        raise TiresiasError(
            f"The default setting could not be simulated: {default.why}",
            "Mend that first: without it there is nothing to compare with",
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
    """The simplest that the second half confirms; the simplest of all if it confirms none.

    The default needs no proof.
    """
    if default in as_good:
        return default
    # The fewest queues, then what was best in the first half.
    by_simplicity = sorted(as_good, key=lambda each: (each.cell.queues, each.first.value))
    proven = (each for each in by_simplicity if each.second.high < 1.0)
    return next(proven, by_simplicity[0])


def _weighed(measured: Sequence[Measured], of: Callable[[Seconds], float]) -> list[Evidence]:
    jct_s = [np.array(each.jct_s) for each in measured]
    # Both halves in parts of equally many jobs, by submission; fewer where jobs are few.
    parts = [np.array_split(each, 2 * min(PARTS, len(each) // 2)) for each in jct_s]
    first, second = _halves(parts, of)
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
    """The objective of every setting in one half: as it was, by part, and by resample."""

    values: Seconds
    by_part: NDArray[np.float64]
    by_resample: NDArray[np.float64]

    def against_default(self, number: int) -> Ratio:
        low, high = np.percentile(self.by_resample[number] / self.by_resample[0], CERTAINTY)
        return Ratio(
            value=float(self.values[number] / self.values[0]),
            low=float(low),
            high=float(high),
            parts=tuple(map(float, self.by_part[number] / self.by_part[0])),
        )

    def may_equal(self, number: int, best: int) -> bool:
        """Whether chance, or one percent, is all that sets it apart from the best."""
        ratios = self.by_resample[number] / self.by_resample[best]
        return bool(np.percentile(ratios, CERTAINTY[0]) <= 1.0 + WORTH)


def _halves(
    settings: Sequence[Sequence[Seconds]], of: Callable[[Seconds], float]
) -> tuple[_Half, _Half]:
    count = len(settings[0]) // 2
    # The same on every machine, as the workloads are.
    draw = random.Random("tune").random
    draws = [[int(draw() * count) for _ in range(count)] for _ in range(RESAMPLES)]
    return (
        _half([parts[:count] for parts in settings], of, draws),
        _half([parts[count:] for parts in settings], of, draws),
    )


def _half(
    settings: Sequence[Sequence[Seconds]],
    of: Callable[[Seconds], float],
    draws: Sequence[Sequence[int]],
) -> _Half:
    return _Half(
        values=np.array([of(np.concatenate(parts)) for parts in settings]),
        by_part=np.array([[of(part) for part in parts] for parts in settings]),
        by_resample=np.array(
            [[of(np.concatenate([parts[i] for i in draw])) for draw in draws] for parts in settings]
        ),
    )


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
    """From the first submission to the last."""
    return (workload.jobs[-1].submitted_s - workload.jobs[0].submitted_s) / 86400.0


def fragment(advice: Advice) -> str:
    """The lines of ``tiresias.toml`` that set what is recommended."""
    cuts = ", ".join(f"{cut:.12g}" for cut in advice.recommended.cell.thresholds_gpu_s)
    return f"[policy]\nthresholds_gpu_s = [{cuts}]\n"
