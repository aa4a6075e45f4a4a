"""Measure the timing of Slurm that the simulator needs, on jobs that are not compared.

It uses the same cluster and controller, but its own workload: a few jobs that arrive at an idle
cluster, then a cluster full of lower-tier jobs, from which single jobs take nodes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import click

from scripts.testbed.real_cluster import RealCluster
from scripts.tools.bench.replay import jobs
from scripts.tools.bench.replay.jobs import Ran
from slurm_tiresias.simulator.workload import TraceJob

SAMPLES = 8
SHORT_S = 0.5
"""Length of a job that only shows when it was started."""

GAP_S = (1.1, 2.1)
"""Range of the gap between two jobs on an idle cluster, drawn to hit the cycle at any phase."""

LONG_GAP_S = (5.0, 6.0)
"""Range of the gap between two preemptions, in which the victim restarts."""

FULL_S = 4.0
"""Time from the demotion of the jobs that fill the cluster to the first preemption."""

LATEST_S = 30.0
"""Jobs that start later than this were not waiting only for Slurm."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Mean durations in seconds, and the numbers of samples."""

    idle_start_s: float
    """From submission to the first journal line of a job on idle GPUs."""
    idle_starts: int
    preempting_start_s: float
    """The same for a job for which another was preempted."""
    vacating_s: float
    """From the victim's last line to the preemptor's first, while no job uses the GPUs."""
    restart_s: float
    """From the victim's last line to the first of its next run, if there is room for it."""
    preemptions: int


def workload(nodes: int, gpus: int, threshold_gpu_s: float, seed: int) -> list[TraceJob]:
    """Return the calibration's jobs in order of submission."""
    draw = random.Random(seed)
    idle = list(_spaced("idle", 0.0, GAP_S, gpus, draw))
    full_s = idle[-1].submitted_s + 2.0
    demoted_s = full_s + threshold_gpu_s / gpus + FULL_S
    preemptors = list(_spaced("preemptor", demoted_s, LONG_GAP_S, gpus, draw))
    # Each is preempted at most once, and restarted ones end soon after the others.
    lasts_s = preemptors[-1].submitted_s - full_s + FULL_S
    filling = [TraceJob(f"filling{n}", full_s, gpus, lasts_s) for n in range(nodes)]
    return [*idle, *filling, *preemptors]


def _spaced(
    name: str, from_s: float, gap_s: tuple[float, float], gpus: int, draw: random.Random
) -> Iterator[TraceJob]:
    at_s = from_s
    for number in range(SAMPLES):
        yield TraceJob(f"{name}{number}", at_s, gpus, SHORT_S)
        at_s += draw.uniform(*gap_s)


def calibrated(
    cluster: RealCluster,
    jobs_of_it: Sequence[TraceJob],
    patience_s: float,
    show: Callable[[int, int], None],
) -> Calibration:
    """Run the calibration; raise ``ClickException`` if it yields too few samples."""
    submitted = jobs.run(cluster, jobs_of_it, 0.0, patience_s, show)
    return measured([jobs.ran(one) for one in submitted])


def measured(told: Sequence[Ran]) -> Calibration:
    """Return the means over the runs of the jobs of ``workload``."""
    idle_s = [_waited_s(ran) for ran in told if ran.job.job_id.startswith("idle")]
    preemptors = [ran for ran in told if ran.job.job_id.startswith("preemptor")]
    absences = [
        (before[1], after[0])
        for ran in told
        if ran.job.job_id.startswith("filling")
        for before, after in zip(ran.runs, ran.runs[1:], strict=False)
    ]
    pairs = [
        (preemptor, left_s, back_s)
        for preemptor in preemptors
        for left_s, back_s in absences
        if preemptor.submitted_s < left_s <= preemptor.runs[0][0] and back_s - left_s < LATEST_S
    ]
    if len(pairs) < SAMPLES // 2:
        raise click.ClickException(
            f"the calibration saw {len(pairs)} preemptions: too few to measure"
        )
    return Calibration(
        idle_start_s=fmean(idle_s),
        idle_starts=len(idle_s),
        preempting_start_s=fmean(_waited_s(preemptor) for preemptor, _, _ in pairs),
        vacating_s=fmean(preemptor.runs[0][0] - left_s for preemptor, left_s, _ in pairs),
        restart_s=fmean(back_s - left_s for _, left_s, back_s in pairs),
        preemptions=len(pairs),
    )


def _waited_s(ran: Ran) -> float:
    return ran.runs[0][0] - ran.submitted_s
