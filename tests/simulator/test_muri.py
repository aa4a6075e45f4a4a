"""The comparison with Muri's published testbed runs, on a clone with an invented trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from scripts.tools.bench import muri, record
from tests.simulator.clones import bare_clone

TRACE = """\
job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,priority
2,64,10000,5,vgg16,16,80000,1
0,32,0,5,gpt2,4,300000,0
1,32,0,5,a2c,64,350000,0
"""
# At 360 the first two have ended, as measured, and the last starts.
MEASURED = """\
time,job_id,num_gpu,real_executed_time,JCT
0,0,32,320.5,320.5
0,1,32,355,400
0,2,64,100,450.1
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    results = {muri.RESULTS.format(name): MEASURED.encode() for name in muri.SCHEDULERS}
    return bare_clone(tmp_path, results | {muri.TRACE: TRACE.encode()})


def test_the_jobs_come_from_the_trace_and_their_running_times_from_the_results(clone: Path) -> None:
    testbed = muri.load(clone, "tiresias")
    jobs = [(job.job_id, job.submitted_s, job.gpus) for job in testbed.measured.jobs]
    assert jobs == [("0", 0, 32), ("1", 0, 32), ("2", 10, 64)]
    assert [job.duration_s for job in testbed.measured.jobs] == [320.5, 355, 100]
    assert [job.duration_s for job in testbed.durations.jobs] == [300, 350, 80]
    assert testbed.jct_s == {"0": 320.5, "1": 400, "2": 450.1}


def test_completion_times_are_compared_job_by_job(clone: Path) -> None:
    testbed = muri.load(clone, "tiresias")
    found = muri.agreement(testbed.jct_s, muri.simulated(testbed.measured, "dlas"))
    assert found.ours_s.tolist() == [320.5, 355, 450]
    assert found.theirs_s.tolist() == [320.5, 400, 450.1]
    assert (found.near, found.jobs) == (2, 3)  # 355 is more than 5 % below 400
    assert found.rank_correlation == pytest.approx(1)


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert muri.ranks(np.array([7.0, 3.0, 7.0, 1.0])).tolist() == [3.5, 2, 3.5, 1]


def test_the_section_has_the_published_and_the_simulated_figures(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[str, str] = {}
    monkeypatch.setattr(
        record, "write_section", lambda title, command, body: written.update({command: body})
    )
    ran = CliRunner().invoke(muri.muri, ["--clone", str(clone)], catch_exceptions=False)
    assert ran.exit_code == 0
    ((command, body),) = written.items()
    assert command == "scripts/dev bench muri --clone DIRECTORY"
    for name, policy in muri.SCHEDULERS.items():
        start = f"| {name} | {policy} | measured | 1.000000 | 2 of 3 |"
        assert f"{start} 390 | 375 | 400 | 355 |" in body
    assert "| tiresias-l, default settings | " in body


def test_a_folder_that_is_no_clone_is_refused_in_one_line(tmp_path: Path) -> None:
    ran = CliRunner().invoke(muri.muri, ["--clone", str(tmp_path)])
    assert ran.exit_code == 2
    assert f"{tmp_path} has no cluster_exp" in ran.output
