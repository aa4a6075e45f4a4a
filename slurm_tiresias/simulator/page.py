"""The report as a self-contained HTML page, and the table of all jobs as CSV.

Both need optional packages; see ``extras.py``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from slurm_tiresias.plotting.pages import templates
from slurm_tiresias.simulator.report import (
    BINS,
    PAYS_ABOVE,
    Report,
    Result,
    bin_of,
    ratio,
    settings,
)

NEEDED = ("pandas", "matplotlib", "jinja2")
"""Packages that ``--csv`` and ``--html`` need."""
TEMPLATE = "simulation.html.j2"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Prefixes that a spreadsheet takes for the beginning of a formula."""


def html(report: Report) -> bytes:
    """Return the page. The same report gives the same bytes."""
    from slurm_tiresias.simulator.plots import pictures

    page = (
        templates("slurm_tiresias.simulator")
        .get_template(TEMPLATE)
        .render(
            report=report,
            reference=report.reference.figures,
            pictures=pictures(report),
            bins=BINS,
            ratio=ratio,
            pays_above=f"{PAYS_ABOVE:g}",
            settings=json.dumps(settings(report.setup), indent=2),
        )
    )
    return page.encode("utf-8")


def csv(report: Report) -> bytes:
    """Return a row for each job under each policy, in the order of the trace; times in seconds."""
    from pandas import DataFrame

    parts: list[str] = [
        # Policy by policy, because all at once would take gigabytes for a large trace.
        DataFrame(_columns(result)).to_csv(index=False, header=number == 0, lineterminator="\n")
        for number, result in enumerate(report.results)
    ]
    return "".join(parts).encode("utf-8", "replace")


def _columns(result: Result) -> dict[str, Sequence[object]]:
    outcomes = result.outcomes
    jobs = [outcome.job for outcome in outcomes]
    return {
        "policy": [result.policy] * len(outcomes),
        "job_id": [_as_text(job.job_id) for job in jobs],
        "submitted_s": [job.submitted_s for job in jobs],
        "first_start_s": [outcome.first_start_s for outcome in outcomes],
        "end_s": [outcome.end_s for outcome in outcomes],
        "jct_s": [outcome.jct_s for outcome in outcomes],
        "waited_s": [outcome.waited_s for outcome in outcomes],
        "gpus": [job.gpus for job in jobs],
        "duration_s": [job.duration_s for job in jobs],
        "model": [_as_text(job.model) for job in jobs],
        "bin": [bin_of(job) for job in jobs],
        "preemptions": [outcome.preemptions for outcome in outcomes],
        "promotions": [outcome.promotions for outcome in outcomes],
        "lost_s": [outcome.lost_s for outcome in outcomes],
        "spread_s": [outcome.spread_s for outcome in outcomes],
    }


def _as_text(text: str) -> str:
    """Return the text, with an apostrophe before anything a spreadsheet would take as a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
