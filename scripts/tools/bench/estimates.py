"""The benefit of estimating remaining service, and the cost of false reports."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from scripts.tools.bench.record import fresh_option, on_traces, record
from scripts.tools.bench.studies import (
    CLAIRVOYANT,
    INTERVAL_S,
    REQUEUE_DELAY_S,
    Sample,
    drawn,
    in_processes,
    kinds_of,
    mean_and_interval,
    titled,
)
from scripts.tools.document import markdown
from slurm_tiresias.settings.policy import HISTORY, REPORTS
from slurm_tiresias.simulator.baselines import STOCK
from slurm_tiresias.simulator.engine import Outcome
from slurm_tiresias.simulator.limits import with_limits
from slurm_tiresias.simulator.report import figures
from slurm_tiresias.simulator.reports import Reporter, ReportModel

TITLE = "What jobs tell"
LEAST_WIDE, LEAST_LONG_S = 5, 800.0


@dataclass(frozen=True)
class Case:
    """Which information about the jobs is available."""

    title: str
    reports: ReportModel | None = None
    limits: str = ""
    """How users set limits (``simulator.limits.LIMIT_MODELS``); "" if they do not count."""
    history: bool = False


NOTHING = Case("nothing")
ALL = Case("all report", ReportModel(1.0))
ROUGHLY = Case("all, off by e^0.5", ReportModel(1.0, sigma=0.5))
QUARTER = Case("25 %", ReportModel(0.25))
WITH_LIARS = Case("25 %, and 25 % lie", ReportModel(0.25, liars=0.25))
CASES = (
    NOTHING,
    ALL,
    Case("50 %", ReportModel(0.5)),
    QUARTER,
    ROUGHLY,
    WITH_LIARS,
    Case("all lie", ReportModel(0.0, liars=1.0)),
    Case("shuffled", ReportModel(1.0, shuffled=True)),
    Case("limits 1 to 10 times", limits="10x"),
    Case("limits rounded up", limits="round"),
    Case("limits alike", limits="alike"),
    Case("history", history=True),
)
OF_SRSF = Case(CLAIRVOYANT)
OF_STOCK = Case(STOCK)


@dataclass(frozen=True)
class Found:
    """The figures of one simulation."""

    average_jct_s: float
    preemptions: int
    long_wide_jct_s: float
    slowdowns: Mapping[Reporter, float]
    """The mean of JCT over duration, by how jobs report."""


@dataclass(frozen=True)
class Trial:
    sample: Sample
    case: Case

    def found(self) -> Found:
        case = self.case
        policy = case.title if case in (OF_SRSF, OF_STOCK) else "tiresias-l"
        counts = {REPORTS: True, HISTORY: case.history or bool(case.limits)}
        outcomes = self.sample.outcomes(
            policy,
            {"policy": {"estimates": [name for name in counts if counts[name]]}},
            reports=case.reports,
            change=lambda jobs: with_limits(jobs, case.limits) if case.limits else jobs,
        )
        measured = figures(outcomes, self.sample.site.gpus)
        by_reporter: dict[Reporter, list[float]] = {}
        if case.reports:
            name = self.sample.make().name
            for one in outcomes:
                reporter = case.reports.reporter(name, one.job.job_id)
                by_reporter.setdefault(reporter, []).append(one.jct_s / one.job.duration_s)
        return Found(
            measured.average_jct_s,
            measured.preemptions,
            _mean_jct_s([one for one in outcomes if _is_long_and_wide(one)]),
            {reporter: statistics.mean(each) for reporter, each in by_reporter.items()},
        )


def _is_long_and_wide(one: Outcome) -> bool:
    return one.job.gpus >= LEAST_WIDE and one.job.duration_s >= LEAST_LONG_S


def _mean_jct_s(outcomes: Sequence[Outcome]) -> float:
    return statistics.mean(one.jct_s for one in outcomes) if outcomes else 0.0


Founds = Mapping[Trial, Found]
Figure = Callable[[Found], float]


@click.command("estimates")
@fresh_option
@on_traces
def estimates(philly: Path | None, itp: Path | None, fresh: bool, workers: int | None) -> None:
    """The benefit of estimating remaining service, and the cost of false reports."""
    samples = drawn(fresh, philly, itp, and_recurring=True)
    # Stock Slurm is for the one table that compares with it; on long traces it takes very long.
    trials = [Trial(sample, case) for sample in samples for case in (OF_SRSF, *CASES)]
    trials += [Trial(sample, OF_STOCK) for sample in samples if sample.kind == "paper480"]
    found = in_processes(Trial.found, trials, workers)
    record(
        titled(TITLE, fresh),
        _what_is_shown(fresh),
        _table(samples, found, OF_SRSF, lambda one: one.average_jct_s, CASES),
        "Preemptions, in multiples of those where nothing is known:",
        _table(samples, found, NOTHING, lambda one: one.preemptions, CASES[1:]),
        "\n".join(f"- {line}" for line in _who_pays(samples, found)),
    )


def _what_is_shown(fresh: bool) -> str:
    other = "Seeds and stretches that nothing was chosen on. " if fresh else ""
    return other + (
        "Average JCT of 2D-LAS with the default tiers over that of clairvoyant SRSF with the same "
        f"restart costs; decisions every {INTERVAL_S:.0f} s, a requeue delay of "
        f"{REQUEUE_DELAY_S:.0f} s, default guards. Means over seeds or stretches, and how far "
        "chance may move each (95 %, Student's t). The columns are what jobs tell: how many report "
        "truly; that each report is off by a normally distributed power of e; liars say at every "
        "report that 5 % of their work is left; shuffled: each job reports what another one needs."
    )


def _table(
    samples: Sequence[Sample],
    found: Founds,
    other: Case,
    of: Figure,
    cases: Sequence[Case],
) -> str:
    rows = []
    for kind, some in kinds_of(samples).items():
        ratios = (
            [of(found[Trial(s, case)]) / max(1, of(found[Trial(s, other)])) for s in some]
            for case in cases
        )
        rows.append((kind, *map(mean_and_interval, ratios)))
    return markdown(("workload", *(case.title for case in cases)), rows)


def _who_pays(samples: Sequence[Sample], found: Founds) -> Sequence[str]:
    paper = [sample for sample in samples if sample.kind == "paper480"]

    def over_stock(case: Case) -> float:
        ratios = (
            found[Trial(s, case)].long_wide_jct_s / found[Trial(s, OF_STOCK)].long_wide_jct_s
            for s in paper
        )
        return statistics.mean(ratios)

    def slowdown(reporter: Reporter) -> float:
        return statistics.mean(found[Trial(s, WITH_LIARS)].slowdowns[reporter] for s in paper)

    by_case = (f"{over_stock(case):.2f} ({case.title})" for case in CASES[:4])
    by_reporter = (f"{slowdown(reporter):.2f} ({reporter.value})" for reporter in Reporter)
    return (
        f"paper480: average JCT of long wide jobs ({LEAST_WIDE} GPUs and more, "
        f"{LEAST_LONG_S:.0f} s and more) over stock Slurm's: {', '.join(by_case)}.",
        f"paper480: mean slowdown where 25 % report and 25 % lie: {', '.join(by_reporter)}.",
    )
