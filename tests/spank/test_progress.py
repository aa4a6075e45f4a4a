"""The progress of a job, from its program through the node and the controller to the commands."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.testbed.real_controller import RealController
from slurm_tiresias.status.published import PublishedProgress
from tests.spank.channel import open_channel
from tests.spank.plugin import PluginCluster

pytestmark = pytest.mark.slurm

STEP_S = 0.02

TRAIN = f"""
import os, sys, time
from slurm_tiresias import job
total, stop_at = int(sys.argv[1]), int(sys.argv[2])
restarts = int(os.environ.get("SLURM_RESTART_COUNT", 0))
done = 0 if restarts == 0 else int(open("saved").read())
job.resumed(done)
while done < total:
    time.sleep({STEP_S})
    done += 1
    job.report(done, total)
    if done % 50 == 0:
        open("saved", "w").write(str(done))
        job.saved(done)
    while done == stop_at and restarts == 0:
        time.sleep(1)
job.done()
"""


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with the plugin, the service of its nodes and a controller."""

    plugin: PluginCluster
    controller: RealController

    def train(self, total: int, stop_at: int = -1, *options: str) -> str:
        """Submit a job that does 50 steps per second, and stalls at one of them."""
        script = f"cd {self.plugin.work}; env PYTHONPATH={self.plugin.work}/lib "
        script += f"/usr/bin/python3 train.py {total} {stop_at}"
        return self.plugin.submit(script, "--gpus=1", *options)

    def progress(self, job: str) -> PublishedProgress | None:
        shown = self.controller.job(job)
        return shown.progress if shown else None

    def state(self, job: str) -> str:
        shown = self.controller.job(job)
        return shown.state if shown else ""

    def wait_for_step(self, job: str, step: int) -> PublishedProgress:
        def reached() -> bool:
            progress = self.progress(job)
            return progress is not None and progress.step >= step

        self.controller.wait_until(reached, f"job {job} is at step {step}")
        progress = self.progress(job)
        assert progress is not None
        return progress

    def says(self, *arguments: str) -> Any:
        return json.loads(self.controller.cli(*arguments, "--json").stdout)


@pytest.fixture
def site(plugin: PluginCluster, tmp_path: Path) -> Iterator[Site]:
    with open_channel(plugin, tmp_path, TRAIN, policy={"thresholds_gpu_s": [10_000]}) as controller:
        yield Site(plugin, controller)


def test_a_job_is_followed_from_its_first_step_over_a_requeue_to_its_end(site: Site) -> None:
    job = site.train(1000, stop_at=520)
    told = site.wait_for_step(job, 400)
    assert (told.source, told.total, told.lost) == ("reports", 1000, False)
    assert told.saved_step in (told.step // 50 * 50, told.step // 50 * 50 + 50)
    # 1,000 steps at 50 per second, on a machine that is also busy otherwise.
    assert told.remaining_s is not None
    least_s = STEP_S * (1000 - told.step)
    assert 0.5 * least_s < told.remaining_s < 10 * least_s
    # A report within a second of another one is delayed, so the last one is just below 520.
    stands = site.wait_for_step(job, 500)
    assert stands.saved_step == 500
    site.plugin.cluster.run("scontrol", "requeue", job)
    site.controller.wait_until(lambda: site.state(job) == "pending", "it waits again")
    explained = " ".join(site.controller.cli("explain", job).stdout.split())
    assert re.search(r"Its last run reached step 5\d\d of 1,000 \(5\d %\)", explained)
    assert "It last saved after step 500," in explained
    site.plugin.cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now+2")
    again = site.wait_for_step(job, 530)
    assert again.resumed_step == 500
    site.plugin.wait(job)

    def both_runs_are_kept() -> bool:
        runs = site.says("history", job)["runs"]
        steps = [run["progress"] and run["progress"]["step"] for run in runs]
        return len(steps) == 2 and all(steps) and 500 <= steps[0] <= 520 and steps[1] == 1000

    site.controller.wait_until(both_runs_are_kept, "what both runs told last is kept")
    last = site.says("history", job)["runs"][1]["progress"]
    assert (last["state"], last["resumed_step"], last["saved_step"]) == ("done", 500, 1000)
    site.controller.wait_until(
        lambda: list(site.plugin.progress_folder.glob("*.progress")) == [], "its files are removed"
    )


def test_a_dead_channel_and_a_lying_program_change_nothing_else(site: Site) -> None:
    """A job with false reports among others: its own line shows them, and nothing else is
    affected."""
    liar = site.plugin.submit(
        f"cd {site.plugin.work}; export PYTHONPATH={site.plugin.work}/lib; "
        "/usr/bin/python3 -c 'from slurm_tiresias import job; job.report(10**15, 10**15)'; "
        "head -c 600 /dev/urandom > $TIRESIAS_PROGRESS_FILE; sleep 600",
        "--gpus=1",
    )
    honest = site.train(100_000)
    site.wait_for_step(honest, 20)
    # Without the shared folder jobs continue, and cycles use the last known progress.
    shutil.rmtree(site.plugin.progress_folder)
    site.controller.cycles(3)
    assert site.state(liar) == site.state(honest) == "running"
    known = site.progress(honest)
    assert known is not None
    site.wait_for_step(honest, known.step + 50)
