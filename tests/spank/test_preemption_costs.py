"""The cost of preemptions as measured by the controller, compared with the jobs' own journals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.testbed.real_controller import RealController
from slurm_tiresias.store.ledger import Ledger
from slurm_tiresias.store.records import PreemptionCost
from slurm_tiresias.store.terms import newest_ledger
from tests.spank.channel import open_channel
from tests.spank.plugin import PluginCluster

pytestmark = pytest.mark.slurm

STEP_S = 0.1
LOAD_S = 3.0
SAVE_S = 1.5
EVERY = 50
"""Steps between two saves of the jobs that save only by themselves."""

TOLD_WITHIN_STEPS = 30
"""Tolerance: jobs report once per second, and their output is read twice per second, on a busy
machine."""

TRAIN = f"""
import json, os, signal, sys, time
from slurm_tiresias import job

way = sys.argv[1]
name = f"{{os.environ['SLURM_JOB_ID']}}"
run = int(os.environ.get("SLURM_RESTART_COUNT", 0))

def note(what, step):
    with open(f"journal.{{name}}", "a") as journal:
        journal.write(json.dumps([run, what, step, time.time()]) + "\\n")

def load():
    try:
        done = int(open(f"saved.{{name}}").read())
    except FileNotFoundError:
        return 0
    return 0 if way == "nothing" else done

def write(step):
    note("saving", step)
    if way != "prints":  # which cannot tell of it
        time.sleep({SAVE_S})
    with job.writing(f"saved.{{name}}", "w") as file:
        file.write(str(step))
    note("saved", step)

def leave(*_):
    note("left", -1)
    os._exit(1)

signal.signal(signal.SIGTERM, leave)
time.sleep({LOAD_S})
done, total = load(), 100_000
note("began", done)
if way == "asked":
    for step in job.steps(total, write, done=done):
        time.sleep({STEP_S})
        note("step", step + 1)
if way in ("every", "nothing"):
    job.resumed(done)
while True:
    time.sleep({STEP_S})
    done += 1
    note("step", done)
    if way == "prints":
        print(f"step {{done}}/{{total}}", flush=True)
        if done % {EVERY} == 0:
            write(done)
    elif way in ("every", "nothing"):
        job.report(done, total)
        if done % {EVERY} == 0:
            job.saving()
            write(done)
            job.saved(done)
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a job's journal."""

    run: int
    what: str
    step: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with the plugin, the service of its nodes and a controller."""

    plugin: PluginCluster
    controller: RealController

    def train(self, *ways: str) -> Mapping[str, str]:
        """Submit jobs to the first node, by the way in which they save; sbatch options begin with
        --."""
        options = [way for way in ways if way.startswith("--")]
        self.fill_second_node()
        jobs = {}
        for way in ways:
            if way not in options:
                script = f"cd {self.plugin.work}; export PYTHONPATH={self.plugin.work}/lib\n"
                script += f"exec /usr/bin/python3 -u train.py {way}"
                jobs[way] = self.plugin.submit(script, "--gpus=1", f"--job-name={way}", *options)
        return jobs

    def fill_second_node(self) -> None:
        blocker = self.plugin.submit("sleep 600", "--gpus=4", "--nodelist=n2", "--job-name=blocker")
        self.wait_until_running(blocker)

    def wait_until_running(self, job: str) -> None:
        def is_running() -> bool:
            shown = self.controller.job(job)
            return shown is not None and shown.state == "running"

        self.controller.wait_until(is_running, f"job {job} runs")

    def preempt(self) -> None:
        """Preempt all jobs on the first node, so that they resume on the second.

        A job that returns to its node within two minutes may find no file to report into: slurmd
        runs no prolog for it then.
        """
        self.plugin.cluster.run("scancel", "--name=blocker")
        self.plugin.submit("sleep 600", "--gpus=4", "--nodes=1", "--nodelist=n1")

    def journal(self, job: str) -> Sequence[Line]:
        lines = (self.plugin.work / f"journal.{job}").read_text().splitlines()
        return [Line(*json.loads(line)) for line in lines]

    def wait_for_steps(self, job: str, steps: int) -> None:
        def has_done() -> bool:
            path = self.plugin.work / f"journal.{job}"
            return path.exists() and path.read_text().count('"step"') >= steps

        self.controller.wait_until(has_done, f"job {job} has done {steps} steps")

    def history(self, job: str) -> Any:
        return json.loads(self.controller.cli("history", job, "--json").stdout)

    def cost(self, job: str) -> PreemptionCost:
        """Wait until the cost of the one preemption of a job is known, or known to be
        unavailable."""

        def is_known() -> bool:
            with closing(Ledger(newest_ledger(self.controller.state_dir))) as ledger:
                costs = ledger.costs.of(job)
            return bool(costs) and costs[0].source != "awaited"

        what = f"what the preemption of job {job} cost"
        self.controller.wait_until(is_known, what)
        return PreemptionCost(**self.history(job)["runs"][0]["cost"])


@pytest.fixture
def site(plugin: PluginCluster, tmp_path: Path) -> Iterator[Site]:
    plugin.set_up("progress=auto")
    policy = {"thresholds_gpu_s": [4]}
    preemption = {"min_run_s": 1, "budget_share": 0}
    with open_channel(plugin, tmp_path, TRAIN, policy=policy, preemption=preemption) as controller:
        yield Site(plugin, controller)


def about(seconds: float) -> object:
    return pytest.approx(seconds, rel=0.05, abs=1.0)


def check(cost: PreemptionCost, lines: Sequence[Line], runs: Sequence[Mapping[str, Any]]) -> None:
    """Compare the cost of the preemption between the first two runs with the job's journal."""
    before = [line for line in lines if line.run == 0]
    after = [line for line in lines if line.run == 1]
    resumed = next(line.step for line in after if line.what == "began")
    reached_s = next(line.at_s for line in before if line.what != "saved" and line.step == resumed)
    assert cost.save_s is not None and cost.leave_s is not None and cost.again_s is not None
    # Slurm records the end of the run in whole seconds.
    worked_s = pytest.approx(before[-1].at_s - reached_s, rel=0.05, abs=1.5)
    assert cost.save_s + cost.leave_s + cost.again_s == worked_s
    # Slurm's start, which is before that of the program.
    new_step_s = next(line.at_s for line in after if line.what == "step")
    assert cost.restart_s == about(new_step_s - runs[1]["start_s"] - STEP_S)
    assert cost.lost_all == (resumed == 0)
    done = max(line.step for line in before)
    assert cost.steps_again == pytest.approx(done - resumed, abs=TOLD_WITHIN_STEPS)


def test_measured_costs_agree_with_the_journals(site: Site) -> None:
    jobs = site.train("asked", "every", "nothing", "prints")
    for job in jobs.values():
        site.wait_for_steps(job, 270)
    site.preempt()
    costs = {way: site.cost(job) for way, job in jobs.items()}
    sources = {way: cost.source for way, cost in costs.items()}
    assert sources.pop("prints") == "output" and set(sources.values()) == {"reports"}
    for way, cost in costs.items():
        check(cost, site.journal(jobs[way]), site.history(jobs[way])["runs"])
    asked, every = costs["asked"], costs["every"]
    assert asked.answered_s == about(SAVE_S + STEP_S) and asked.save_s == about(SAVE_S)
    assert asked.steps_again == 0 and asked.again_s == 0.0
    assert [costs[way].answered_s for way in ("every", "nothing", "prints")] == [None] * 3
    assert every.save_every_s == about(EVERY * STEP_S + SAVE_S)
    told = site.controller.cli("history", jobs["nothing"]).stdout
    assert "It saved nothing in this run" in " ".join(told.split())
    lost_gpu_s = sum(cost.lost_gpu_s for cost in costs.values())
    report = json.loads(site.controller.cli("report", "--json").stdout)["preemptions"]
    assert report["cost"]["lost_gpu_s"] == pytest.approx(lost_gpu_s)
    assert (report["cost"]["measured"], report["cost"]["saved"]) == (4, 1)
    assert report["by_program"][0]["name"] == "nothing"
