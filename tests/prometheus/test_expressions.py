"""The dashboard and the alerts query only metrics that the controller has."""

from __future__ import annotations

import json
import re

from tests.prometheus import expressions
from tests.prometheus.expressions import DASHBOARD, RULES, known_names, names_in


def test_the_dashboard_and_the_alerts_ask_for_known_metrics_by_known_labels() -> None:
    known = known_names()
    asked = [*expressions.of_dashboard().values(), RULES.read_text()]
    for text in asked:
        for name in names_in(text):
            assert name in known, f"{name} in {text[:80]}"
        for name, matchers in re.findall(r"\b(tiresias_\w+)\{([^}]*)\}", text):
            for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
                assert label in {*known[name].labels, "instance", "job", "le"}, f"{name}: {label}"


def test_every_metric_is_on_the_dashboard_or_in_an_alert() -> None:
    known = known_names()
    text = RULES.read_text() + " ".join(expressions.of_dashboard().values())
    shown = {known[name].name for name in names_in(text)}
    without = {metric.name for metric in known.values()} - shown
    assert without == {"tiresias_start_timestamp_seconds"}


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)
