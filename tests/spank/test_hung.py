"""Jobs that hang, on a real cluster: found by their reports or their output, and what is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.testbed import constants
from scripts.testbed.real_controller import RealController
from slurm_tiresias.status.published import PublishedJob
from tests.spank.channel import open_channel
from tests.spank.plugin import PluginCluster

pytestmark = pytest.mark.slurm

QUICK: Mapping[str, object] = {
    "LEAST_QUIET_S": 3.0,
    "LEAST_S": 2.0,
    "NEW_S": 5.0,
    "NEW_OUTPUT_S": 8.0,
    "SIGN_OF_LIFE_S": 1.0,
    "LOOK_EVERY_S": 0.5,
}

TRAIN = """
import os, queue, signal, sys, threading, time

kind, source = sys.argv[1:3]
rank = int(os.environ["RANK"])
runs_well = int(os.environ.get("SLURM_RESTART_COUNT", 0)) > 0
if source == "reports":
    from slurm_tiresias import job

loaded, go_on = queue.Queue(), threading.Event()
names = ["fifo-%s-%d" % (os.environ["SLURM_JOB_ID"], one) for one in range(2)]
to_other, from_other = names[rank], names[1 - rank]
if rank == 0:
    out, back = os.open(to_other, os.O_WRONLY), os.open(from_other, os.O_RDONLY)
else:
    back, out = os.open(from_other, os.O_RDONLY), os.open(to_other, os.O_WRONLY)

def load():
    for number in range(2000):
        if number == 80 and hangs("thread") and rank == 0:
            wait_until_told(number)
        loaded.put(number)

def wait_until_told(number):
    while not os.path.exists("go-on"):
        time.sleep(0.2)

def hangs(how):
    return kind == how and not runs_well

def all_reduce(step):
    if step == 80 and hangs("stop") and rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if not (step >= 80 and hangs("deadlock")):
        os.write(out, b"x")
    return os.read(back, 1)

threading.Thread(target=load, daemon=True).start()
for step in range(1, 2000 if not runs_well else 100):
    loaded.get()
    time.sleep(0.1)
    all_reduce(step)
    if source == "reports":
        job.report(step, 2000)
    elif rank == 0:
        print("step %d/2000" % step, flush=True)
"""

RANKS = """
mkfifo fifo-$SLURM_JOB_ID-0 fifo-$SLURM_JOB_ID-1 2>/dev/null
export PYTHONPATH=lib WORLD_SIZE=2
for rank in 0 1; do
    export RANK=$rank LOCAL_RANK=$rank
    /usr/bin/python3 train.py {kind} {source} 2>> $SLURM_JOB_ID.$rank.err &
done
wait
"""


@dataclass(frozen=True, slots=True)
class Site:
    plugin: PluginCluster
    controller: RealController

    def submit(self, kind: str, source: str) -> str:
        """Submit a job of two processes that hangs at step 80 of its first run."""
        script = f"cd {self.plugin.work}\n{RANKS.format(kind=kind, source=source)}"
        auto = ("--tiresias-progress=auto",) if source == "output" else ()
        return self.plugin.submit(script, "--gpus=1", "--requeue", "--open-mode=append", *auto)

    def found(self, job: str) -> PublishedJob:
        """Wait until the job is found to hang."""
        self.controller.wait_until(lambda: self.is_found(job), f"{job} is found to hang")
        shown = self.controller.job(job)
        assert shown is not None
        return shown

    def is_found(self, job: str) -> bool:
        shown = self.controller.job(job)
        return shown is not None and shown.hung is not None

    def output(self, job: str) -> str:
        """Return what the job printed; the stacks of two processes in one file would mix."""
        files = sorted(self.plugin.work.glob(f"{job}.*"))
        return "".join(file.read_text() for file in files)


@contextmanager
def opened(plugin: PluginCluster, folder: Path, action: str) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in constants.in_environment(QUICK).items():
            patch.setenv(name, value)  # also for the service of the nodes
        failures: Mapping[str, object] = {"hung": action}
        with open_channel(plugin, folder, TRAIN, failures=failures, constants=QUICK) as controller:
            yield Site(plugin, controller)


def test_a_hung_job_is_shown_until_it_makes_a_step(plugin: PluginCluster, tmp_path: Path) -> None:
    with opened(plugin, tmp_path, "flag") as site:
        job = site.submit("thread", "output")
        assert site.found(job).alarm.startswith("hung since")
        told = " ".join(site.controller.cli("explain", job).stdout.split())
        assert "It hangs, it seems: no step since step" in told
        assert [key for key, _ in site.controller.events("hung")] == [job]
        (plugin.work / "go-on").touch()
        site.controller.wait_until(
            lambda: site.controller.events("hung-false"), "the verdict is withdrawn"
        )
        assert not site.is_found(job)
        assert plugin.restarts(job) == 0


def test_the_processes_of_a_hung_job_print_stacks(plugin: PluginCluster, tmp_path: Path) -> None:
    with opened(plugin, tmp_path, "signal") as site:
        job = site.submit("deadlock", "reports")
        site.found(job)
        site.controller.wait_until(
            lambda: site.output(job).count("in <module>") >= 2, "the stacks are printed"
        )
        assert "in all_reduce" in site.output(job)
        assert site.controller.events("hung-dumped") == [(job, "")]
        assert plugin.restarts(job) == 0


def test_a_hung_job_is_requeued_and_runs_well(plugin: PluginCluster, tmp_path: Path) -> None:
    with opened(plugin, tmp_path, "requeue") as site:
        job = site.submit("stop", "reports")
        site.controller.wait_until(
            lambda: site.controller.events("hung-requeued") == [(job, "")], "it is requeued"
        )
        ended = plugin.wait(job)
        assert ended.status == "0:0"
        assert plugin.restarts(job) == 1
        assert site.controller.events("hung-false") == []
        history = site.controller.cli("history", job).stdout
        assert "requeued, hung" in history
