"""Jobs that report remaining work on a real cluster: which preempts which, and which reports do not
count."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_controller import RealController
from slurm_tiresias.status.published import PublishedEstimate
from tests.spank.channel import open_channel
from tests.spank.plugin import PluginCluster

pytestmark = pytest.mark.slurm

GPUS = 8
"""All GPUs of the two nodes of the plugin's cluster."""

STEP_S = 0.05
THRESHOLD_GPU_S = 160

TRAIN = f"""
import sys, time
from slurm_tiresias import job
total = int(sys.argv[1])
for done in range(1, total + 1):
    time.sleep({STEP_S})
    job.report(done, total)
job.done()
"""


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with the plugin, the service of its nodes and a controller."""

    plugin: PluginCluster
    controller: RealController

    def train(self, total: int) -> str:
        """Submit a job on all GPUs that does twenty steps per second and reports them."""
        script = f"cd {self.plugin.work}; env PYTHONPATH={self.plugin.work}/lib "
        script += f"/usr/bin/python3 train.py {total}"
        return self.plugin.submit(script, f"--gpus={GPUS}")

    def submit(self, script: str) -> str:
        """Submit a job on all GPUs that reports nothing."""
        return self.plugin.submit(script, f"--gpus={GPUS}")

    def estimate(self, job: str) -> PublishedEstimate | None:
        shown = self.controller.job(job)
        return shown.estimate if shown else None

    def wait_until_ranked_by_reports(self, job: str) -> None:
        def is_ranked() -> bool:
            estimate = self.estimate(job)
            return estimate is not None and estimate.remaining_gpu_s is not None

        self.controller.wait_until(is_ranked, f"job {job} is ranked by what it still needs")

    def is_running(self, job: str) -> bool:
        shown = self.controller.job(job)
        return shown is not None and shown.state == "running"

    def explained(self, job: str) -> str:
        return " ".join(self.controller.cli("explain", job).stdout.split())


OFTEN = {"REPORT_EVERY_S": 1}


@pytest.fixture
def threshold_gpu_s() -> float:
    return THRESHOLD_GPU_S


@pytest.fixture
def site(plugin: PluginCluster, tmp_path: Path, threshold_gpu_s: float) -> Iterator[Site]:
    policy = {"thresholds_gpu_s": [threshold_gpu_s]}
    preemption = {"min_run_s": 0.5, "budget_share": 0}
    with open_channel(
        plugin, tmp_path, TRAIN, policy=policy, preemption=preemption, constants=OFTEN
    ) as controller:
        yield Site(plugin, controller)


@pytest.mark.parametrize("threshold_gpu_s", [PATIENCE_S * GPUS])
def test_a_job_with_much_left_is_preempted_early(site: Site, threshold_gpu_s: float) -> None:
    long = site.train(1_000_000)
    site.wait_until_ranked_by_reports(long)
    site.controller.wait_for_tier(long, 1)
    seen = site.controller.job(long)
    assert seen is not None and seen.attained_gpu_s < threshold_gpu_s
    assert "It is ranked by the service that it still needs:" in site.explained(long)
    short = site.submit("sleep 1")
    assert site.plugin.wait(short).status == "0:0"
    assert (long, short) in site.controller.events("preempted")


def test_a_job_about_to_end_is_not_preempted_and_a_dead_channel_or_controller_stops_nothing(
    site: Site,
) -> None:
    seconds = 2 * THRESHOLD_GPU_S / GPUS
    old = site.train(int(seconds / STEP_S))
    site.wait_until_ranked_by_reports(old)
    site.controller.kill()
    site.controller.start()
    site.controller.wait_until(
        lambda: (
            (seen := site.controller.job(old)) is not None
            and seen.attained_gpu_s > THRESHOLD_GPU_S
            and seen.tier == 0
        ),
        "it is in the first tier, having attained more than that allows",
    )
    shutil.rmtree(site.plugin.progress_folder)
    short = site.submit("true")
    site.controller.cycles(3)
    assert site.is_running(old)
    assert site.plugin.wait(old).status == "0:0"
    assert site.plugin.wait(short).status == "0:0"
    assert site.plugin.restarts(old) == 0
