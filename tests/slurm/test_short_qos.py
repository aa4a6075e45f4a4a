"""The baseline ``slurm-qos`` beside a real Slurm with fair share and a short QOS that preempts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from scripts.testbed.real_cluster import RealCluster, short_folder, started_cluster
from slurm_tiresias.settings import Config
from slurm_tiresias.simulator import run
from slurm_tiresias.simulator.baselines import slurm_qos
from slurm_tiresias.simulator.engine import Outcome, Timing
from slurm_tiresias.simulator.sim_cluster import Costs, SimCluster
from slurm_tiresias.simulator.workload import TraceJob, Workload

pytestmark = pytest.mark.slurm

NODES, GPUS = 4, 4
LINES = (
    "PreemptType=preempt/qos",
    "PreemptMode=REQUEUE",
    "AccountingStorageEnforce=associations,limits,qos",
    "PriorityWeightQOS=1000000",
    f"PriorityWeightFairshare={slurm_qos.FAIR_SHARE_WEIGHT:.0f}",
    f"PriorityWeightAge={slurm_qos.AGE_WEIGHT:.0f}",
    "PriorityCalcPeriod=1",
)
CALCULATED_WITHIN_S = 180.0
"""Slurm brings fair share up to date once a minute at most."""

USERS = ("much", "little")
H = 3600.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    lines = [word for line in LINES for word in ("--slurm-conf-line", line)]
    shape = ("--nodes", str(NODES), "--gpus", str(GPUS))
    with short_folder() as folder, started_cluster(folder, *shape, *lines) as cluster:

        def sacctmgr(*words: str) -> None:
            cluster.run("sacctmgr", "-i", *words)

        sacctmgr("add", "qos", "short", "priority=10", "preempt=normal")
        # The users are accounts, so that one user may submit for all of them.
        for name in USERS:
            sacctmgr("add", "account", name)
            sacctmgr("add", "user", "root", f"account={name}", "qos=normal,short")
        yield cluster


def jobs_of(*rows: tuple[float, int, float, float], users: Sequence[str]) -> Sequence[TraceJob]:
    """Return jobs from (submitted, GPUs, duration, time limit), times in hours."""
    return [
        TraceJob(str(n), at_h * H, gpus, hours * H, limit_s=limit_h * H, user=user)
        for n, ((at_h, gpus, hours, limit_h), user) in enumerate(zip(rows, users, strict=True))
    ]


def simulated(jobs: Sequence[TraceJob]) -> Sequence[Outcome]:
    site = SimCluster(NODES, GPUS, "consolidate")
    setup = run.Setup(site, Config(), Costs(site, speeds=False, flat_s=0.0), Timing())
    return run.simulate(Workload("drawn", tuple(jobs)), "slurm-qos", setup)


def submitted(cluster: RealCluster, job: TraceJob) -> str:
    assert job.limit_s is not None
    return cluster.sbatch(
        *(f"-n{job.gpus}", f"--gpus={job.gpus}", "--mem-per-cpu=10", f"--account={job.user}"),
        f"--time={job.limit_s / 60:.0f}",
        f"--qos={'short' if job.limit_s <= slurm_qos.SHORT_LIMIT_S else 'normal'}",
    )


def test_the_same_jobs_are_preempted_as_in_the_model(cluster: RealCluster) -> None:
    jobs = jobs_of(
        (0.0, 2, 9.0, 24.0),
        (0.0, 2, 0.9, 1.0),
        (0.0, 8, 9.0, 24.0),
        (0.0, 4, 9.0, 24.0),
        # Preempts the job on a single node that frees enough GPUs.
        (0.5, 4, 0.4, 1.0),
        # Preempts the job of 8 GPUs, but not the first, which would not be enough.
        (0.6, 8, 0.3, 1.0),
        users=USERS[:1] * 6,
    )
    ids = []
    for job in jobs:
        ids.append(submitted(cluster, job))
        cluster.wait_for_state(ids[-1], "RUNNING")
    restarts = [int(cluster.squeue_field(job_id, "RestartCnt")) for job_id in ids]
    assert restarts == [outcome.preemptions for outcome in simulated(jobs)] == [0, 0, 1, 1, 0, 0]
    cluster.clean()


@pytest.mark.long
def test_the_user_who_has_used_less_comes_first_as_in_the_model(cluster: RealCluster) -> None:
    much, little = USERS
    jobs = jobs_of(
        *((0.2 * number, NODES * GPUS, 1.0, 24.0) for number in range(3)),
        users=(much, much, little),
    )
    first, same_user, other_user = (submitted(cluster, job) for job in jobs)
    cluster.wait_for_state(first, "RUNNING")

    def other_precedes() -> bool:
        same, other = (cluster.squeue_field(one, "PriorityLong") for one in (same_user, other_user))
        return int(other) > int(same)

    cluster.wait_until(other_precedes, "less use counts", CALCULATED_WITHIN_S)
    cluster.run("scancel", first)
    cluster.wait_for_state(other_user, "RUNNING")
    assert cluster.squeue_field(same_user, "State") == "PENDING"
    _, same, other = simulated(jobs)
    assert other.first_start_s < same.first_start_s
    cluster.clean()
