"""Compare the real run with the simulated one, figure by figure, each with a tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from scripts.tools.fidelity.jobs import Ran
from slurm_tiresias.simulator.engine import Outcome
from slurm_tiresias.simulator.workload import LONG_S, SMALL_GPUS, TraceJob

BINS = {"SS": "short, small", "SL": "long, small", "LS": "short, wide", "LL": "long, wide"}
"""The paper's Table 3 (page 493): small is up to 4 GPUs, short is under 800 s."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A job in either run; times count from the first submission."""

    job: TraceJob
    jct_s: float
    end_s: float
    preemptions: int


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of both runs. ``band`` is the largest relative difference allowed; None: any."""

    name: str
    unit: str
    real: float
    simulations: tuple[float, ...]
    band: float | None = None

    @property
    def simulated(self) -> float:
        """The mean over the simulations."""
        return fmean(self.simulations)

    @property
    def off(self) -> float | None:
        """The simulation's error relative to the real figure."""
        return (self.simulated - self.real) / self.real if self.real else None

    @property
    def holds(self) -> bool:
        return self.band is None or (self.off is not None and abs(self.off) <= self.band)


Side = Sequence[Ended]
Measure = Callable[[Side], float]


def of_the_real(told: Sequence[Ran]) -> list[Ended]:
    first_s = min(ran.submitted_s for ran in told)
    return [Ended(ran.job, ran.jct_s, ran.end_s - first_s, ran.preemptions) for ran in told]


def of_the_simulated(outcomes: Sequence[Outcome]) -> list[Ended]:
    first_s = min(o.job.submitted_s for o in outcomes)
    return [Ended(o.job, o.jct_s, o.end_s - first_s, o.preemptions) for o in outcomes]


def figures(real: Side, simulations: Sequence[Side], factor: float) -> list[Figure]:
    """Return all figures; ``factor`` is the speedup of the workload over the paper's."""

    def figure(name: str, measure: Measure, band: float | None, unit: str = "s") -> Figure:
        return Figure(name, unit, measure(real), tuple(map(measure, simulations)), band)

    return [
        figure("average JCT", average_s, 0.05),
        *_by_bin(real, simulations, factor),
        figure("median JCT", median_s, 0.10),
        figure("95th percentile JCT", p95_s, 0.10),
        figure("makespan", makespan_s, 0.05),
        figure("preemptions", preemptions, None, unit=""),
    ]


def _by_bin(real: Side, simulations: Sequence[Side], factor: float) -> Iterator[Figure]:
    for name, words in BINS.items():
        ids = {one.job.job_id for one in real if bin_of(one.job, factor) == name}
        if ids:
            real_s, *simulated_s = (
                average_s([one for one in side if one.job.job_id in ids])
                for side in (real, *simulations)
            )
            title = f"average JCT, {words} ({len(ids)} jobs)"
            yield Figure(title, "s", real_s, tuple(simulated_s))


def bin_of(job: TraceJob, factor: float) -> str:
    """Return SS, SL, LS or LL by the job's length before it was divided by the factor."""
    size = "S" if job.gpus <= SMALL_GPUS else "L"
    return size + ("S" if job.duration_s * factor < LONG_S[0] else "L")


def average_s(side: Side) -> float:
    return fmean(one.jct_s for one in side)


def median_s(side: Side) -> float:
    return median(one.jct_s for one in side)


def p95_s(side: Side) -> float:
    return float(np.percentile([one.jct_s for one in side], 95))


def makespan_s(side: Side) -> float:
    return max(one.end_s for one in side)


def preemptions(side: Side) -> float:
    return float(sum(one.preemptions for one in side))


def average_distance(real: Side, simulations: Sequence[Side]) -> float:
    """Return the mean absolute difference of a job's two JCTs, relative to the mean real JCT."""
    real_s = {one.job.job_id: one.jct_s for one in real}
    distances_s = (
        abs(one.jct_s - real_s[one.job.job_id]) for simulated in simulations for one in simulated
    )
    return fmean(distances_s) / average_s(real)
