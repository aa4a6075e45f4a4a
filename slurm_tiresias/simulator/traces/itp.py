"""Microsoft's ITP clusters (2021), published with ElasticFlow.

The published files, one per cluster, have ``job_id,submission_time,duration,num_gpu``. A single
file of all clusters, with ``job_id,submit_time_s,num_gpus,duration_s,model,cluster``, is also
accepted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from slurm_tiresias.simulator.traces import generic, table
from slurm_tiresias.simulator.workload import Workload

NAME = "itp"

LAYOUT = replace(
    generic.LAYOUT,
    format=NAME,
    columns={**generic.LAYOUT.columns, "group": ("cluster",)},
    passed_over=frozenset({"num_iteration", "deadline", "batch_size"}),
)
PUBLISHED = {"job_id", "submission_time", "duration", "num_gpu"}
JOINED = {"job_id", "submit_time_s", "num_gpus", "duration_s", "cluster"}


def fits(first_line: str) -> bool:
    names = set(first_line.split(","))
    return names >= PUBLISHED or names >= JOINED


def load(path: Path) -> Workload:
    return table.load(path, LAYOUT)
