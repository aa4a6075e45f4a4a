"""A job's history as shown to its user, compared with Slurm's accounting, on a real cluster."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.testbed.real_cluster import RealCluster
from scripts.testbed.real_controller import QUICK, RealController
from slurm_tiresias.text import duration

pytestmark = pytest.mark.slurm

ME = pwd.getpwuid(os.geteuid()).pw_name
NOBODY = "nobody" if os.geteuid() == 0 else ME
BY_NOBODY = ("setpriv", "--reuid=nobody", "--clear-groups") if os.geteuid() == 0 else ()
"""Only root can submit a job as another user, who then cancels it."""

WHOLE_NODE = ("-N1", "--gres=gpu:4", "--mem=100")


@pytest.fixture
def controller(clean_cluster: RealCluster, tmp_path: Path) -> Iterator[RealController]:
    started = RealController(clean_cluster, tmp_path, QUICK)
    yield started.start()
    if started.process is not None:
        started.kill()


@dataclass(frozen=True)
class Row:
    """The last row of a job in accounting, as ``sacct -D`` prints it."""

    state: str
    exit_code: str
    canceller: str
    submit_s: int
    end_s: int
    rows: int


def test_history_shows_ends_exit_codes_and_cancellers_as_in_accounting(
    controller: RealController,
) -> None:
    cluster = controller.cluster
    one_gpu = ("--gres=gpu:1", "--mem=100")
    at_once = cluster.sbatch(*one_gpu, script="exit 3")
    killed = cluster.sbatch(*one_gpu, script="kill -9 $$")
    completed = cluster.sbatch(*one_gpu, script="true")
    never_ran = cluster.sbatch(*one_gpu, "--begin=now+1hour")
    submit = (*BY_NOBODY, "sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp")
    cancelled = cluster.run(*submit, *one_gpu, "--wrap=sleep 600").strip()
    requeued = cluster.sbatch(*one_gpu)
    for job in (cancelled, requeued):
        cluster.wait_for_state(job, "RUNNING")
    controller.wait_until(
        lambda: controller.runs(cancelled) and controller.runs(requeued),
        "both are seen to run",
    )
    cluster.run(*BY_NOBODY, "scancel", cancelled)
    cluster.run("scontrol", "requeue", requeued)
    cluster.wait_for_state(requeued, "PENDING")
    cluster.run("scancel", requeued, never_ran)
    for job in (cancelled, requeued, never_ran):
        cluster.wait_for_state(job, "CANCELLED")
    wall = [cluster.sbatch(*WHOLE_NODE) for _ in range(4)]
    for job in wall:
        controller.wait_for_tier(job, 1)
    short = cluster.sbatch(*one_gpu)
    controller.wait_until(lambda: controller.events("preempted"), "the preemption is recorded")
    preempted, by = controller.events("preempted")[0]
    assert by == short
    cluster.run("scancel", preempted, short)
    ends = {
        at_once: "failed with exit code 3",
        killed: "failed by signal 9",
        completed: "completed",
        never_ran: f"cancelled by {ME} while it waited",
        cancelled: f"cancelled by {NOBODY}",
        requeued: f"cancelled by {ME} while it waited",
        preempted: f"cancelled by {ME} while it waited",
    }
    rows = wait_for_rows(cluster, ends)
    ran: dict[str, list[str]] = {}
    for job, end in ends.items():
        row = rows[job]
        life = ended_life(controller, job, row)
        told_end, runs = life["end"], life["runs"]
        assert told_end["told"] == end
        assert (told_end["state"], told_end["exit_code"]) == (row.state, row.exit_code)
        assert told_end["cancelled_by"] == row.canceller
        assert (life["submitted_s"], life["ended_s"]) == (row.submit_s, row.end_s)
        assert not [event for event in life["events"] if event["kind"] == "failed"]
        ran[job] = [run["ended"] for run in runs]
    assert ran[requeued] == ["requeued"]
    assert ran[preempted] == [f"preempted by {short}"]
    assert ran[never_ran] == []
    assert (ran[at_once], ran[killed]) == ([ends[at_once]], [ends[killed]])
    (run,) = ended_life(controller, preempted, rows[preempted])["runs"]
    waited_s = rows[preempted].end_s - rows[preempted].submit_s - run["ran_s"]
    assert f"waited {duration(waited_s)} in all" in told(controller, preempted)


def wait_for_rows(cluster: RealCluster, jobs: Collection[str]) -> Mapping[str, Row]:
    """Return accounting's rows of these jobs once it has all their ends."""

    def rows() -> Mapping[str, Row] | None:
        found = cluster.sacct_rows(jobs, "state,exitcode,submit,end")
        over = all(values[-1].isdigit() for each in found.values() for values in each)
        # After a requeue, the row of the next run may be late.
        over = over and all(each[-1][0] != "REQUEUED" for each in found.values())
        return {job: last(each) for job, each in found.items()} if over else None

    found = cluster.wait_until(rows, "accounting has all ends")
    assert found is not None and found.keys() == set(jobs)
    return found


def last(rows: list[list[str]]) -> Row:
    state, _, uid = rows[-1][0].partition(" by ")
    return Row(
        state=state,
        exit_code=rows[-1][1],
        canceller=pwd.getpwuid(int(uid)).pw_name if uid else "",
        submit_s=min(int(submit) for _, _, submit, _ in rows),
        end_s=int(rows[-1][3]),
        rows=len(rows),
    )


def ended_life(controller: RealController, job: str, row: Row) -> dict[str, Any]:
    """Return the history of a job once the controller has all data of accounting."""
    life: dict[str, Any] = {}

    def is_known() -> bool:
        answer = controller.cli("history", job, "--json")
        life.update(json.loads(answer.stdout) if answer.returncode == 0 else {})
        ran = row.rows - life.get("end", {}).get("while_waiting", False) if life.get("end") else -1
        return bool(life) and len(life["runs"]) == ran

    controller.wait_until(is_known, f"the end of {job} is known")
    return life


def told(controller: RealController, job: str) -> str:
    answer = controller.cli("history", job)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout
