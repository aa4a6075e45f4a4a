"""A report on a real cluster agrees with Slurm's accounting."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import QUICK, RealController

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("-N1", "--gres=gpu:4", "--mem=100")
WITHIN_S = 1.0
"""Tolerance: accounting and slurmctld use whole seconds."""


@pytest.fixture
def controller(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    started = RealController(clean_cluster, tmp_path, QUICK)
    yield started.start()
    if started.process is not None:
        started.kill()


@dataclass(frozen=True)
class Accounted:
    """A job in accounting: the sum over all its runs, the last of which has ended."""

    jct_s: float
    ran_s: float
    gpu_s: float
    runs: int

    @property
    def queued_s(self) -> float:
        return self.jct_s - self.ran_s


def test_completion_queueing_and_use_are_those_of_sacct_though_jobs_were_preempted(
    controller: RealController,
) -> None:
    cluster = controller.cluster
    # Slurm remembers the jobs of other tests, which have ended.
    since_s = int(time.time()) + 1
    cluster.wait_until(lambda: time.time() >= since_s, "the next second")
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since_s))
    long = [cluster.sbatch(*WHOLE_NODE, "-J", "long") for _ in range(4)]
    for job in long:
        cluster.wait_for_state(job, "RUNNING")
        controller.wait_for_tier(job, 1)
    short = [cluster.sbatch("--gres=gpu:1", "--mem=100", script="sleep 1") for _ in range(3)]
    for job in short:
        cluster.wait_for_state(job, "COMPLETED")
    for job in long:
        cluster.wait_for_state(job, "RUNNING")
        cluster.run("scancel", job)
        cluster.wait_for_state(job, "CANCELLED")
    report = whole_report(controller, {*long, *short}, since)
    accounted = by_sacct(cluster, {*long, *short})
    assert report["jobs"]["completed"] == 7
    for title, jobs in (("1", short), ("2 to 4", long)):
        found = next(size for size in report["by_gpus"] if size["name"] == title)
        theirs = [accounted[job] for job in jobs]
        assert found["jobs"] == len(jobs)
        for ours, key in (("jct", "jct_s"), ("queueing", "queued_s")):
            values = [getattr(one, key) for one in theirs]
            assert found[ours]["mean_s"] == pytest.approx(mean(values), abs=WITHIN_S)
            assert found[ours]["p95_s"] == pytest.approx(max(values), abs=WITHIN_S)
    used_gpu_s = sum(one.gpu_s for one in accounted.values())
    assert report["gpu_s"] == pytest.approx(used_gpu_s, abs=4 * WITHIN_S * len(accounted))
    assert_preemptions(report["preemptions"], [accounted[job].runs - 1 for job in long])
    assert told_to_people(controller, len(accounted), since)


def assert_preemptions(found: Mapping[str, Any], restarts: Collection[int]) -> None:
    """Each restart of a long job was a preemption, and each is reported in full."""
    assert found["preemptions"] == sum(restarts) > 0
    assert found["jobs"] == sum(times > 0 for times in restarts)
    assert found["incomplete"] == found["in_vain"] == found["not_yet_again"] == 0
    assert found["grace"]["median_s"] is not None and found["handover"]["median_s"] is not None
    assert found["moved_gpu_s"] > 0
    tiers = {(tier["for_tier"], tier["tier"]) for tier in found["by_tier"]}
    assert tiers == {(0, 1)}


def whole_report(
    controller: RealController, jobs: Collection[str], since: str
) -> Mapping[str, Any]:
    """Return the report once the controller knows the ends of these jobs, and accounting has
    confirmed them."""

    last = ""

    def is_whole() -> Mapping[str, Any] | None:
        nonlocal last
        ended = controller.cli("report", "-S", since, "--json")
        last = ended.stderr
        if ended.returncode != 0:
            return None
        report: Mapping[str, Any] = json.loads(ended.stdout)
        last = f"{report['jobs']}, {report['unconfirmed_runs']} unconfirmed runs"
        whole = report["jobs"]["completed"] == len(jobs) and not report["unconfirmed_runs"]
        return report if whole else None

    # Late accounting is asked at growing intervals.
    patience_s = 4 * PATIENCE_S
    try:
        found = controller.cluster.wait_until(is_whole, "the report has all jobs", patience_s)
    except AssertionError as error:
        rows = controller.cluster.sacct_rows(jobs, "submit,start,end,state")
        raise AssertionError(f"{error}\nreport: {last}\nsacct: {rows}") from None
    assert found is not None and found["live"]
    return found


def by_sacct(cluster: RealCluster, jobs: Collection[str]) -> Mapping[str, Accounted]:
    fields = "submit,end,elapsedraw,alloctres"
    rows = cluster.sacct_rows(jobs, fields)
    return {job: _accounted(runs) for job, runs in rows.items()}


def _accounted(runs: list[list[str]]) -> Accounted:
    ran_s = [int(elapsed) for _, _, elapsed, _ in runs]
    gpus = [int(tres.partition("gres/gpu=")[2].partition(",")[0]) for *_, tres in runs]
    return Accounted(
        jct_s=max(int(end) for _, end, *_ in runs) - min(int(submit) for submit, *_ in runs),
        ran_s=sum(ran_s),
        gpu_s=sum(one_s * held for one_s, held in zip(ran_s, gpus, strict=True)),
        runs=len(runs),
    )


def told_to_people(controller: RealController, jobs: int, since: str) -> bool:
    page = controller.folder / "report.html"
    ended = controller.cli("report", "-S", since, "--html", str(page))
    assert ended.returncode == 0, ended.stderr
    assert f"{jobs} managed jobs existed" in ended.stdout
    return page.read_text().startswith("<!doctype html>")
