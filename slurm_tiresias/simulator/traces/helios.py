"""SenseTime's Helios (2020): ``cluster_log.csv`` of one of its clusters.

Jobs that failed or were cancelled are kept, because they used their GPUs all the same.
"""

from __future__ import annotations

from pathlib import Path

from slurm_tiresias.simulator.traces import reading, table
from slurm_tiresias.simulator.traces.table import Layout
from slurm_tiresias.simulator.workload import Workload

NAME = "helios"

LAYOUT = Layout(
    format=NAME,
    columns={
        "job_id": ("job_id",),
        "submitted_s": ("submit_time",),
        "gpus": ("gpu_num",),
        "duration_s": ("duration",),
        "user": ("user",),
        "name": ("jobname",),
        "group": ("vc",),
    },
    clock=reading.date_s,
    expects_cpu_jobs=True,
    passed_over=frozenset({"cpu_num", "node_num", "state", "start_time", "end_time", "queue"}),
)


def fits(first_line: str) -> bool:
    return {"job_id", "gpu_num", "node_num", "submit_time", "queue"} <= set(first_line.split(","))


def load(path: Path) -> Workload:
    return table.load(path, LAYOUT)
