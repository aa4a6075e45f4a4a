"""Jobs that report their saves on a real cluster: the one that loses least is preempted."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from scripts.testbed.real_controller import RealController
from tests.spank.channel import open_channel
from tests.spank.plugin import PluginCluster

pytestmark = pytest.mark.slurm

GPUS_PER_NODE = 4

TRAIN = """
import sys, time
from slurm_tiresias import job
for done in range(1, 1_000_000):
    time.sleep(0.05)
    job.report(done, 1_000_000)
    if "always" in sys.argv or done == 5:
        job.saved(done)
"""

OFTEN = {"REPORT_EVERY_S": 1}


def test_the_job_that_has_just_saved_is_preempted(plugin: PluginCluster, tmp_path: Path) -> None:
    policy = {"thresholds_gpu_s": [20]}
    preemption = {"min_run_s": 0.5, "budget_share": 0}
    train = f"cd {plugin.work}; PYTHONPATH={plugin.work}/lib /usr/bin/python3 train.py"
    gpus = f"--gpus={GPUS_PER_NODE}"
    with open_channel(
        plugin, tmp_path, TRAIN, policy=policy, preemption=preemption, constants=OFTEN
    ) as controller:
        # Without regard to losses the job that started last would be preempted.
        saves, has_saved_once = (
            plugin.submit(f"{train} {saves}", gpus, f"--nodelist={node}")
            for saves, node in (("always", "n1"), ("once", "n2"))
        )
        for running in (saves, has_saved_once):
            controller.wait_for_tier(running, 1)
            controller.wait_until(
                partial(_has_saved, controller, running), f"job {running} is known to have saved"
            )
        short = plugin.submit("sleep 1", gpus)
        assert plugin.wait(short).status == "0:0"
        assert controller.events("preempted") == [(saves, short)]


def _has_saved(controller: RealController, key: str) -> bool:
    job = controller.job(key)
    return job is not None and job.progress is not None and job.progress.saved_step is not None
