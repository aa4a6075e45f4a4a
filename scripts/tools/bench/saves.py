"""How much work preemptions make jobs repeat, and the cost of avoiding it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from scripts.testbed.constants import replaced
from scripts.tools.bench.record import fresh_option, on_traces, record
from scripts.tools.bench.studies import (
    INTERVAL_S,
    Sample,
    drawn,
    in_processes,
    kinds_of,
    mean_and_interval,
    titled,
)
from scripts.tools.document import markdown
from slurm_tiresias.simulator.report import Figures, figures
from slurm_tiresias.simulator.saves import ON_REQUEST_S, SaveModel

TITLE = "What a preemption loses"
LEAST_LOAD = 2.0
"""Traces and generated workloads with a lower load have too few preemptions to compare."""

MINUTE_S = 60.0
INTERVALS = SaveModel(((5 * MINUTE_S, 0.34), (30 * MINUTE_S, 0.33), (120 * MINUTE_S, 0.33)))
MIXED = SaveModel(
    (
        (ON_REQUEST_S, 0.4),
        (5 * MINUTE_S, 0.2),
        (30 * MINUTE_S, 0.2),
        (120 * MINUTE_S, 0.2),
    )
)
HALF_SILENT = SaveModel(MIXED.shares, told=0.5)
MODELS = {"intervals": INTERVALS, "mixed": MIXED, "mixed, half silent": HALF_SILENT}


@dataclass(frozen=True)
class Rule:
    """When jobs are preempted, as constants of ``core/features/save_due.py``."""

    title: str
    constants: Mapping[str, float] = field(hash=False)


NO_WAIT = Rule("saves are not waited for", {"WAIT_FOR_SAVE_S": 0.0, "FIRST_TIER_WAIT_S": 0.0})
WAIT = Rule("saves are waited for", {})
RULES = (NO_WAIT, WAIT)


@dataclass(frozen=True)
class Trial:
    sample: Sample
    model: str
    rule: Rule

    def figures(self) -> Figures:
        with replaced(self.rule.constants):
            outcomes = self.sample.outcomes("tiresias-l", {}, saves=MODELS[self.model])
        return figures(outcomes, self.sample.site.gpus)


Founds = Mapping[Trial, Figures]


@click.command("saves")
@fresh_option
@on_traces
def saves(philly: Path | None, itp: Path | None, fresh: bool, workers: int | None) -> None:
    """How much work preemptions make jobs repeat, and the cost of avoiding it."""
    enough = ("paper480", f"load {LEAST_LOAD:g}")
    samples = [each for each in drawn(fresh, philly, itp) if each.kind.endswith(enough)]
    trials = [Trial(s, model, rule) for s in samples for model in MODELS for rule in RULES]
    found = in_processes(Trial.figures, trials, workers)
    record(titled(TITLE, fresh), _what_is_shown(fresh), _table(samples, found))


def _what_is_shown(fresh: bool) -> str:
    other = "Seeds and stretches that nothing was chosen on. " if fresh else ""
    models = "; ".join(f"{name}: {model}" for name, model in MODELS.items())
    return other + (
        "GPU time of work that preemptions made jobs do again, as a share of all GPU time held, "
        "and what changes because a preemption waits for a save that is due. Restart costs by "
        "model, "
        f"decisions every {INTERVAL_S:.0f} s, default guards. Means over seeds or stretches, and "
        f"how far chance may move each (95 %, Student's t). How programs save: {models}."
    )


def _table(samples: Sequence[Sample], found: Founds) -> str:
    rows = []
    for kind, some in kinds_of(samples).items():
        for model in MODELS:

            def over(of: Callable[[Figures], float]) -> str:
                pairs = (
                    (found[Trial(s, model, WAIT)], found[Trial(s, model, NO_WAIT)])  # noqa: B023
                    for s in some  # noqa: B023
                )
                return mean_and_interval([of(one) / max(1e-9, of(other)) for one, other in pairs])

            before = [100 * found[Trial(s, model, NO_WAIT)].again_share for s in some]
            rows.append(
                (
                    kind,
                    model,
                    f"{mean_and_interval(before)} %",
                    over(lambda one: one.again_gpu_s),
                    over(lambda one: one.average_jct_s),
                    over(lambda one: one.median_jct_s),
                    over(lambda one: one.preemptions),
                )
            )
    header = (
        "workload",
        "programs",
        "done again",
        "with waiting",
        "average JCT",
        "median JCT",
        "preemptions",
    )
    return markdown(header, rows)
