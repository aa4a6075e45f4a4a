"""Jobs that leave their GPUs idle, on a real cluster with a fake NVML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.testbed.patience import wait_until
from scripts.testbed.real_controller import RealController
from slurm_tiresias.core.features.idle_gpus import GPUS_IDLE
from slurm_tiresias.model import PublishedGpuUse
from tests.profiler.compute_node import Node, build_driver
from tests.spank.channel import open_channel
from tests.spank.plugin import PluginCluster

pytestmark = pytest.mark.slurm

AFTER_S = 15.0
NODE_GPUS = 4


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with the plugin, the service of its nodes, a fake NVML and a controller."""

    plugin: PluginCluster
    controller: RealController
    gpu: Node

    def submit(self, name: str, node: str = "") -> str:
        """Submit a job on this many GPUs of a node that prints its process id and runs until it is
        told to end; there is only one tier."""
        script = f"echo $$ > {self.plugin.work}/{name}; "
        script += f"until [ -e {self.plugin.work}/end-{name} ]; do sleep 0.1; done"
        where = [f"--nodelist={node}"] if node else []
        options = ("--nodes=1", f"--gpus-per-node={NODE_GPUS}", "--requeue", *where)
        return self.plugin.submit(script, *options)

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

    def cli(self, *arguments: str) -> str:
        return " ".join(self.controller.cli(*arguments).stdout.split())


@contextmanager
def opened(plugin: PluginCluster, folder: Path) -> Iterator[Site]:
    (folder / "nvml").mkdir()
    gpu = Node(folder / "nvml", build_driver(folder))
    policy: Mapping[str, object] = {"thresholds_gpu_s": [1e6]}
    preemption: Mapping[str, object] = {"min_run_s": 0.5, "budget_share": 0}
    idle: Mapping[str, object] = {"after_s": AFTER_S, "action": "rank-last"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", gpu.driver)
        patch.setenv("FAKE_NVML", str(gpu.gpu))
        with open_channel(
            plugin, folder, "", policy=policy, preemption=preemption, idle_gpus=idle
        ) as controller:
            yield Site(plugin, controller, gpu)


def test_a_job_that_has_long_used_no_gpu_is_preempted_before_a_busy_one_of_its_own_tier(
    plugin: PluginCluster, tmp_path: Path
) -> None:
    with opened(plugin, tmp_path) as site:
        controller = site.controller
        partly = site.submit("partly", "n2")
        site.gpu.computes(site.pid("partly"))
        site.wait_until_busy(partly, 1)
        idle = site.submit("idle", "n1")
        site.wait_until_idle(idle, long=False)
        waiting = site.submit("waiting")
        controller.wait_for_reason(waiting, "no-room")
        use = site.wait_until_idle(idle, long=False)
        assert (use.gpus, use.busy, use.ranks_last) == (NODE_GPUS, 0, False)
        assert controller.events("preempted") == []

        controller.wait_until(
            lambda: (idle, waiting) in controller.events("preempted"), "the idle job is preempted"
        )
        assert [job for job, _ in controller.events(GPUS_IDLE)] == [idle]
        [told] = [event for event in controller.state().events if event.kind == GPUS_IDLE]
        assert use.idle_since_s is not None
        assert told.at_s >= use.idle_since_s + AFTER_S
        site.wait_until_running(waiting)
        assert site.is_running(partly)
        shown = site.use(partly)
        assert shown is not None
        assert (shown.gpus, shown.busy, shown.ranks_last) == (NODE_GPUS, 1, False)
        assert f"1 of its {NODE_GPUS} GPUs are busy now" in site.cli("explain", partly)

        # Its idle time goes on in the next run.
        site.end("waiting")
        site.wait_until_running(idle)
        again = site.wait_until_idle(idle, long=True)
        assert again.idle_since_s is not None
        assert again.idle_since_s < max(run.start_s for run in controller.runs(idle))
        assert "GPU-hours held idle" in site.cli("report", "--since", "now-1hour")
        held = [run.idle_gpu_s for run in controller.runs(idle)]
        assert max(held) > AFTER_S * NODE_GPUS * 0.5
