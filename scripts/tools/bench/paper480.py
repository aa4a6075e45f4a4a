"""The paper's testbed workload, seed by seed, under every policy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import click

from scripts.tools.bench.record import count_option, in_processes, record
from scripts.tools.document import markdown
from slurm_tiresias.config import parse
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.baselines import SITES_RUN
from slurm_tiresias.simulator.bound import best_speed, lower_bound_jct_s
from slurm_tiresias.simulator.engine import Timing
from slurm_tiresias.simulator.limits import LIMIT_MODELS, USERS, with_limits
from slurm_tiresias.simulator.report import BINS, SHORT_S, SMALL_GPUS, Figures, figures
from slurm_tiresias.simulator.reports import ReportModel
from slurm_tiresias.simulator.saves import PESSIMISTIC
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.workload import PUBLISHED_SEED, paper480

THRESHOLD_GPU_S = 3200
"""The threshold on the paper's testbed (page 493), for two queues."""

CLUSTER, GPUS = "15x4", 60
REFERENCE = "tiresias-l"
PAPER = {
    "yarn-cs": "5.5 / 5.11",
    "srtf": "0.78 / 0.74",
    "tiresias-g": "1.06 / 1.01",
    "tiresias-l": "1 / 1",
}
"""Average JCT relative to Tiresias-L in the paper's testbed and simulation (pages 493-495)."""

TIMES: Sequence[Callable[[Figures], float]] = (
    lambda one: one.average_jct_s,
    lambda one: one.median_jct_s,
    lambda one: one.p95_jct_s,
)


@dataclass(frozen=True)
class Run:
    """One simulation without lost work; ``priced``: with the overhead and the models' speeds."""

    seed: int
    policy: str
    priced: bool

    def figures(self) -> Figures:
        site = parse_cluster(CLUSTER, "skew" if self.priced else "pooled")
        policy = {"thresholds_gpu_s": [THRESHOLD_GPU_S]}
        config = parse({"policy": policy, "preemption": {"min_run_s": 0, "budget_share": 0}})
        costs = Costs(site, speeds=self.priced, flat_s=None if self.priced else 0.0)
        setup = run.Setup(site, config, costs, Timing())
        return figures(run.simulate(paper480(self.seed), self.policy, setup), GPUS)


@click.command("paper480")
@count_option("seeds", 10, 1000)
def testbed_workload(seeds: int) -> None:
    """The paper's testbed workload under every policy."""
    numbers = range(PUBLISHED_SEED, PUBLISHED_SEED + seeds)
    parts = [
        _part("With the overhead and the speeds of the models", True, numbers),
        _part("Pooled and without overhead, as the paper's simulation", False, numbers),
        _against_the_best(numbers),
    ]
    record("The paper's 480 jobs", *parts)


def _part(title: str, priced: bool, seeds: Sequence[int]) -> str:
    found = in_processes(
        Run.figures, [Run(seed, policy, priced) for seed in seeds for policy in run.POLICIES]
    )
    speed = [best_speed] if priced else []
    bounds = {seed: lower_bound_jct_s(paper480(seed).jobs, GPUS, *speed) for seed in seeds}
    rows = []
    for policy in run.POLICIES:
        of = {seed: found[Run(seed, policy, priced)] for seed in seeds}
        average, median, p95 = (
            [time(of[seed]) / time(found[Run(seed, REFERENCE, priced)]) for seed in seeds]
            for time in TIMES
        )
        above = [of[seed].average_jct_s / bounds[seed] for seed in seeds]
        rows.append(
            (
                *(policy, f"{of[seeds[0]].average_jct_s:,.0f}", _first_and_span(average)),
                *(PAPER.get(policy, ""), *map(_first_and_span, (median, p95, above))),
                f"{of[seeds[0]].preemptions:,}",
            )
        )
        print(title, " | ".join(rows[-1]), flush=True)
    header = (
        *("policy", "average JCT, s", "average / T-L", "paper", "median / T-L", "95th / T-L"),
        *("average / bound", "preemptions"),
    )
    return (
        f"### {title}\n\n{markdown(header, rows)}\n\n"
        f"{CLUSTER}, seeds {seeds[0]} to {seeds[-1]}; the first figure is seed {seeds[0]}, behind "
        "it the smallest, the median and the largest of all seeds. `paper`: its testbed / its "
        "simulation. The lower bound is proved in "
        "[simulator.md](../../docs/explanation/simulator.md)."
    )


