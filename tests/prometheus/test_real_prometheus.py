"""A real Prometheus scrapes a real controller, and answers all queries."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.ports import free_port
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from tests.prometheus import expressions
from tests.prometheus.expressions import RULES, alerts, known_names, names_in
from tests.prometheus.programs import program

pytestmark = pytest.mark.slurm

CONFIG = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: tiresias
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Prometheus:
    """A server that scrapes one controller."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path: str, **query: str) -> Any:
        """Return the answer to a query; ``AssertionError`` if it is invalid."""
        url = f"{self._url}/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            said = json.load(answer)
        assert said["status"] == "success", said
        return said["data"]

    def ask(self, expression: str) -> list[Any]:
        found: list[Any] = self.get("query", query=expression)["result"]
        return found

    def is_there(self) -> bool:
        try:
            return bool(self.ask("sum(up) == 1"))
        except OSError:
            return False

    def sees(self, expression: str) -> bool:
        return bool(self.ask(expression))


@contextmanager
def scraping(controller_port: int, folder: Path) -> Iterator[Prometheus]:
    command = program("prometheus")
    config, port = folder / "prometheus.yml", free_port()
    config.write_text(CONFIG.format(rules=RULES, port=controller_port))
    options = (
        f"--config.file={config}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--storage.tsdb.path={folder / 'data'}",
    )
    with (folder / "log").open("w") as log, subprocess.Popen([command, *options], stderr=log) as it:
        try:
            yield Prometheus(port)
        finally:
            it.terminate()


def test_every_expression_of_both_is_answered(clean_cluster: RealCluster, tmp_path: Path) -> None:
    program("prometheus")
    port = free_port()
    settings: dict[str, dict[str, object]] = {"http": {"listen": f"127.0.0.1:{port}"}}
    controller = RealController(clean_cluster, tmp_path, settings)
    controller.start()
    try:
        with scraping(port, tmp_path) as prometheus:
            clean_cluster.wait_until(prometheus.is_there, "Prometheus scrapes")
            check(clean_cluster, prometheus)
    finally:
        controller.kill()
    assert "Traceback" not in (tmp_path / "log").read_text()


def check(cluster: RealCluster, prometheus: Prometheus) -> None:
    ended = 'tiresias_job_completion_seconds_count{tier="0"}'
    job = cluster.sbatch("--gres=gpu:1", "--mem=100", script="true")
    cluster.wait_for_state(job, "COMPLETED")
    cluster.sbatch("--gres=gpu:1", "--mem=100")
    cluster.wait_until(lambda: prometheus.sees(f"{ended} == 1"), "the end of a job")
    cluster.wait_until(lambda: prometheus.sees("tiresias_decided_jobs >= 1"), "a running job")
    rate = "rate(tiresias_cycles_total[1m]) > 0"
    cluster.wait_until(lambda: prometheus.sees(rate), "two scrapes")
    for where, expression in expressions.of_dashboard().items():
        answered = partial(prometheus.sees, expression)
        cluster.wait_until(answered, f"an answer: {where}, {expression}")
    stored = set(prometheus.get("label/__name__/values"))
    assert {name for name in stored if name.startswith("tiresias_")} == known_names().keys()
    rules = [r for group in prometheus.get("rules")["groups"] for r in group["rules"]]
    assert sorted(rule["name"] for rule in rules) == sorted(alerts())
    for rule in rules:
        prometheus.ask(rule["query"])
        assert names_in(rule["query"]) <= stored, rule["query"]
    cluster.wait_until(
        lambda: all(
            r["health"] == "ok" for g in prometheus.get("rules")["groups"] for r in g["rules"]
        ),
        "all rules evaluated",
    )
    firing = prometheus.ask('ALERTS{alertstate="firing"}')
    assert firing == [], firing
