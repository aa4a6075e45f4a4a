"""A job that never saves, on a cluster full of short jobs: it still completes, and its user is
told."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_controller import RealController
from tests.spank.channel import open_channel
from tests.spank.plugin import PluginCluster

pytestmark = pytest.mark.slurm

STEP_S, STEPS = 0.05, 240
MAX_MIN_RUN_S = 3
"""A quarter of the time that the job needs: if its runs were never longer, it would never end."""

TRAIN = f"""
import os, sys, time
from slurm_tiresias import job
if "lies" in sys.argv:
    # It has come far, and does ever the same two steps in later runs.
    far = 0 if "SLURM_RESTART_COUNT" in os.environ else 10**6
    while True:
        far += 1
        job.report(far if far > 10**6 else far % 2, 10**9)
        time.sleep({STEP_S})
job.resumed(0)
for done in range(1, {STEPS} + 1):
    time.sleep({STEP_S})
    job.report(done, {STEPS})
job.done()
"""
LONGEST_S = 2 * PATIENCE_S
PREEMPTION = {"min_run_s": 1}


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with the plugin, the service of its nodes and a controller."""

    plugin: PluginCluster
    controller: RealController

    def train(self, *arguments: str) -> str:
        script = f"cd {self.plugin.work}; exec env PYTHONPATH={self.plugin.work}/lib "
        script += f"/usr/bin/python3 train.py {' '.join(arguments)}"
        return self.plugin.submit(script, "--gpus=8")

    def preempt(self, job: str) -> None:
        """Submit a short job for the job's second node as soon as it runs; return when it is gone.

        Its first node is left alone: slurmd of 22.05 runs no prolog for a job that is launched
        again within two seconds of another one's end there.
        """
        short = self.plugin.submit("sleep 1", "--gres=gpu:4", "--nodelist=n2")
        self.controller.wait_until(
            lambda: "COMPLETED" in (self.state(short) or "COMPLETED", self.state(job)),
            "the short job is over",
        )

    def state(self, job: str) -> str:
        return self.plugin.cluster.run("squeue", "-h", "-t", "all", "-o", "%T", "-j", job).strip()

    def press(self, job: str) -> list[str]:
        """Until the job has ended, submit a short job for its second node whenever it runs; return
        what ``explain`` showed its user after each preemption."""
        told: list[str] = []
        until_s = time.monotonic() + LONGEST_S
        while (state := self.state(job)) in ("RUNNING", "PENDING", "COMPLETING"):
            assert time.monotonic() < until_s, f"it does not end: {told}"
            if state == "RUNNING":
                self.preempt(job)
                told.append(" ".join(self.controller.cli("explain", job).stdout.split()))
            time.sleep(0.2)
        assert state == "COMPLETED"
        return told


@pytest.fixture
def site(plugin: PluginCluster, tmp_path: Path) -> Iterator[Site]:
    with open_channel(
        plugin,
        tmp_path,
        TRAIN,
        policy={"thresholds_gpu_s": [8], "estimates": []},
        preemption=PREEMPTION,
        constants={"LONGEST_MIN_RUN_S": MAX_MIN_RUN_S},
    ) as controller:
        yield Site(plugin, controller)


def test_a_job_that_never_saves_still_ends_and_its_user_is_informed(site: Site) -> None:
    job = site.train()
    began_s = time.monotonic()
    told = site.press(job)
    history = json.loads(site.controller.cli("history", job, "--json").stdout)
    print(f"ended after {time.monotonic() - began_s:.0f} s", [r["ran_s"] for r in history["runs"]])
    assert history["preemptions"] >= 2
    assert max(run["ran_s"] for run in history["runs"][:-1]) > MAX_MIN_RUN_S
    assert any("runs saved nothing" in one for one in told)
    events = [event["kind"] for event in history["events"]]
    assert "no-net-progress" in events


def test_false_reports_protect_a_job_for_at_most_twice_its_lost_time(site: Site) -> None:
    job = site.train("lies")
    site.controller.wait_until(
        lambda: (
            (shown := site.controller.job(job)) is not None
            and shown.tier == 1
            and shown.progress is not None
        ),
        "it has come far",
    )
    for _ in range(2):
        site.controller.wait_until(lambda: site.state(job) == "RUNNING", "it runs")
        site.preempt(job)
    first_s, second_s, *_ = (
        run["ran_s"]
        for run in json.loads(site.controller.cli("history", job, "--json").stdout)["runs"]
    )
    print(f"first {first_s:.1f} s, then {second_s:.1f} s")
    # It is protected up to the bound; then follow a cycle, the requeue and its last reports.
    assert MAX_MIN_RUN_S + 1.0 < second_s < 2 * first_s + 30.0
