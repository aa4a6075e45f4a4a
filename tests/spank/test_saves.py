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

SHORT_GRACE_S, LONG_GRACE_S = 20.0, 4 * PATIENCE_S
"""No test waits until a long grace is over."""
INTERVAL_S = 3.0
SAVE_S = 1.0
STEP_S = 0.05

TRAIN = f"""
import sys, time
from pathlib import Path
from slurm_tiresias import job
saved = Path("saved")
hangs = "hangs" in sys.argv
def save(step):
    Path("saves-now").touch()
    time.sleep({SAVE_S} if not hangs else 3600)
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

    def train(self, *arguments: str, before: str = "") -> str:
        """Submit a job on all GPUs that uses the library, under a shell that does not."""
        library = f"env PYTHONPATH={self.plugin.work}/lib"
        script = f"{before} cd {self.plugin.work}; {library} /usr/bin/python3 train.py "
        script += " ".join(arguments)
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
SIGNAL: Mapping[str, object] = {"signal": "USR1", "grace_s": LONG_GRACE_S, "min_run_s": 1}


@contextmanager
def opened(
    plugin: PluginCluster,
    folder: Path,
    preemption: Mapping[str, object],
    save_grace_s: float = LONG_GRACE_S,
) -> Iterator[Site]:
    settings: dict[str, Mapping[str, object]] = {
        "policy": {"thresholds_gpu_s": [16], "estimates": []},
        "preemption": preemption,
        "controller": {"interval_s": INTERVAL_S},
        "constants": {"SAVE_GRACE_S": save_grace_s},
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


def test_a_victim_whose_save_hangs_gets_no_more_than_the_grace(
    plugin: PluginCluster, tmp_path: Path
) -> None:
    with opened(plugin, tmp_path, NO_SIGNAL, SHORT_GRACE_S) as site:
        job = site.train("hangs")
        began_s = time.time()
        requeued_s = site.preempt(job)
        assert requeued_s - began_s >= SHORT_GRACE_S
        assert not site.saves()


def test_a_victim_that_saves_at_the_sites_signal_ends_its_grace(
    plugin: PluginCluster, tmp_path: Path
) -> None:
    with opened(plugin, tmp_path, SIGNAL) as site:
        job = site.train(before="trap '' USR1;")
        requeued_s = site.preempt(job)
        (_, saved_s), *_ = site.saves()
        print(f"requeued {requeued_s - saved_s:.2f} s after the save, of {LONG_GRACE_S:g} s")


@pytest.mark.parametrize("at", ["saves-now", "saves"], ids=["as it saves", "as it has saved"])
def test_a_controller_that_is_killed_requeues_the_victim_once(site: Site, at: str) -> None:
    job = site.train()
    preemptor = site.plugin.submit("sleep 2", ALL_GPUS)
    site.controller.wait_until((site.plugin.work / at).exists, "the victim saves")
    site.controller.kill()
    site.controller.start()

    def is_back() -> bool:
        shown = site.controller.job(job)
        return shown is not None and shown.restarts > 0 and shown.state == "running"

    site.controller.wait_until(is_back, "the victim runs again")
    assert site.plugin.restarts(job) == 1
    assert site.controller.events("preempted") == [(job, preemptor)]
