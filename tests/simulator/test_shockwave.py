"""The comparison with Shockwave's published fairness, on a clone with an invented trace."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from scripts.tools.bench import record, shockwave
from slurm_tiresias.settings import Config
from tests.simulator.clones import bare_clone

LINE = "LM\tpython3 main.py\tmodel\t--steps\t1\t5\t{}\tgns\t1\t-1.000000\t77\t{}\n"
JOBS = 64
"""Two jobs per GPU."""


class JobIdPair:
    """Named like the class in the published pickles, which is not read."""


def results(makespan_s: float = 900.0) -> dict[str, object]:
    """Every job took 500 s, which is 2.5 times as long as on half a GPU."""
    return {
        "jct_list": [np.float64(500.0)] * JOBS,
        "finish_time_fairness_list": [2.5] * JOBS,
        "makespan": makespan_s,
        "job_run_time": OrderedDict([(JobIdPair(), {1})]),
    }


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    trace = "".join(LINE.format(1, 0) for _ in range(JOBS))
    paths = [path.format(name) for name in shockwave.SCHEDULERS for path in PATHS]
    files = {path: pickle.dumps(results()) for path in paths}
    return bare_clone(tmp_path, files | {shockwave.TRACE: trace.encode()})


PATHS = (shockwave.SIMULATION, shockwave.TESTBED)


def test_running_times_alone_follow_from_completion_times_and_fairness(clone: Path) -> None:
    jobs = shockwave.workload(clone).jobs
    assert [(job.gpus, job.submitted_s, job.duration_s) for job in jobs] == [(1, 0, 100)] * JOBS


def test_the_fairness_of_a_simulation_is_the_published_measure(clone: Path) -> None:
    found = shockwave.simulated(shockwave.workload(clone), "best-effort", Config())
    assert sorted(found.jct_s.tolist()) == [100.0] * 32 + [200.0] * 32
    assert sorted(found.fairness.tolist()) == [0.5] * 32 + [1.0] * 32
    assert found.makespan_s == 200


def test_the_section_has_the_published_and_the_simulated_figures(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[str, str] = {}
    monkeypatch.setattr(
        record, "write_section", lambda title, command, body: written.update({title: body})
    )
    arguments = ["--clone", str(clone)]
    ran = CliRunner().invoke(shockwave.shockwave, arguments, catch_exceptions=False)
    assert ran.exit_code == 0
    (body,) = written.values()
    assert "| Shockwave, their testbed | 500 | 900 | 2.50 | 100% |" in body
    assert "| best-effort | 150 | 200 | 1.00 | 0% |" in body


def test_a_pickle_that_names_code_is_refused(tmp_path: Path) -> None:
    path = shockwave.SIMULATION.format("shockwave")
    clone = bare_clone(tmp_path, {path: pickle.dumps(results() | {"makespan": print})})
    with pytest.raises(click.ClickException, match=r"builtins\.print is not plain data"):
        shockwave.published(clone, path)
