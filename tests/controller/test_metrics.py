"""The metrics without a cluster: their format, and what happens if they are unavailable."""

from __future__ import annotations

import logging
import sys
from dataclasses import fields

import pytest

from scripts.testbed.ports import free_port
from slurm_tiresias.config import parse
from slurm_tiresias.controller import metrics as told
from slurm_tiresias.controller.instruments import instruments
from slurm_tiresias.controller.metric_definitions import EVENTS, MODES
from slurm_tiresias.controller.metrics import Metrics
from slurm_tiresias.controller.publish import nothing_yet
from slurm_tiresias.core.features.gauges import GAUGES
from slurm_tiresias.errors import DamagedLedgerError
from slurm_tiresias.explanation.events import OWN_WORDS
from slurm_tiresias.settings import Config
from slurm_tiresias.slurm.protocol import Cluster
from slurm_tiresias.slurm.tally import PING, SHOW, Tally
from slurm_tiresias.status.published import PublishedJob
from tests.slurm.scrape import Scrape

CLUSTER = Cluster("grid", (22, 5, 8), "priority/multifactor", True, 30, 120, 0.0)


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Metrics:
    monkeypatch.setattr(told, "FRESH_S", -1.0)
    return Metrics(CLUSTER, Config(), Tally())


def scraped(metrics: Metrics) -> Scrape:
    return Scrape(metrics.page().body.decode())


def test_metrics_show_one_mode_and_standby_until_it_acts(metrics: Metrics) -> None:
    def in_modes() -> list[str]:
        scrape = scraped(metrics)
        return [mode for mode in MODES if scrape.value("tiresias_mode", mode=mode)]

    assert in_modes() == ["standby"]
    for mode in ("enforce", "shadow", "paused"):
        metrics.acts(nothing_yet(CLUSTER, Config(), mode))
        assert in_modes() == [mode]
    metrics.stands_by()
    assert in_modes() == ["standby"]


def test_a_damaged_ledger_is_distinguished_from_an_unwritable_one(metrics: Metrics) -> None:
    metrics.acts(nothing_yet(CLUSTER, Config(), "enforce"))
    metrics.failed(DamagedLedgerError("it is damaged", "rebuild it"))
    scrape = scraped(metrics)
    assert scrape.value("tiresias_trouble", kind="damaged-ledger") == 1
    assert scrape.value("tiresias_failed_cycles_total", kind="damaged-ledger") == 1
    assert scrape.value("tiresias_trouble", kind="ledger") == 0


def test_commands_are_counted_with_their_requests_and_the_ones_that_fail() -> None:
    tally = Tally()
    with tally.counting(SHOW, 5):
        pass
    with pytest.raises(ValueError), tally.counting(PING):
        raise ValueError
    scrape = scraped(Metrics(CLUSTER, Config(), tally))
    assert scrape.value("tiresias_slurm_requests_total") == 6
    assert scrape.value("tiresias_slurm_requests_total", command=SHOW) == 5
    assert scrape.value("tiresias_slurm_command_seconds_count") == 2
    assert scrape.value("tiresias_slurm_command_failures_total", command=PING) == 1
    assert scrape.value("tiresias_slurm_command_failures_total") == 1


def test_many_requests_render_the_text_at_most_once_a_second() -> None:
    metrics = Metrics(CLUSTER, Config(), Tally())
    assert metrics.page() is metrics.page()


def test_without_the_library_the_controller_runs_without_metrics(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "slurm_tiresias.controller.metrics")
    config = parse({"http": {"listen": f"127.0.0.1:{free_port()}"}})
    with caplog.at_level(logging.WARNING), instruments(config, CLUSTER, Tally()) as shown:
        assert shown.metrics is None
        assert shown.page is not None
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("there are no metrics: ")
    assert "pip install 'slurm-tiresias[metrics]'" in line


def test_without_an_address_metrics_are_still_collected() -> None:
    with instruments(Config(), CLUSTER, Tally()) as shown:
        assert shown.metrics is not None
        assert shown.page is None


def test_without_an_address_a_missing_library_is_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "slurm_tiresias.controller.metrics")
    with instruments(Config(), CLUSTER, Tally()) as shown:
        assert shown.metrics is None
    assert not caplog.records


def test_each_gauge_of_a_feature_counts_a_fact_that_is_published_of_jobs() -> None:
    assert {gauge.fact for gauge in GAUGES} <= {field.name for field in fields(PublishedJob)}


def test_every_event_that_is_explained_is_counted_from_zero() -> None:
    assert OWN_WORDS.keys() <= set(EVENTS)
