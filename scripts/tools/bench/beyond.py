"""How close policies that know no durations come to a clairvoyant one, with all costs counted."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from scripts.tools.bench.record import TRACE, record
from scripts.tools.bench.studies import (
    CLAIRVOYANT,
    INTERVAL_S,
    REQUEUE_DELAY_S,
    STRETCH_JOBS,
    Sample,
    drawn,
    in_processes,
    kinds_of,
    mean_and_interval,
)
from scripts.tools.document import markdown
from slurm_tiresias.settings.policy import PolicyConfig
from slurm_tiresias.simulator.report import Figures, figures

TITLE = "Beyond the paper"
LADDER_5 = [3600 * 5**rung for rung in range(4)]
DEFAULT_GPU_S = PolicyConfig().thresholds_gpu_s
LADDER_8 = [900 * 4**rung for rung in range(7)]


@dataclass(frozen=True)
class Candidate:
    """A policy of the simulator, and its ``[policy]`` table."""

    title: str
    policy: str
    thresholds_gpu_s: tuple[float, ...]
    order: str = "first-start"

    def table(self) -> dict[str, Any]:
        return {
            "thresholds_gpu_s": list(self.thresholds_gpu_s),
            "order": self.order,
        }


CANDIDATES = (
    Candidate("2 tiers (the paper)", "tiresias-l", (3600,)),
    Candidate("3 tiers, 3250 and 7200 (the authors' simulator)", "tiresias-l", (3250, 7200)),
    Candidate("5 tiers from 3600, each 5 times the last", "tiresias-l", tuple(LADDER_5)),
    Candidate(
        "6 tiers from 10800, each 4 times the last (the default)", "tiresias-l", DEFAULT_GPU_S
    ),
    Candidate("5 tiers, newest first", "tiresias-l", tuple(LADDER_5), "newest"),
    Candidate("8 tiers from 900, each 4 times the last", "tiresias-l", tuple(LADDER_8)),
    Candidate("5 tiers, Gittins knowing the distribution", "tiresias-g", tuple(LADDER_5)),
)


@dataclass(frozen=True)
class Trial:
    """One simulation. ``candidate`` None: the clairvoyant policy."""

    sample: Sample
    candidate: Candidate | None

    def figures(self) -> Figures:
        policy = self.candidate.policy if self.candidate else CLAIRVOYANT
        settings = {"policy": self.candidate.table() if self.candidate else {}}
        return figures(self.sample.outcomes(policy, settings), self.sample.site.gpus)


@click.command("beyond")
@click.option(
    "--fresh", is_flag=True, help="Use other seeds and sections, as a check of the default."
)
@click.option("--philly", type=TRACE, help="The Philly trace, as a file.")
@click.option("--itp", type=TRACE, help="The ITP trace, as a file.")
@click.option(
    "--workers", type=click.IntRange(1), help="Number of processes. Default: one per core."
)
def beyond(philly: Path | None, itp: Path | None, fresh: bool, workers: int | None) -> None:
    """How close a policy that knows no durations comes to a clairvoyant one."""
    samples = drawn(fresh, philly, itp)
    trials = [Trial(sample, each) for sample in samples for each in (None, *CANDIDATES)]
    found = in_processes(Trial.figures, trials, workers)
    kinds = kinds_of(samples)
    paper = CANDIDATES[0]
    # The averages suffice as a check.
    parts = [] if fresh else [_part_of(kind, some, found) for kind, some in kinds.items()]
    record(
        f"{TITLE}, on other work" if fresh else TITLE,
        _what_is_shown(fresh),
        _against(None, kinds, found),
        f"The same over that of {paper.title} on the same sample:",
        _against(paper, kinds, found),
        *parts,
    )


def _what_is_shown(fresh: bool) -> str:
    other = "Seeds and stretches that no setting was chosen on. " if fresh else ""
    return other + (
        f"Average JCT over that of clairvoyant SRSF with the same restart costs, decisions every "
        f"{INTERVAL_S:.0f} s and a requeue delay of {REQUEUE_DELAY_S:.0f} s; the candidates, not "
        "SRSF, also heed the default guards. Means over seeds, or over stretches of "
        f"{STRETCH_JOBS:,} jobs of a trace on as many 8-GPU nodes as make the load, and how far "
        "chance may move each mean (95 %, Student's t)."
    )


Found = Mapping[Trial, Figures]


def _against(other: Candidate | None, kinds: Mapping[str, Sequence[Sample]], found: Found) -> str:
    """Return a table of each candidate's average JCT as a multiple of the other's, per sample."""
    shown = [each for each in CANDIDATES if each != other]
    rows = []
    for kind, some in kinds.items():
        ratios = (_ratios(each, some, found, _average, other) for each in shown)
        rows.append((kind, *map(mean_and_interval, ratios)))
    return markdown(("workload", *(each.title for each in shown)), rows)


def _part_of(kind: str, samples: Sequence[Sample], found: Found) -> str:
    rows = [
        (
            candidate.title,
            mean_and_interval(_ratios(candidate, samples, found, _average)),
            _mean(_ratios(candidate, samples, found, lambda one: one.median_jct_s)),
            _mean(_ratios(candidate, samples, found, lambda one: one.p99_jct_s)),
            f"{statistics.mean(found[Trial(s, candidate)].preemptions for s in samples):,.0f}",
        )
        for candidate in CANDIDATES
    ]
    clairvoyant = [found[Trial(sample, None)] for sample in samples]
    seconds = statistics.mean(map(_average, clairvoyant))
    preemptions = statistics.mean(one.preemptions for one in clairvoyant)
    table = markdown(("policy", "average", "median", "99th", "preemptions"), rows)
    clusters = ", ".join(dict.fromkeys(sample.cluster for sample in samples))
    return (
        f"### {kind}\n\n{table}\n\n{len(samples)} samples on {clusters}; SRSF: average JCT "
        f"{seconds:,.0f} s, {preemptions:,.0f} preemptions."
    )


def _average(one: Figures) -> float:
    return one.average_jct_s


def _ratios(
    candidate: Candidate,
    samples: Sequence[Sample],
    found: Found,
    of: Callable[[Figures], float],
    other: Candidate | None = None,
) -> list[float]:
    """Return the ratio for each sample; ``other`` None: relative to the clairvoyant policy."""
    return [of(found[Trial(s, candidate)]) / of(found[Trial(s, other)]) for s in samples]


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.2f}"
