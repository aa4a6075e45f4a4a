"""Any CSV table with one job per line: the format to convert your own traces to.

The columns ``job_id``, ``submit_time_s`` (in seconds, from any zero), ``num_gpus`` and
``duration_s`` are required; ``model``, ``gpu_type``, ``user``, ``account``, ``name``, ``group`` and
``limit_s`` are optional. Columns may be in any order. Column names of other simulators' traces are
also accepted.
"""

from __future__ import annotations

from pathlib import Path

from slurm_tiresias.simulator.traces import table
from slurm_tiresias.simulator.traces.table import Layout
from slurm_tiresias.simulator.workload import Workload

NAME = "csv"

LAYOUT = Layout(
    format=NAME,
    columns={
        "job_id": ("job_id", "jobid", "id"),
        "submitted_s": (
            *("submit_time_s", "submitted_s", "submit_time", "submission_time", "arrival_time"),
        ),
        "gpus": ("num_gpus", "gpus", "num_gpu", "gpu_num"),
        "duration_s": ("duration_s", "duration", "run_time", "runtime"),
        "model": ("model", "model_name"),
        "gpu_type": ("gpu_type",),
        "user": ("user",),
        "name": ("name", "job_name"),
        "group": ("group", "vc", "cluster", "partition", "queue"),
        "limit_s": ("limit_s", "time_limit_s"),
        "account": ("account",),
    },
)


def fits(first_line: str) -> bool:
    """Whether the file may be a CSV table; any file that fits no other format is read as one."""
    return "," in first_line


def load(path: Path) -> Workload:
    return table.load(path, LAYOUT)
