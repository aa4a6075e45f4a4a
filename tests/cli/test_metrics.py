"""``tiresias-slurm metrics``, and its reference page."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from scripts.tools.reference_pages import metrics
from slurm_tiresias.controller.metric_definitions import METRICS, Kind
from slurm_tiresias.controller.metrics import Metrics
from slurm_tiresias.controller.metrics_asked import metrics_service
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.tally import Tally
from slurm_tiresias.status.server import serving
from slurm_tiresias.status.service import Service
from tests.cli.running import ROOT, Site, error_of
from tests.cli.states import busy_state
from tests.controller.test_metrics import CLUSTER
from tests.slurm.scrape import Scrape


def test_the_page_of_the_metrics_is_up_to_date() -> None:
    written = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert metrics() + "\n" == written, "run scripts/dev generate"


@pytest.fixture
def measuring(site: Site) -> Iterator[Site]:
    """A controller that has completed a cycle and answers."""
    counted = Metrics(CLUSTER, Config(), Tally())
    counted.acts(busy_state())
    with serving(site.folder, {"metrics": metrics_service(counted)}):
        yield site


def test_values_are_printed_in_prometheus_format(measuring: Site) -> None:
    scrape = Scrape(measuring.run("metrics").stdout)
    assert scrape.value("tiresias_mode", mode="enforce") == 1
    assert scrape.value("tiresias_gpus", use="idle") == 28
    assert scrape.value("tiresias_cycles_total") == 0
    assert scrape.value("tiresias_jobs", tier="0", state="running") == 12


def test_without_a_controller_there_are_no_values(site: Site) -> None:
    site.publish(busy_state())
    result = site.run("metrics")
    assert result.exit_code == 3
    assert error_of(result).startswith(f"No controller answers in {site.folder} on this host (")


def test_a_controller_without_the_library_says_how_to_get_it(site: Site) -> None:
    with serving(site.folder, {"metrics": metrics_service(None)}):
        result = site.run("metrics")
    assert result.exit_code == 1 and result.stdout == ""
    assert "prometheus_client was not installed when it started" in error_of(result)
    assert "pip install 'slurm-tiresias[metrics]'" in error_of(result)


def test_an_answer_not_from_a_controller_is_recognized(site: Site) -> None:
    with serving(site.folder, {"metrics": Service(lambda _question: b"[]")}):
        result = site.run("metrics")
    assert result.exit_code == 3
    assert "is not a controller of this version" in error_of(result)


def test_metric_names_follow_the_conventions_of_prometheus() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"tiresias_[a-z0-9_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert not re.search(r"_(ms|minutes|hours)\b", metric.name)
        assert bool(metric.buckets_s) == (metric.kind is Kind.HISTOGRAM)
        assert not metric.labels.keys() & {"job", "user", "account", "instance", "le"}
