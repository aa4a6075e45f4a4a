"""The traces that are one CSV table and need only a column layout."""

from __future__ import annotations

from dataclasses import replace

from slurm_tiresias.simulator.traces import reading
from slurm_tiresias.simulator.traces.table import Layout

GENERIC = Layout(
    format="csv",
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
"""Any CSV table with one job per line: the format to convert your own traces to.

The columns ``job_id``, ``submit_time_s`` (in seconds, from any zero), ``num_gpus`` and
``duration_s`` are required; ``model``, ``gpu_type``, ``user``, ``account``, ``name``, ``group`` and
``limit_s`` are optional. Columns may be in any order. Column names of other simulators' traces are
also accepted. Any file that fits no other format is read as one.
"""

ITP = replace(
    GENERIC,
    format="itp",
    headers=(
        frozenset({"job_id", "submission_time", "duration", "num_gpu"}),
        frozenset({"job_id", "submit_time_s", "num_gpus", "duration_s", "cluster"}),
    ),
    columns={**GENERIC.columns, "group": ("cluster",)},
    passed_over=frozenset({"num_iteration", "deadline", "batch_size"}),
)
"""Microsoft's ITP clusters (2021), published with ElasticFlow.

The published files, one per cluster, have the columns of the first header. A single file of all
clusters, with those of the second, is also accepted.
"""

HELIOS = Layout(
    format="helios",
    headers=(frozenset({"job_id", "gpu_num", "node_num", "submit_time", "queue"}),),
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
"""SenseTime's Helios (2020): ``cluster_log.csv`` of one of its clusters.

Jobs that failed or were cancelled are kept, because they used their GPUs all the same.
"""
