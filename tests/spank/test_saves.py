"""Victims that save on request, and are requeued as soon as they have, on a real cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.testbed.patience import PATIENCE_S
from scripts.testbed.real_controller import RealController
from tests.spank.channel import open_channel
from tests.spank.plugin import PluginCluster

pytestmark = pytest.mark.slurm

ALL_GPUS = "--gpus=8"
"""All GPUs of the two nodes of the plugin's cluster."""

LONG_GRACE_S = 4 * PATIENCE_S
"""No test waits until it is over."""
INTERVAL_S = 3.0
SAVE_S = 1.0
STEP_S = 0.05

TRAIN = f"""
import sys, time
from pathlib import Path
from slurm_tiresias import job
saved = Path("saved")
def save(step):
    time.sleep({SAVE_S})
    saved.write_text(str(step))
    with open("saves", "a") as log:
        print(step, time.time(), file=log)
done = int(saved.read_text()) if saved.exists() else 0
print("goes on from", done, flush=True)
for step in job.steps(100_000, save, done):
    time.sleep({STEP_S})
"""


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with the plugin and a controller that sends no checkpoint signal by itself."""

    plugin: PluginCluster
    controller: RealController

    def train(self, before: str = "") -> str:
        """Submit a job on all GPUs that uses the library, under a shell that does not."""
        library = f"env PYTHONPATH={self.plugin.work}/lib"
        script = f"{before} cd {self.plugin.work}; {library} /usr/bin/python3 train.py"
        job = self.plugin.submit(f"{script}\necho ended with $?", ALL_GPUS, "--open-mode=append")

        def listens() -> bool:
            shown = self.controller.job(job)
            return shown is not None and bool(shown.progress and shown.progress.step > 20)

        self.controller.wait_until(listens, f"job {job} reports")
        self.controller.wait_for_tier(job, 1)
        return job

    def saves(self) -> list[tuple[int, float]]:
        log = self.plugin.work / "saves"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(int(step), float(at_s)) for step, at_s in (line.split() for line in lines)]

    def output(self, job: str) -> str:
        return (self.plugin.work / f"{job}.out").read_text()

    def preempt(self, victim: str) -> float:
        """Submit a job that needs all GPUs; return when its victim was requeued, from the log."""
        before = self.plugin.restarts(victim)
        self.plugin.submit("sleep 2", ALL_GPUS)
        self.controller.wait_until(
            lambda: self.plugin.restarts(victim) > before, f"job {victim} has been requeued"
        )
        return time.time()


NO_SIGNAL: Mapping[str, object] = {"min_run_s": 1}
SIGNAL: Mapping[str, object] = {"checkpoint": f"USR1@{LONG_GRACE_S:g}", "min_run_s": 1}


@contextmanager
def opened(plugin: PluginCluster, folder: Path, preemption: Mapping[str, object]) -> Iterator[Site]:
    settings: dict[str, Mapping[str, object]] = {
        "policy": {"thresholds_gpu_s": [16], "estimates": []},
        "preemption": preemption,
        "controller": {"interval_s": INTERVAL_S},
        "constants": {"SAVE_GRACE_S": LONG_GRACE_S},
    }
    with open_channel(plugin, folder, TRAIN, 10.0, **settings) as controller:
        yield Site(plugin, controller)


@pytest.fixture
def site(plugin: PluginCluster, tmp_path: Path) -> Iterator[Site]:
    with opened(plugin, tmp_path, NO_SIGNAL) as one:
        yield one


def test_a_victim_is_requeued_as_soon_as_it_has_saved_on_request(site: Site) -> None:
    job = site.train()
    requeued_s = site.preempt(job)
    (step, saved_s), *_ = site.saves()
    print(f"requeued {requeued_s - saved_s:.2f} s after the save, of {LONG_GRACE_S:g} s")
    site.controller.wait_until(
        lambda: f"goes on from {site.saves()[-1][0]}" in site.output(job), "it goes on"
    )
    assert site.saves()[-1][0] >= step
    # The shell of the job's script, which does not handle the signal, has survived it.
    assert "ended with" not in site.output(job)


def test_a_save_at_the_sites_signal_ends_the_grace(plugin: PluginCluster, tmp_path: Path) -> None:
    with opened(plugin, tmp_path, SIGNAL) as site:
        job = site.train(before="trap '' USR1;")
        requeued_s = site.preempt(job)
        (_, saved_s), *_ = site.saves()
        print(f"requeued {requeued_s - saved_s:.2f} s after the save, of {LONG_GRACE_S:g} s")
