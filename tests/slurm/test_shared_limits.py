"""Waiting jobs that share a limit, on a real cluster: no job is preempted in vain for them.

Sixteen long jobs of one GPU each fill the cluster. Then six more are submitted that could all start
if there were room, except that a limit on the six together prevents it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from scripts.testbed.real_controller import RealController, controller_of_one_test

pytestmark = pytest.mark.slurm

LINES = (
    "Licenses=solver:1,cad:4",
    "AccountingStorageTRES=gres/gpu",
    "AccountingStorageEnforce=associations,limits,qos,safe",
)
SETTINGS: Mapping[str, Mapping[str, object]] = {
    "policy": {"thresholds_gpu_s": [2]},
    "preemption": {"min_run_s": 1},
    "controller": {"interval_s": 0.5},
    "constants": {"START_BOUND_S": 20, "RETRY_AFTER_S": 1},
}
LIMITED_QOS = {"four-gpus": "MaxTRESPU=gres/gpu=4", "gpu-minutes": "GrpTRESMins=gres/gpu=25"}


@pytest.fixture(scope="module")
def limited() -> Iterator[RealCluster]:
    lines = [word for line in LINES for word in ("--slurm-conf-line", line)]
    with short_folder() as folder, started_cluster(folder, *lines) as cluster:

        def sacctmgr(*words: str) -> None:
            cluster.run("sacctmgr", "-i", *words)

        for name, limit in LIMITED_QOS.items():
            sacctmgr("add", "qos", name, limit)
        sacctmgr("add", "account", "lab", "parent=root", "GrpTRES=gres/gpu=4")
        sacctmgr("add", "user", "root", "account=lab")
        sacctmgr("modify", "user", "root", "set", f"qos={','.join(('normal', *LIMITED_QOS))}")
        yield cluster


@pytest.fixture
def controller(limited: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    with controller_of_one_test(limited, tmp_path, SETTINGS) as started:
        yield started


@pytest.mark.parametrize(
    ("options", "gpus", "may_run"),
    [
        pytest.param("--licenses=solver", 1, 1, id="a licence"),
        pytest.param("--qos=four-gpus", 2, 2, id="GPUs of a user in a QOS"),
        pytest.param("--qos=gpu-minutes --time=10", 1, 2, id="minutes of GPUs in a QOS"),
        pytest.param("--account=lab", 2, 2, id="GPUs of an account"),
    ],
)
def test_as_many_jobs_are_preempted_as_can_start(
    limited: RealCluster, controller: RealController, options: str, gpus: int, may_run: int
) -> None:
    long = [limited.sbatch("--gres=gpu:1", "--mem=100") for _ in range(16)]
    for job in long:
        controller.wait_for_tier(job, 1)
    short = [limited.sbatch(f"--gres=gpu:{gpus}", "--mem=100", *options.split()) for _ in range(6)]

    def running() -> int:
        listed = limited.run("squeue", "-h", "-t", "R", "-j", ",".join(short), "-o", "%i")
        return len(listed.split())

    controller.wait_until(lambda: running() == may_run, f"{may_run} of them run")
    controller.cycles(8)
    assert running() == may_run
    assert len(controller.events("preempted")) == may_run * gpus
