"""The paper's testbed workload, seed by seed, under every policy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import click

from scripts.tools.bench.record import count_option, record
from scripts.tools.bench.runs import Run
from scripts.tools.bench.studies import in_processes
from scripts.tools.document import markdown
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
        _against_the_best(numbers),
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


RATIOS: Sequence[Callable[[Figures], float]] = (
    lambda one: one.average_jct_s,
    lambda one: one.median_jct_s,
    lambda one: one.p95_jct_s,
)


def _against_the_best(seeds: Sequence[int]) -> str:
    """Return the ratios of the best baseline's completion times to those of Tiresias-L, by seed."""
    # All jobs have limits, so that slurm-users equals slurm.
    baselines = [name for name in SITES_RUN if name != "slurm-users"]
    trials = [_Trial(seed, name) for seed in seeds for name in baselines]
    trials += [_Trial(seed, REFERENCE, share) for seed in seeds for share in SHARES]
    found = in_processes(_Trial.figures, trials, None)
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
            mine = [of(theirs) / of(ours) for of in RATIOS]
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
            of_all = (of(ratios[share, number]) for number in range(len(RATIOS)))
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


def _of(seed: int, policy: str, placement: str, overhead: str) -> Run:
    return Run(seed, policy, CLUSTER, placement, overhead)


def _bound_s(seed: int, overhead: str) -> float:
    jobs = paper480(seed).jobs
    return (
        lower_bound_jct_s(jobs, GPUS)
        if overhead == "none"
        else lower_bound_jct_s(jobs, GPUS, best_speed)
    )
