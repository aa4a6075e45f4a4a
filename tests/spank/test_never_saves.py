"""A job that never saves, under the pressure of short jobs: it ends all the same, and its user is
told."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.testbed.real_controller import RealController
from tests.spank.channel import open_channel
from tests.spank.plugin import PluginCluster

pytestmark = pytest.mark.slurm

STEP_S, STEPS = 0.05, 240
MAX_MIN_RUN_S = 3
"""A quarter of what the job needs: with no more than that it would never end."""

TRAIN = f"""
import time
from slurm_tiresias import job
job.resumed(0)
for done in range(1, {STEPS} + 1):
    time.sleep({STEP_S})
    job.report(done, {STEPS})
job.done()
"""
LONGEST_S = 240.0


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with the plugin, the service of its nodes and a controller."""

    plugin: PluginCluster
    controller: RealController

    def train(self) -> str:
        script = f"cd {self.plugin.work}; exec env PYTHONPATH={self.plugin.work}/lib "
        return self.plugin.submit(script + "/usr/bin/python3 train.py", "--gpus=8")

    def state(self, job: str) -> str:
        return self.plugin.cluster.run("squeue", "-h", "-t", "all", "-o", "%T", "-j", job).strip()

    def press(self, job: str) -> list[str]:
        """Until the job has ended, submit a short one for its second node whenever it runs; what
        its user was told of it by ``explain``, each time that it was preempted."""
        told: list[str] = []
        until_s = time.monotonic() + LONGEST_S
        while (state := self.state(job)) in ("RUNNING", "PENDING", "COMPLETING"):
            assert time.monotonic() < until_s, f"it does not end: {told}"
            if state == "RUNNING":
                # The first node is left alone: slurmd of 22.05 runs no prolog for a job that is
                # launched again within two seconds of another one's end there.
                short = self.plugin.submit("sleep 1", "--gres=gpu:4", "--nodelist=n2")
                while self.state(short) not in ("COMPLETED", ""):
                    if self.state(job) == "COMPLETED":
                        break
                    time.sleep(0.2)
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
        preemption={"min_run_s": 1, "max_min_run_s": MAX_MIN_RUN_S, "start_bound_s": 8},
    ) as controller:
        yield Site(plugin, controller)


def test_a_job_that_never_saves_ends_all_the_same_and_its_user_is_told(site: Site) -> None:
    job = site.train()
    began_s = time.monotonic()
    told = site.press(job)
    history = json.loads(site.controller.cli("history", job, "--json").stdout)
    print(f"ended after {time.monotonic() - began_s:.0f} s", [r["ran_s"] for r in history["runs"]])
    assert history["preemptions"] >= 3
    assert max(run["ran_s"] for run in history["runs"][:-1]) > MAX_MIN_RUN_S
    assert any("runs kept nothing of what they did" in one for one in told)
    events = [event["kind"] for event in history["events"]]
    assert "no-net-progress" in events