SHARES = (0.0, 0.5, 1.0)
"""Shares of the jobs that report their progress."""


@dataclass(frozen=True)
class _Trial:
    """One simulation with the default configuration, lost work, and limits as users give them."""

    seed: int
    policy: str
    reporting: float = 0.0

    def figures(self) -> Figures:
        site, config = parse_cluster(CLUSTER, "skew"), Config()
        setup = run.Setup(
            site,
            config,
            Costs(site, True, None, replace(PESSIMISTIC, seed=self.seed)),
            Timing(config.controller.interval_s),
            reports=ReportModel(self.reporting),
        )
        workload = with_limits(paper480(self.seed), USERS)
        return figures(run.simulate(workload, self.policy, setup), GPUS)


def _against_the_best(seeds: Sequence[int]) -> str:
    """Return the ratios of the best baseline's completion times to those of Tiresias-L, by seed."""
    # All jobs have limits, so that slurm-users equals slurm.
    baselines = [name for name in SITES_RUN if name != "slurm-users"]
    trials = [_Trial(seed, name) for seed in seeds for name in baselines]
    trials += [_Trial(seed, REFERENCE, share) for seed in seeds for share in SHARES]
    found = in_processes(_Trial.figures, trials)
    rows: list[tuple[str, ...]] = []
    ratios: dict[tuple[float, int], list[float]] = {}
    again: dict[float, list[float]] = {}
    kinds: dict[tuple[float, str], list[float]] = {}
    for seed in seeds:
        best = min(baselines, key=lambda name: found[_Trial(seed, name)].average_jct_s)
        theirs = found[_Trial(seed, best)]
        row = [str(seed), best, f"{theirs.average_jct_s:,.0f}"]
        for share in SHARES:
            ours = found[_Trial(seed, REFERENCE, share)]
            mine = [of(theirs) / of(ours) for of in TIMES]
            for number, value in enumerate(mine):
                ratios.setdefault((share, number), []).append(value)
            again.setdefault(share, []).append(ours.again_share)
            for one, other in zip(theirs.bins, ours.bins, strict=True):
                if one.average_jct_s is not None and other.average_jct_s is not None:
                    ratio = one.average_jct_s / other.average_jct_s
                    kinds.setdefault((share, one.name), []).append(ratio)
            row += [" / ".join(f"{value:.2f}" for value in mine), f"{ours.again_share:.1%}"]
        rows.append(tuple(row))
    for title, of in (("median", statistics.median), ("smallest", min), ("largest", max)):
        row = [title, "", ""]
        for share in SHARES:
            of_all = (of(ratios[share, number]) for number in range(len(TIMES)))
            row += [" / ".join(f"{value:.2f}" for value in of_all), f"{of(again[share]):.1%}"]
        rows.append(tuple(row))
    shares = [f"{share:.0%} report" for share in SHARES]
    columns = (column for share in shares for column in (share, "work done again"))
    by_kind = [
        (title, *(_span(kinds[share, name]) for share in SHARES)) for name, title in BINS.items()
    ]
    return (
        "### The best baseline over Tiresias-L, with lost work and limits of users\n\n"
        f"{markdown(('seed', 'best baseline', 'its average JCT, s', *columns), rows)}\n\n"
        f"The best of {', '.join(baselines)} by the average JCT, over the default configuration "
        "while so many of the jobs report their progress: average / median / 95th percentile; "
        "above 1, Tiresias-L is faster. Work done again: its share of Tiresias-L's GPU time. Both "
        f"lose work: {PESSIMISTIC}. All see the same limits ({LIMIT_MODELS[USERS][1]}). "
        f"{CLUSTER}, speeds and restart costs by model, decisions every "
        f"{Config().controller.interval_s:g} s.\n\n"
        f"{markdown(('kind of job', *shares), by_kind)}\n\n"
        "The same ratio of the average JCT by kind of job, small being up to "
        f"{SMALL_GPUS} GPUs and short under {SHORT_S:g} s: the smallest, the median and the "
        "largest of all seeds."
    )


def _first_and_span(values: Sequence[float]) -> str:
    return f"{values[0]:.2f} ({_span(values)})"


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2f}, {statistics.median(values):.2f}, {max(values):.2f}"
