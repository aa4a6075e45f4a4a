"""Alibaba's GPU-sharing cluster (2023): one of the ``openb_pod_list_*.csv``, where a pod is a job.

A pod with one GPU may use only a part of it (``gpu_milli`` under 1000). Slurm allocates whole GPUs,
so it counts as one. A pod runs from ``scheduled_time`` to ``deletion_time``. A pod that may run on
several GPU types (``V100M16|V100M32``) counts as having none, because a trace job has one type or
any.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slurm_tiresias.simulator.traces import reading, table
from slurm_tiresias.simulator.traces.reading import Harvest, NoJobError
from slurm_tiresias.simulator.traces.table import Row
from slurm_tiresias.simulator.workload import TraceJob, Workload

NAME = "alibaba2023"

COLUMNS = (
    "name",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
WHOLE_GPU_MILLI = 1000


def fits(first_line: str) -> bool:
    return set(COLUMNS) <= set(first_line.split(","))


def load(path: Path) -> Workload:
    file = reading.open_trace(path)
    harvest = Harvest(file, NAME)
    lines = table.rows(file)
    header = table.header_of(file, lines)
    positions = [table.position(file, header, name) for name in COLUMNS]
    shared = choosy = 0

    def take(line: int, row: Row) -> None:
        nonlocal shared, choosy
        pod = dict(zip(COLUMNS, (row[at] for at in positions), strict=True))
        shared += 0 < reading.whole(pod["gpu_milli"] or "0", "gpu_milli") < WHOLE_GPU_MILLI
        choosy += "|" in pod["gpu_spec"]
        harvest.keep(line, _job(pod))

    harvest.each(table.rows_below(file, header, lines), take)
    if shared:
        harvest.notes.append(f"{shared:,} pods asked for a part of a GPU: each counts as a whole")
    if choosy:
        harvest.notes.append(f"{choosy:,} pods named several GPU types: they may run on any")
    return harvest.workload()


def _job(pod: Mapping[str, str]) -> TraceJob:
    if not pod["scheduled_time"]:
        raise NoJobError(reading.NEVER_RAN)
    if not pod["deletion_time"]:
        raise NoJobError(reading.NOT_OVER)
    names = ("deletion_time", "scheduled_time")
    deleted_s, scheduled_s = (reading.number(pod[name], name) for name in names)
    if deleted_s < scheduled_s:
        raise NoJobError(reading.ENDS_TOO_EARLY)
    types = pod["gpu_spec"]
    return TraceJob(
        pod["name"],
        min(reading.number(pod["creation_time"], "creation_time"), scheduled_s),
        reading.whole(pod["num_gpu"]),
        deleted_s - scheduled_s,
        gpu_type="" if "|" in types or types == "nan" else types,
        group=pod["qos"],
    )
