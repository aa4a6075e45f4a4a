"""The queries of the dashboard and the alerts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from slurm_tiresias.controller.metric_definitions import METRICS, Kind, Metric
from tests.prometheus.programs import ROOT

DASHBOARD = ROOT / "etc" / "grafana" / "tiresias.json"
RULES = ROOT / "etc" / "prometheus" / "tiresias.rules.yml"
SCRAPE = ROOT / "etc" / "prometheus" / "scrape.yml"

_VARIABLES = {"$__rate_interval": "1m", "$instance": ".*"}
"""Values for Grafana's variables."""


def of_dashboard() -> Mapping[str, str]:
    """Each expression, by its panel's title and its letter."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return {
        f"{panel['title']}, {target['refId']}": _filled_in(target["expr"])
        for panel in panels
        for target in panel.get("targets", ())
    }


def alerts() -> list[str]:
    """The names of all alerts."""
    return re.findall(r"- alert: (\w+)", RULES.read_text())


def names_in(text: str) -> set[str]:
    """Return the names of the metrics in an expression."""
    return set(re.findall(r"\btiresias_\w+", text))


def known_names() -> Mapping[str, Metric]:
    """Every possible series name, with its metric."""
    return {name: metric for metric in METRICS for name in _series_of(metric)}


def _series_of(metric: Metric) -> Iterator[str]:
    if metric.kind in (Kind.SUMMARY, Kind.HISTOGRAM):
        yield from (f"{metric.name}_sum", f"{metric.name}_count")
        if metric.kind is Kind.HISTOGRAM:
            yield f"{metric.name}_bucket"
    else:
        yield metric.name


def _filled_in(expression: str) -> str:
    for variable, value in _VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression
