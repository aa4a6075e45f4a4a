"""What a bound on the slowdown against a fair share costs, and for how many jobs it is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from scripts.tools.bench.record import on_traces, record
from scripts.tools.bench.studies import (
    INTERVAL_S,
    Sample,
    drawn,
    in_processes,
    kinds_of,
    mean_and_interval,
)
from scripts.tools.document import markdown
from slurm_tiresias.simulator.engine import Outcome
from slurm_tiresias.simulator.report import fair_jct_s
from slurm_tiresias.simulator.reports import ReportModel
from slurm_tiresias.simulator.sim_cluster import Costs

TITLE = "A bound on the slowdown"
LOAD = "load 2"
BOUNDS = (2.0, 3.0)
SHARES = (1.0, 0.5, 0.0)


@dataclass(frozen=True)
class Found:
    """The outcome of one simulation, against the fair share and each bound."""

    average_s: float
    median_s: float
    preemptions: int
    most: float
    late: Mapping[float, float]
    """For each bound, the share of jobs that exceed it by more than an interval and a restart."""


@dataclass(frozen=True)
class Trial:
    sample: Sample
    share: float
    bound: float

    def run(self) -> Found:
        site = self.sample.site
        costs = Costs(site, speeds=True, flat_s=None)
        settings = {
            "policy": {"max_slowdown": self.bound},
            "controller": {"interval_s": INTERVAL_S},
        }
        reports = ReportModel(self.share) if self.share else None
        outcomes = self.sample.outcomes("tiresias-l", settings, reports=reports)
        fair_s = fair_jct_s(self.sample.make().jobs, site.gpus)

        def is_late(one: Outcome, times: float) -> bool:
            spare_s = INTERVAL_S + costs.restart_s(one.job)
            return one.jct_s > times * fair_s[one.job.job_id] + spare_s

        jct_s = np.array([one.jct_s for one in outcomes])
        return Found(
            average_s=float(jct_s.mean()),
            median_s=float(np.median(jct_s)),
            preemptions=sum(one.preemptions for one in outcomes),
            most=max(one.jct_s / fair_s[one.job.job_id] for one in outcomes),
            late={
                times: sum(is_late(one, times) for one in outcomes) / len(outcomes)
                for times in BOUNDS
            },
        )


@click.command("slowdown")
@on_traces
def slowdown(philly: Path | None, itp: Path | None, workers: int | None) -> None:
    """The cost of a bound on the slowdown, and how many jobs stay within it."""
    # Seeds and stretches that nothing was chosen on.
    samples = [each for each in drawn(True, philly, itp) if each.kind.endswith(("paper480", LOAD))]
    trials = [
        Trial(sample, share, bound)
        for sample in samples
        for share in SHARES
        for bound in (0.0, *BOUNDS)
    ]
    found = in_processes(Trial.run, trials, workers)
    record(TITLE, _what_is_shown(), _table(samples, found))


def _what_is_shown() -> str:
    return (
        "How many jobs take longer than a bound on their slowdown against a fair share allows "
        "(`policy.max_slowdown`), by more than an interval and a restart, without the bound and "
        "with it; the most that any job takes; and what the bound costs. By how many of the jobs "
        "report: the length of the others is a guess. On seeds and stretches that nothing was "
        f"chosen on; restart costs by model, decisions every {INTERVAL_S:.0f} s, default guards. "
        "Means, and how far chance may move each (95 %, Student's t)."
    )


def _table(samples: Sequence[Sample], found: Mapping[Trial, Found]) -> str:
    rows = []
    for kind, some in kinds_of(samples).items():
        for bound in BOUNDS:
            for share in SHARES:
                before = [found[Trial(sample, share, 0.0)] for sample in some]
                after = [found[Trial(sample, share, bound)] for sample in some]
                pairs = list(zip(after, before, strict=True))
                rows.append(
                    (
                        kind,
                        f"{bound:g}",
                        f"{share:.0%}",
                        f"{np.mean([one.late[bound] for one in before]):.2%}",
                        f"{np.mean([one.late[bound] for one in after]):.2%}",
                        f"{np.mean([one.most for one in before]):.1f}",
                        f"{np.mean([one.most for one in after]):.1f}",
                        mean_and_interval([one.average_s / was.average_s for one, was in pairs]),
                        mean_and_interval([one.median_s / was.median_s for one, was in pairs]),
                        mean_and_interval(
                            [one.preemptions / max(1, was.preemptions) for one, was in pairs]
                        ),
                    )
                )
    header = (
        "workload",
        "bound",
        "report",
        "above, without",
        "above, with",
        "most, without",
        "most, with",
        "average JCT",
        "median JCT",
        "preemptions",
    )
    return markdown(header, rows)
