"""The paper's testbed workload, seed by seed, under every policy."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import click

from scripts.tools.bench.record import count_option, record
from scripts.tools.bench.runs import Run
from scripts.tools.bench.studies import in_processes
from scripts.tools.document import markdown
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.bound import best_speed, lower_bound_jct_s
from slurm_tiresias.simulator.workload import PUBLISHED_SEED, paper480

CLUSTER, GPUS = "15x4", 60
REFERENCE = "tiresias-l"
PAPER = {
    "yarn-cs": "5.5 / 5.11",
    "srtf": "0.78 / 0.74",
    "tiresias-g": "1.06 / 1.01",
    "tiresias-l": "1 / 1",
}
"""Average JCT relative to Tiresias-L in the paper's testbed and simulation (pages 493-495)."""


@click.command("paper480")
@count_option("seeds", 10, 1000)
def testbed_workload(seeds: int) -> None:
    """The paper's testbed workload under every policy."""
    numbers = range(PUBLISHED_SEED, PUBLISHED_SEED + seeds)
    parts = [
        _part("with the overhead and the speeds of the models", "skew", "model", numbers),
        _part("pooled and without overhead, as the paper's simulation", "pooled", "none", numbers),
    ]
    record("The paper's 480 jobs", "\n\n".join(parts))


def _part(title: str, placement: str, overhead: str, seeds: Sequence[int]) -> str:
    runs = [
        Run(seed, policy, CLUSTER, placement, overhead) for seed in seeds for policy in run.POLICIES
    ]
    found = in_processes(Run.figures, runs, None)
    reference = {seed: found[_of(seed, REFERENCE, placement, overhead)] for seed in seeds}
    bounds = {seed: _bound_s(seed, overhead) for seed in seeds}
    rows = []
    for policy in run.POLICIES:
        of = [found[_of(seed, policy, placement, overhead)] for seed in seeds]
        average = [
            one.average_jct_s / reference[s].average_jct_s for s, one in zip(seeds, of, strict=True)
        ]
        median = [
            one.median_jct_s / reference[s].median_jct_s for s, one in zip(seeds, of, strict=True)
        ]
        p95 = [one.p95_jct_s / reference[s].p95_jct_s for s, one in zip(seeds, of, strict=True)]
        above = [one.average_jct_s / bounds[s] for s, one in zip(seeds, of, strict=True)]
        rows.append(
            (
                policy,
                f"{of[0].average_jct_s:,.0f}",
                _first_and_span(average),
                PAPER.get(policy, ""),
                _first_and_span(median),
                _first_and_span(p95),
                _first_and_span(above),
                f"{of[0].preemptions:,}",
            )
        )
        print(title, " | ".join(rows[-1]), flush=True)
    header = (
        "policy",
        "average JCT, s",
        "average / T-L",
        "paper",
        "median / T-L",
        "95th / T-L",
        "average / bound",
        "preemptions",
    )
    return (
        f"### {title[0].upper()}{title[1:]}\n\n{markdown(header, rows)}\n\n"
        f"{CLUSTER}, seeds {seeds[0]} to {seeds[-1]}; the first figure is seed {seeds[0]}, behind "
        "it the smallest, the median and the largest of all seeds. `paper`: its testbed / its "
        "simulation. The lower bound is proved in "
        "[simulator.md](../../docs/explanation/simulator.md)."
    )


def _first_and_span(values: Sequence[float]) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{values[0]:.2f} ({low:.2f}, {middle:.2f}, {high:.2f})"


def _of(seed: int, policy: str, placement: str, overhead: str) -> Run:
    return Run(seed, policy, CLUSTER, placement, overhead)


def _bound_s(seed: int, overhead: str) -> float:
    jobs = paper480(seed).jobs
    return (
        lower_bound_jct_s(jobs, GPUS)
        if overhead == "none"
        else lower_bound_jct_s(jobs, GPUS, best_speed)
    )
