"""Jobs that leave their GPUs idle, on a real cluster with a fake NVML."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.testbed.patience import wait_until
from scripts.testbed.real_controller import RealController
from slurm_tiresias.controller.lifecycles import IDLE_REQUEUED, IDLE_SIGNALLED, IDLE_SPARED
from slurm_tiresias.core.features.idle_gpus import GPUS_IDLE, LATE_AFTER_S
from slurm_tiresias.model import NodeUse, PublishedGpuUse
from slurm_tiresias.profiler.gpu_activity import SUFFIX, text_of
from slurm_tiresias.profiler.gpu_use_folder import FOLDER
from slurm_tiresias.profiler.run_id import RunId
from tests.profiler.compute_node import Node, build_driver
from tests.spank.channel import open_channel
from tests.spank.plugin import NOBODY, PluginCluster

pytestmark = pytest.mark.slurm

AFTER_S = 15.0
LEAVE_AFTER_S = 25.0
GRACE_S = 15.0
"""Longer than it takes until the controller has read a sample: it looks every 5 s."""
NODE_GPUS = 4
CYCLES = 8
"""The number of cycles, two per second, in which the nodes' reports are read."""


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with the plugin, the service of its nodes, a fake NVML and a controller."""

    plugin: PluginCluster
    controller: RealController
    gpu: Node

    def submit(self, name: str, node: str = "", gpus: int = NODE_GPUS) -> str:
        """Submit a job on this many GPUs of a node that prints its process id, notes which of its
        runs gets USR1, and runs until it is told to end; there is only one tier."""
        script = f"echo $$ > {self.plugin.work}/{name}; "
        script += f"trap 'echo ${{SLURM_RESTART_COUNT:-0}} >> {self.plugin.work}/got-{name}' USR1; "
        script += f"until [ -e {self.plugin.work}/end-{name} ]; do sleep 0.1; done"
        where = [f"--nodelist={node}"] if node else []
        options = ("--nodes=1", f"--gpus-per-node={gpus}", "--requeue", *where)
        return self.plugin.submit(script, *options)

    def signalled(self, name: str) -> list[int]:
        """The runs of a job, by restarts, that got USR1."""
        file = self.plugin.work / f"got-{name}"
        return list(map(int, file.read_text().split())) if file.exists() else []

    def end(self, name: str) -> None:
        (self.plugin.work / f"end-{name}").touch()

    def pid(self, name: str) -> int:
        file = self.plugin.work / name
        wait_until(lambda: file.exists() and file.read_text() != "")
        return int(file.read_text())

    def use(self, job: str) -> PublishedGpuUse | None:
        shown = self.controller.job(job)
        return shown.gpu_use if shown else None

    def wait_until_idle(self, job: str, *, long: bool) -> PublishedGpuUse:
        found: list[PublishedGpuUse] = []

        def is_idle() -> bool:
            use = self.use(job)
            if use is None or use.idle_since_s is None or use.idle_long is not long:
                return False
            found.append(use)
            return True

        self.controller.wait_until(is_idle, f"job {job} is idle, long: {long}")
        return found[0]

    def wait_until_busy(self, job: str, gpus: int) -> None:
        def is_busy() -> bool:
            use = self.use(job)
            return use is not None and use.busy == gpus and use.idle_since_s is None

        self.controller.wait_until(is_busy, f"job {job} uses {gpus} GPUs")

    def is_running(self, job: str) -> bool:
        shown = self.controller.job(job)
        return shown is not None and shown.state == "running"

    def wait_until_running(self, job: str) -> None:
        self.controller.wait_until(lambda: self.is_running(job), f"job {job} runs")

    def tells(self, name: str, run_id: RunId, *, at_s: float, uid: int = 0) -> None:
        """Add a file beside those of the nodes, which says that the run has been idle for an
        hour."""
        told = {run_id: NodeUse(at_s, 0, at_s - 3600, 3600.0, 0.0)}
        path = self.plugin.collect_folder / FOLDER / f"{name}{SUFFIX}"
        draft = path.with_suffix(".draft")
        draft.write_bytes(text_of(told, at_s))
        draft.chmod(0o640)
        if os.geteuid() == 0:
            os.chown(draft, uid, -1)
        draft.rename(path)

    def cli(self, *arguments: str) -> str:
        return " ".join(self.controller.cli(*arguments).stdout.split())


@contextmanager
def opened(
    plugin: PluginCluster, folder: Path, action: str, driver: str | None = None
) -> Iterator[Site]:
    (folder / "nvml").mkdir()
    gpu = Node(folder / "nvml", driver or build_driver(folder))
    policy: Mapping[str, object] = {"thresholds_gpu_s": [1e6]}
    preemption: dict[str, object] = {"min_run_s": 0.5, "budget_share": 0}
    idle: dict[str, object] = {"after_s": AFTER_S, "action": action}
    if action == "leave":
        preemption |= {"signal": "USR1", "grace_s": GRACE_S}
        idle["leave_after_s"] = LEAVE_AFTER_S
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", gpu.driver)
        patch.setenv("FAKE_NVML", str(gpu.gpu))
        with open_channel(
            plugin, folder, "", policy=policy, preemption=preemption, idle_gpus=idle
        ) as controller:
            yield Site(plugin, controller, gpu)


@pytest.mark.long
def test_an_idle_job_is_requeued_if_no_job_waits_and_busy_jobs_run_on(
    plugin: PluginCluster, tmp_path: Path
) -> None:
    with opened(plugin, tmp_path, "leave") as site:
        controller = site.controller
        partly, busy = site.submit("partly", "n2"), site.submit("busy", "n1", gpus=1)
        computing = [site.pid("partly"), site.pid("busy")]
        site.gpu.computes(*computing)
        site.wait_until_busy(partly, 1)
        site.wait_until_busy(busy, 1)
        idle = site.submit("idle", "n1", gpus=NODE_GPUS - 1)
        use = site.wait_until_idle(idle, long=True)
        assert use.idle_since_s is not None
        shown = site.cli("explain", idle)
        assert "it is preempted even if no other job waits (idle_gpus.leave_after_s)" in shown
        assert site.signalled("idle") == []

        controller.wait_until(lambda: site.signalled("idle"), "its checkpoint signal arrives")
        [told] = [event for event in controller.state().events if event.kind == IDLE_SIGNALLED]
        assert told.at_s >= use.idle_since_s + LEAVE_AFTER_S
        assert "being preempted" in site.cli("status")
        # A controller that is killed in its grace goes on with it.
        controller.kill()
        controller.start()
        controller.wait_until(lambda: controller.events(IDLE_REQUEUED), "it is requeued")
        site.wait_until_running(idle)
        assert site.signalled("idle") == [0]
        assert controller.events(IDLE_REQUEUED) == [(idle, "")]
        assert controller.events("preempted") == []
        text = site.cli("history", idle)
        assert "to be preempted for its idle GPUs" in text
        assert "requeued for idle GPUs" in text
        assert "so it ranks last, waiting or running" in site.cli("explain", idle)
        assert "jobs were requeued 1 time" in site.cli("report", "--since", "now-1hour")

        # After the next signal it uses a GPU, and is not preempted.
        controller.wait_until(
            lambda: site.signalled("idle") == [0, 1], "its next run gets the signal"
        )
        site.gpu.computes(*computing, site.pid("idle"))
        controller.wait_until(lambda: controller.events(IDLE_SPARED), "it stays")
        site.wait_until_busy(idle, 1)
        controller.wait_until(
            lambda: (job := controller.job(idle)) is not None and not job.idle_requeues,
            "it ranks last no more",
        )
        controller.cycles(2 * round(GRACE_S) + CYCLES)
        assert controller.events(IDLE_REQUEUED) == [(idle, "")]
        assert [plugin.restarts(job) for job in (idle, partly, busy)] == [1, 0, 0]
        assert site.signalled("partly") == site.signalled("busy") == []


def test_forged_late_foreign_and_missing_samples_have_no_effect(
    plugin: PluginCluster, tmp_path: Path
) -> None:
    nowhere = tmp_path / "no-driver"
    nowhere.mkdir()
    with opened(plugin, tmp_path, "leave", driver=str(nowhere)) as site:
        controller = site.controller
        jobs = {node: site.submit(node, node) for node in ("n1", "n2")}
        for job in jobs.values():
            site.wait_until_running(job)
        began_s = time.time()
        one = int(jobs["n1"])
        site.tells("late", RunId(one, 0, "n1"), at_s=began_s - LATE_AFTER_S - 5)
        site.tells("another-run", RunId(one, 1, "n1"), at_s=began_s)
        site.tells("another-node", RunId(one, 0, "n2"), at_s=began_s)
        site.tells("unknown", RunId(one + 1000, 0, "n1"), at_s=began_s)
        if os.geteuid() == 0:
            site.tells("forged", RunId(one, 0, "n1"), at_s=began_s, uid=NOBODY)
        controller.wait_until(
            lambda: controller.state().at_s > began_s + LEAVE_AFTER_S, "longer than it may be idle"
        )
        controller.cycles(CYCLES)
        for job in jobs.values():
            assert site.use(job) is None
            assert site.is_running(job)
        assert controller.events("preempted") == controller.events(GPUS_IDLE) == []
        assert controller.events(IDLE_SIGNALLED) == []
        # The same file written by a node now counts, so the file above was ignored for its owner.
        site.tells("n1", RunId(one, 0, "n1"), at_s=time.time())
        controller.wait_until(
            lambda: (jobs["n1"], "") in controller.events(IDLE_REQUEUED), "it is preempted"
        )
        assert site.is_running(jobs["n2"])
