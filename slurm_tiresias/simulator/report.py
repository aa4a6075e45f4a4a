"""From outcomes to the figures that people compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slurm_tiresias.simulator.engine import Outcome

SMALL_GPUS = 4
SHORT_S = 800.0
"""The bins of the paper's Table 3 (page 493): small is up to 4 GPUs, short is under 800 s."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Job completion times and what they cost.

    Percentiles are values that occur, the lower of two neighbours.
    """

    jobs: int
    average_jct_s: float
    median_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    makespan_s: float
    average_wait_s: float
    preemptions: int
    lost_gpu_s: float
    gpu_use: float
    """GPU-seconds held over GPU-seconds there were until the last job ended."""


def figures(outcomes: Sequence[Outcome], gpus: int) -> Figures:
    """The figures of one run on a cluster of so many GPUs; all zero without jobs."""
    if not outcomes:
        return Figures(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, 0.0)
    jct_s = np.array([outcome.jct_s for outcome in outcomes])
    makespan_s = max(outcome.end_s for outcome in outcomes)
    held_gpu_s = sum(_held_gpu_s(outcome) for outcome in outcomes)
    return Figures(
        jobs=len(outcomes),
        average_jct_s=float(jct_s.mean()),
        median_jct_s=float(np.median(jct_s)),
        p95_jct_s=_percentile(jct_s, 95),
        p99_jct_s=_percentile(jct_s, 99),
        makespan_s=makespan_s,
        average_wait_s=float(np.mean([outcome.waited_s for outcome in outcomes])),
        preemptions=sum(outcome.preemptions for outcome in outcomes),
        lost_gpu_s=sum(outcome.lost_s * outcome.job.gpus for outcome in outcomes),
        gpu_use=held_gpu_s / (gpus * makespan_s) if makespan_s else 0.0,
    )


def _percentile(values: np.typing.NDArray[np.float64], percent: float) -> float:
    return float(np.percentile(values, percent, method="lower"))


def _held_gpu_s(outcome: Outcome) -> float:
    return (outcome.jct_s - outcome.waited_s) * outcome.job.gpus


def bin_of(outcome: Outcome) -> str:
    """SS, SL, LS or LL: small or large, short or long (paper Table 3, page 493)."""
    size = "S" if outcome.job.gpus <= SMALL_GPUS else "L"
    return size + ("S" if outcome.job.duration_s < SHORT_S else "L")
