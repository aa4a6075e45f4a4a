"""Two controllers on one state directory, with a log of all their writes."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController
from scripts.testbed.slurm_commands import Commands
from slurm_tiresias.errors import NotRunningError
from slurm_tiresias.status.published import PublishedState

INTERVAL_S = 2.0
TAKES_OVER_WITHIN_S = 2 * INTERVAL_S
"""On an otherwise idle machine; tests/controller/test_lease.py proves it with a fake clock."""
ONE_GPU = ("--gres=gpu:1", "--mem=100")
WHOLE_NODE = ("--gres=gpu:4", "--mem=100")


class Pair:
    """Two controllers that share a state directory, with a log of all their writes."""

    def __init__(self, cluster: RealCluster, folder: Path, *hosts: str) -> None:
        self.cluster = cluster
        self.commands = Commands(folder / "bin")
        self.controllers = {host: self._made(host, folder) for host in hosts}

    def _made(self, host: str, folder: Path) -> RealController:
        (folder / host).mkdir()
        settings: dict[str, dict[str, object]] = {
            "controller": {"interval_s": INTERVAL_S, "standby": True},
            "constants": {"HOST": host},
            "policy": {"thresholds_gpu_s": [8]},
            "preemption": {"min_run_s": 1},
        }
        return RealController(
            self.cluster,
            folder / host,
            settings,
            shared_dir=folder / "shared",
            extra_environment=self.commands.environment,
        )

    def start(self, host: str) -> None:
        controller = self.controllers[host]
        controller.write_config()
        controller.process = controller.spawn()

    def pid(self, host: str) -> int:
        process = self.controllers[host].process
        assert process is not None
        return process.pid

    def state(self) -> PublishedState:
        return next(iter(self.controllers.values())).state()

    def wait_until_acts(self, host: str) -> float:
        """Wait until this host's controller has run a cycle as the active one; return the time."""
        began_s = time.monotonic()

        def acts() -> bool:
            try:
                return self.state().pid == self.pid(host) and self.state().cycle > 0
            except NotRunningError:
                return False

        self.cluster.wait_until(acts, f"{host} acts")
        return time.monotonic() - began_s

    def wait_for_standby(self, host: str) -> None:
        self.cluster.wait_until(
            lambda: self.pid(host) in {standby.pid for standby in self.state().standbys},
            f"{host} stands by",
        )

    def acting(self) -> str:
        """The host of the active controller."""
        pid = self.state().pid
        return next(host for host in self.controllers if self.pid(host) == pid)

    def signal(self, host: str, number: signal.Signals) -> None:
        os.kill(self.pid(host), number)

    def spans(self) -> list[tuple[int, float, float]]:
        """Return pid, first and last write of each period in which one controller wrote."""
        found: list[tuple[int, float, float]] = []
        for write in self.commands.writes():
            if found and found[-1][0] == write.pid:
                found[-1] = (write.pid, found[-1][1], write.at_s)
            else:
                found.append((write.pid, write.at_s, write.at_s))
        return found

    def kill(self) -> None:
        for controller in self.controllers.values():
            if controller.process is not None:
                controller.process.send_signal(signal.SIGCONT)
                controller.kill()


def work(cluster: RealCluster, long: int = 4, short: int = 8) -> list[str]:
    """Submit long jobs that fill the cluster, and short ones that must preempt them."""
    wall = [cluster.sbatch(*WHOLE_NODE, script="sleep 12") for _ in range(long)]
    return wall + [cluster.sbatch(*ONE_GPU, script="sleep 2") for _ in range(short)]


def wait_until_completed(cluster: RealCluster, jobs: list[str]) -> None:
    for job in jobs:
        cluster.wait_for_state(job, "COMPLETED")


def check_requeues(cluster: RealCluster, pair: Pair, jobs: list[str]) -> None:
    """Check that each restart is one preemption that the active controller knows, and that no node
    list is left."""
    restarts = {job: int(cluster.squeue_field(job, "RestartCnt")) for job in jobs}
    events = pair.state().events
    assert [event for event in events if event.kind == "requeued"] == []
    meant = Counter(event.job_id for event in events if event.kind == "preempted")
    assert meant == {job: count for job, count in restarts.items() if count}
    ran = [job for job, count in restarts.items() if count]
    assert all(cluster.squeue_field(job, "ReqNodes") == "" for job in ran)


FAULTS = ("killed", "stopped", "stopped and continued", "stopped while it writes")


def harm_at_random(pair: Pair, chance: random.Random) -> tuple[str, float | None]:
    """Inject a random fault into the active controller; return it and the time of the failover.

    The time is None if the lease was not lost, because the controller was stopped only briefly.
    Afterwards both controllers run again, one of them active.
    """
    active = pair.acting()
    (other,) = set(pair.controllers) - {active}
    pair.wait_for_standby(other)
    fault = chance.choice(FAULTS)
    if fault == "killed":
        pair.controllers[active].kill()
        took_s = pair.wait_until_acts(other)
        pair.start(active)
        return fault, took_s
    if fault == "stopped while it writes":
        stopped = pair.commands.stop_at_next_write()
        pair.cluster.sbatch(*ONE_GPU, script="sleep 1")
        pair.cluster.wait_until(lambda: not stopped.exists(), "it is stopped")
    else:
        pair.signal(active, signal.SIGSTOP)
    if fault == "stopped and continued":
        time.sleep(chance.uniform(0.1, 0.6))
        pair.signal(active, signal.SIGCONT)
        pair.wait_until_acts(active)
        return fault, None
    took_s = pair.wait_until_acts(other)
    time.sleep(chance.uniform(0, 1))
    pair.signal(active, signal.SIGCONT)
    pair.wait_for_standby(active)
    return fault, took_s
