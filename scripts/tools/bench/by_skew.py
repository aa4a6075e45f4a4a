"""The benefit of placing models by their skew: Fig. 12 of the paper."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import click

from scripts.tools.bench.record import count_option, record
from scripts.tools.bench.runs import Run
from scripts.tools.document import markdown
from slurm_tiresias.simulator.engine import Outcome

CLUSTER = "15x4"
WAYS = ("skew", "random", "consolidate", "spread")
PROFILED = "skew"


@click.command("placement")
@count_option("seeds", 10, 1000)
def placement(seeds: int) -> None:
    """The benefit of placing models by their skew (the paper's Fig. 12)."""
    numbers = range(1, 1 + seeds)
    runs = {
        way: [Run(s, "tiresias-l", CLUSTER, way, "model").outcomes() for s in numbers]
        for way in WAYS
    }
    rows = [_row(way, runs[way], runs[PROFILED]) for way in WAYS]
    header = (
        "placement",
        "average JCT, s",
        "over skew",
        "average training time of wide jobs over skew",
        "largest",
        "wide jobs slower with skew",
        "preemptions",
    )
    text = (
        f"{markdown(header, rows)}\n\n"
        f"Tiresias-L on {CLUSTER}, the paper's 480 jobs, seeds 1 to {seeds}, with the overhead and "
        "the speeds of the models; means over all seeds. `random` is Tiresias without its "
        "profiler, as in the paper's Fig. 12 (page 495): there training takes up to 1.67 times as "
        "long without it, and fewer than 30 % of the distributed jobs are a little slower with it. "
        "Training time is running time; wide jobs are those of two GPUs and more."
    )
    record("Placement by skew", text)


def _row(
    way: str, runs: Sequence[Sequence[Outcome]], profiled: Sequence[Sequence[Outcome]]
) -> Sequence[str]:
    averages = [_average_s(outcomes) for outcomes in runs]
    over = [mine / _average_s(theirs) for mine, theirs in zip(averages, profiled, strict=True)]
    ratios = [
        _training_s(mine) / _training_s(theirs)
        for one, other in zip(runs, profiled, strict=True)
        for mine, theirs in zip(one, other, strict=True)
        if mine.job.gpus > 1
    ]
    slower_with_skew = sum(ratio < 1 for ratio in ratios) / len(ratios)
    return (
        way,
        f"{statistics.mean(averages):,.0f}",
        f"{statistics.mean(over):.3f} ({min(over):.3f} to {max(over):.3f})",
        f"{statistics.mean(ratios):.3f}",
        f"{max(ratios):.2f}",
        f"{slower_with_skew:.0%}",
        f"{statistics.mean(sum(o.preemptions for o in outcomes) for outcomes in runs):,.0f}",
    )


def _average_s(outcomes: Sequence[Outcome]) -> float:
    return statistics.mean(outcome.jct_s for outcome in outcomes)


def _training_s(outcome: Outcome) -> float:
    return sum(end_s - start_s for start_s, end_s in outcome.runs)
