"""Sweeps: every setting gets its result, even if others fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread

import pytest

from scripts.testbed.patience import PATIENCE_S, wait_until
from slurm_tiresias.config import parse
from slurm_tiresias.simulator import run, sensitivity, sweep
from slurm_tiresias.simulator.engine import Timing
from slurm_tiresias.simulator.sim_cluster import Costs, parse_cluster
from slurm_tiresias.simulator.sweep import Cell, Failed, Measured, Task, measure, run_here
from slurm_tiresias.simulator.workload import TraceJob, Workload, philly_like

ROOT = Path(__file__).parents[2]
SMALL = Cell((600.0,))
DEFAULT = Cell((3600.0,))
THREE = Cell((600.0, 7200.0))
NEVER_DEMOTED = Cell((1e12,))


def task(workload: Workload | None = None, cluster: str = "2x4") -> Task:
    sim_cluster = parse_cluster(cluster, "pooled")
    config = parse({"preemption": {"min_run_s": 0}})
    setup = run.Setup(sim_cluster, config, Costs(sim_cluster, speeds=False, flat_s=30.0), Timing())
    return Task(workload or run.fitting(philly_like(80, 1, 8, 1.2), sim_cluster)[0], setup)


def test_results_equal_single_simulations_in_the_given_order() -> None:
    asked = (THREE, SMALL, DEFAULT, SMALL)
    some = task()
    assert run_here(some, asked, workers=2) == tuple(measure(some, cell) for cell in asked)


def test_a_cell_has_the_figures_of_its_simulation() -> None:
    some = task()
    policy = replace(some.setup.config.policy, thresholds_gpu_s=(600.0,))
    setup = replace(some.setup, config=replace(some.setup.config, policy=policy))
    outcomes = run.simulate(some.workload, "tiresias-l", setup)
    found = measure(some, SMALL)
    assert isinstance(found, Measured)
    assert found.jct_s == tuple(outcome.jct_s for outcome in outcomes)
    assert found.preemptions == sum(outcome.preemptions for outcome in outcomes) > 0
    assert 0 < found.jobs_that_waited < len(outcomes)


def test_progress_counts_the_different_cells() -> None:
    told: list[int] = []
    run_here(task(), (SMALL, DEFAULT, SMALL), told.append, workers=1)
    assert told == [1, 2]


def test_a_failed_cell_has_a_reason_and_does_not_affect_others() -> None:
    nonsense = Cell((3600.0,), policy="magic")
    first, failed, last = run_here(task(), (SMALL, nonsense, DEFAULT), workers=2)
    assert isinstance(first, Measured) and isinstance(last, Measured)
    assert isinstance(failed, Failed) and "magic" in failed.why


def test_a_job_that_can_never_start_fails_the_cell() -> None:
    hopeless = Workload("hopeless", (TraceJob("1", 0.0, 64, 10.0), TraceJob("2", 0.0, 1, 10.0)))
    assert isinstance(measure(task(hopeless), DEFAULT), Failed)


@dataclass(frozen=True, slots=True)
class Deadly(Costs):
    """The first preemption kills the process, as a lack of memory would."""

    def restart_s(self, job: TraceJob) -> float:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0.0


def test_a_killed_worker_fails_only_its_own_cell() -> None:
    some = task()
    sim_cluster = some.setup.cluster
    deadly = replace(
        some, setup=replace(some.setup, costs=Deadly(sim_cluster, speeds=False, flat_s=None))
    )
    killed, survived = run_here(deadly, (SMALL, NEVER_DEMOTED), workers=2)
    assert isinstance(killed, Failed) and "killed" in killed.why
    assert survived == measure(some, NEVER_DEMOTED)


def test_the_sweeps_are_those_of_the_paper() -> None:
    cuts = {
        name: [cell.thresholds_gpu_s for cell in cells]
        for name, cells in sensitivity.SWEEPS.items()
    }
    assert sorted(cuts["thresholds"]) == [(1800,), (3600,), (7200,), (14400,)]
    assert cuts["tiers"] == [(3600,), (3600, 7200), (3600, 7200, 14400)]
    assert [cell.promote_knob for cell in sensitivity.SWEEPS["knob"]] == [0, 8, 4, 2, 1]


def test_settings_are_compared_with_the_first_of_their_policy() -> None:
    cells = sensitivity.cells_of("tiers")
    found = [
        Measured(cell, (float(10 * n), float(30 * n)), 0, n, 0, 0.0)
        for n, cell in enumerate(cells, start=1)
    ]
    rows = sensitivity.compared(found)
    assert [row.average for row in rows] == [1, 2, 3, 1, 5 / 4, 6 / 4]
    assert [row.average_jct_s for row in rows] == [20, 40, 60, 80, 100, 120]
    lost = sensitivity.compared([Failed(cells[0], "lost"), *found[1:]])
    assert [row.largest for row in lost] == [None, None, 1, 5 / 4, 6 / 4]


@pytest.fixture
def long_sweep() -> Iterator[subprocess.Popen[str]]:
    """A sweep of many seconds in its own session."""
    arguments = ["--workload", "philly-like:30000", "--cluster", "64x4", "--sweep", "thresholds"]
    process = subprocess.Popen(
        [sys.executable, "-m", "slurm_tiresias.cli", "tune", *arguments, "--workers", "2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    yield process
    for member in _session(process.pid):
        os.kill(member, signal.SIGKILL)
    process.communicate()


def test_ctrl_c_ends_the_workers_quietly(long_sweep: subprocess.Popen[str]) -> None:
    wait_until(lambda: _spawned(long_sweep.pid) == 2)
    os.killpg(long_sweep.pid, signal.SIGINT)
    output, complaints = long_sweep.communicate(timeout=PATIENCE_S)
    assert (long_sweep.returncode, output, complaints.strip()) == (130, "", "")
    wait_until(lambda: not _session(long_sweep.pid))


def test_ctrl_c_takes_effect_once_all_workers_are_started() -> None:
    done = Event()
    # The kernel delivers a signal that the main thread blocks to a thread that does not.
    Thread(target=done.wait, daemon=True).start()
    heard_at_the_end = False
    with pytest.raises(KeyboardInterrupt), sweep._deaf_to_ctrl_c():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        heard_at_the_end = True
    done.set()
    assert heard_at_the_end
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_workers_do_not_outlive_a_killed_parent(long_sweep: subprocess.Popen[str]) -> None:
    wait_until(lambda: _spawned(long_sweep.pid) == 2)
    long_sweep.kill()
    long_sweep.wait()
    wait_until(lambda: not _session(long_sweep.pid))


def _session(leader: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            _, _, after = (folder / "stat").read_text().rpartition(")")
        except OSError:
            continue
        state, _, _, session, *_ = after.split()
        if session == str(leader) and state != "Z":
            found.append(int(folder.name))
    return found


def _spawned(leader: int) -> int:
    """Return how many workers a sweep has started."""
    return sum("spawn_main" in _command(member) for member in _session(leader))


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode()
    except OSError:
        return ""
