"""Shadow mode on a real cluster: only what Slurm does is shown as fact."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import RealController

pytestmark = pytest.mark.slurm

EVERYTHING = ("--nodes=4", "--gpus-per-node=4", "--mem=100")
FEW = ("--gres=gpu:2", "--mem=100")


@pytest.fixture
def controller(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    """A controller in shadow mode that has not been started."""
    made = RealController(clean_cluster, tmp_path, {"controller": {"mode": "shadow"}})
    yield made
    if made.process:
        made.stop()


def said_of(controller: RealController, command: str, job: str) -> str:
    """Return a command's output about a job as one line."""
    ended = controller.cli(command, job)
    assert ended.returncode == 0, ended.stderr
    return " ".join(ended.stdout.split())


def test_in_shadow_mode_all_views_show_slurms_actions_and_the_controllers(
    clean_cluster: RealCluster, controller: RealController
) -> None:
    controller.start()
    ended = clean_cluster.sbatch(*FEW, script="true")
    clean_cluster.wait_for_state(ended, "COMPLETED")
    holds = clean_cluster.sbatch(*EVERYTHING)
    clean_cluster.wait_for_state(holds, "RUNNING")
    waits = clean_cluster.sbatch(*FEW)
    depends = clean_cluster.sbatch(*FEW, f"--dependency=afterok:{holds}")
    later = clean_cluster.sbatch(*FEW, "--begin=now+1hour")
    clean_cluster.wait_until(
        lambda: clean_cluster.squeue_field(waits, "Reason") in ("Resources", "Priority"),
        "Slurm has looked at the waiting job",
    )
    controller.wait_until(lambda: (holds, waits) in controller.events("would"), "it would preempt")
    controller.wait_for_reason(waits, "starts-preempting")
    controller.wait_until(
        lambda: (job := controller.job(waits)) is not None and job.slurm_reason != "None",
        "the controller has seen why Slurm makes it wait",
    )

    rows = controller.cli("status", "-n", "-o", "jobid,st,reason").stdout.splitlines()
    told = {job: (state, reason.strip()) for job, state, reason in (r.split(None, 2) for r in rows)}
    assert told[holds] == ("R", f"running; would be preempted for {waits}")
    slurms = clean_cluster.squeue_field(waits, "Reason")
    assert told[waits] == ("PD", f"{slurms}; would start now; would preempt {holds}")
    assert told[depends] == ("PD", "Slurm waits: Dependency")

    explained = said_of(controller, "explain", waits)
    assert f"What Slurm does It waits: {slurms} (" in explained
    assert f"It would preempt job {holds} of" in explained
    assert re.search(
        r"What Slurm does It runs on \S+, since", said_of(controller, "explain", holds)
    )
    assert f"depends on afterok:{holds}(" in said_of(controller, "explain", depends)
    waits_until = controller.job(later)
    assert waits_until is not None and waits_until.begins_s is not None
    assert f"Job {ended} has ended," in said_of(controller, "explain", ended)
    assert f"would have been preempted for job {waits} (in shadow mode)" in said_of(
        controller, "history", holds
    )
    assert not re.search(r"[Ii]t starts|is being|can be preempted", explained)
    assert clean_cluster.squeue_field(holds, "State") == "RUNNING"

    report = json.loads(controller.cli("shadow", "report", "--json").stdout)
    assert [job["job_id"] for job in report["disturbed"]] == [holds]
    assert report["since_s"] < next(e.at_s for e in controller.state().events if e.kind == "would")
