"""The clock of the controller's host is set by an hour, in either direction."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from slurm_tiresias.atomic_write import write_atomically

pytestmark = pytest.mark.slurm

WHOLE_NODE = ("--gres=gpu:4", "--mem=100")
HOUR_S = 3600
SLURMS_OWN_DELAY_S = 121


@dataclass(frozen=True)
class Clock:
    """The clock of one controller and of all commands that it starts."""

    library: Path
    file: Path

    def set_by(self, seconds: int) -> None:
        """Set it ahead of the real clock by this much; behind if negative."""
        write_atomically(self.file, b"%d\n" % seconds, 0o644)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "CLOCK_OFFSET_FILE": str(self.file)}


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    """A clock that is still right."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler on this machine")
    made = Clock(tmp_path / "clock.so", tmp_path / "offset")
    source = str(Path(__file__).with_name("clock.c"))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(made.library), source], check=True)
    made.set_by(0)
    return made


def restarts(cluster: RealCluster, jobs: list[str]) -> list[int]:
    return [int(cluster.squeue_field(job, "RestartCnt")) for job in jobs]


def off_by_s(controller: RealController, gpus: int) -> float:
    """Return the largest error of any running job's attained service by the real clock, in seconds
    on all its GPUs."""
    state = controller.state()
    assert abs(time.time() - state.at_s) < 60
    return max(
        abs(job.attained_gpu_s / gpus - (state.at_s - job.running_since_s))
        for job in state.jobs
        if job.running_since_s is not None and job.restarts == 0
    )


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])
def test_a_clock_step_of_an_hour_counts_neither_as_service_nor_as_waiting(
    clean_cluster: RealCluster, controller: RealController, clock: Clock, step_s: int
) -> None:
    controller.settings = {
        # Any job credited with the hour would drop into the third tier.
        "policy": {"thresholds_gpu_s": [8, 2000], "promote_knob": 0.1},
        "preemption": {"min_run_s": 1},
    }
    controller.extra_environment = clock.environment
    controller.start()
    wall = [clean_cluster.sbatch(*WHOLE_NODE) for _ in range(4)]
    for job in wall:
        controller.wait_for_tier(job, 1)
    waiting = clean_cluster.sbatch(*WHOLE_NODE)
    clean_cluster.wait_for_state(waiting, "RUNNING")
    wall.append(waiting)
    controller.wait_for_tier(waiting, 1)
    before = restarts(clean_cluster, wall)
    assert sum(before) == 1
    for at_s in (step_s, 0):
        clock.set_by(at_s)
        controller.cycles(5)
        assert restarts(clean_cluster, wall) == before
        assert {job.tier for job in controller.state().jobs} == {1}
        assert off_by_s(controller, 4) < 3
        assert controller.events("promoted") == controller.events("backed-off") == []
    # A job is preempted for another while the clock is wrong, and can resume.
    clock.set_by(step_s)
    urgent = clean_cluster.sbatch(*WHOLE_NODE, script="sleep 2")
    clean_cluster.wait_for_state(urgent, "COMPLETED")
    controller.wait_until(lambda: len(controller.events("preempted")) == 2, "it is recorded")
    victim = controller.events("preempted")[1][0]
    controller.cycles(2)
    if clean_cluster.squeue_field(victim, "State") == "PENDING":
        eligible = clean_cluster.run("squeue", "-h", "-j", victim, "-O", "EligibleTime").strip()
        eligible_s = time.mktime(time.strptime(eligible, "%Y-%m-%dT%H:%M:%S"))
        assert -60 < eligible_s - time.time() <= SLURMS_OWN_DELAY_S
    clock.set_by(0)
    told = clean_cluster.driver().runs(wall, 0)
    controller.wait_until(
        lambda: all(i.confirmed or not i.end_s for job in wall for i in controller.runs(job)),
        "accounting has told",
        # With a clock that is behind, sacct finds nothing, and is asked later and later.
        timeout_s=3 * PATIENCE_S,
    )
    ended = [(row.key, row.start_s, row.elapsed_s, row.gpus) for row in told if row.end_s]
    kept = [i for job in wall for i in controller.runs(job) if i.end_s]
    assert sorted(ended) == sorted((i.key, i.start_s, i.elapsed_s, i.gpus) for i in kept)
    controller.cycles(2)
    log = controller.stop()
    way = "ahead of" if step_s > 0 else "behind"
    assert f"3600 s {way} slurmctld's" in log
    assert log.count("slurmctld's") == 4
