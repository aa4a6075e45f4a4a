"""The public traces, if they are available: in TIRESIAS_TRACES or beside the checkout."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from slurm_tiresias.errors import TraceError
from slurm_tiresias.simulator.traces import load_trace
from slurm_tiresias.simulator.workload import paper480

TRACES = Path(
    os.environ.get("TIRESIAS_TRACES", Path(__file__).parents[2].parent / "shared" / "traces")
)


def trace(name: str) -> Path:
    path = TRACES / name
    if not path.exists():
        pytest.skip("public traces are no part of this project (TIRESIAS_TRACES)")
    return path


@pytest.mark.parametrize(
    ("name", "format_name", "jobs", "widest"),
    [
        ("philly_full_82k.csv", "philly", 82_247, 128),
        ("philly_vc_ee9e8c.csv", "philly", 1_511, 128),
        ("elasticflow_itp_raw_69k.csv", "itp", 69_351, 64),
        ("tiresias_60_job.csv", "csv", 60, 8),
        ("synthetic480_seed1.csv", "csv", 480, 32),
    ],
)
def test_each_job_of_a_trace_is_loaded(name: str, format_name: str, jobs: int, widest: int) -> None:
    workload = load_trace(trace(name))
    assert (workload.format, len(workload.jobs), workload.dropped) == (format_name, jobs, ())
    assert max(job.gpus for job in workload.jobs) == widest
    assert workload.notes == ()


def test_the_generated_workload_is_as_heavy_as_the_one_the_reference_ran() -> None:
    reference = load_trace(trace("synthetic480_seed1.csv")).jobs
    reference_gpu_s = sum(job.gpus * job.duration_s for job in reference)
    mean_gpu_s = (
        sum(sum(job.gpus * job.duration_s for job in paper480(seed).jobs) for seed in range(1, 11))
        / 10
    )
    assert mean_gpu_s == pytest.approx(reference_gpu_s, rel=0.1)
    assert Counter(j.gpus for j in reference) == Counter(j.gpus for j in paper480(1).jobs)


def test_a_list_of_numbers_is_not_accepted_as_a_trace() -> None:
    path = trace("fig10a_tiresias_g_jct_digitised.csv")
    with pytest.raises(TraceError, match="matches no known trace format"):
        load_trace(path)
