"""``tiresias-slurm metrics``, and the page that it writes."""

from __future__ import annotations

import json
import re

from slurm_tiresias.controller.measured import METRICS, Kind
from tests.cli.running import ROOT, Site


def test_the_page_of_the_metrics_is_up_to_date(site: Site) -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert site.run("metrics").stdout == written, "run scripts/generate"


def test_the_metrics_are_told_to_programs(site: Site) -> None:
    told = json.loads(site.run("metrics", "--json").stdout)
    assert [metric["name"] for metric in told] == [metric.name for metric in METRICS]


def test_metrics_are_named_as_prometheus_wants_them_and_by_their_units() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"tiresias_[a-z0-9_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert not re.search(r"_(ms|minutes|hours)\b", metric.name)
        assert bool(metric.buckets_s) == (metric.kind is Kind.HISTOGRAM)
        assert not metric.labels.keys() & {"job", "user", "account", "instance", "le"}
