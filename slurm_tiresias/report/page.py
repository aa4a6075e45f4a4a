"""A report as a self-contained HTML page."""

from __future__ import annotations

from datetime import datetime

from slurm_tiresias.plotting.pages import templates
from slurm_tiresias.report.content import parts, summary
from slurm_tiresias.report.figures import Drawn, Report
from slurm_tiresias.report.pictures import pictures

TEMPLATE = "report.html.j2"
MOST_LISTED = 20
"""Maximum rows of a table; tables of users and accounts show this many from each end."""


def html(report: Report, drawn: Drawn) -> bytes:
    """Return the page. The same report gives the same bytes."""
    found = templates("slurm_tiresias.report")
    found.filters |= {"moment": _moment}
    page = found.get_template(TEMPLATE).render(
        report=report,
        summary=summary(report),
        parts=parts(report, MOST_LISTED),
        pictures=pictures(report, drawn),
    )
    return page.encode("utf-8", "replace")


def _moment(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s):%Y-%m-%d %H:%M:%S}"
