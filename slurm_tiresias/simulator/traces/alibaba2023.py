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
from slurm_tiresias.simulator.traces.reading import BadValueError, Harvest
from slurm_tiresias.simulator.workload import TraceJob, Workload

NAME = "alibaba2023"
TITLE = "Alibaba 2023, openb_pod_list_*.csv"

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
    for line, row in table.rows_below(file, header, lines):
        pod = dict(zip(COLUMNS, (row[at] for at in positions), strict=True))
        try:
            _take(harvest, line, pod)
            shared += 0 < reading.whole(pod["gpu_milli"] or "0", "gpu_milli") < WHOLE_GPU_MILLI
            choosy += "|" in pod["gpu_spec"]
        except BadValueError as error:
            raise file.refuse(line, str(error)) from None
    if shared:
        harvest.notes.append(f"{shared:,} pods asked for a part of a GPU: each counts as a whole")
    if choosy:
        harvest.notes.append(f"{choosy:,} pods named several GPU types: they may run on any")
    return harvest.workload()


def _take(harvest: Harvest, line: int, pod: Mapping[str, str]) -> None:
    why = _why_dropped(pod["deletion_time"], pod["scheduled_time"])
    if why:
        harvest.drop(line, why)
        return
    created_s, deleted_s, scheduled_s = (
        reading.number(pod[name], name)
        for name in ("creation_time", "deletion_time", "scheduled_time")
    )
    types = pod["gpu_spec"]
    harvest.keep(
        line,
        TraceJob(
            pod["name"],
            min(created_s, scheduled_s),
            reading.whole(pod["num_gpu"]),
            deleted_s - scheduled_s,
            gpu_type="" if "|" in types or types == "nan" else types,
            group=pod["qos"],
        ),
    )


def _why_dropped(deleted: str, scheduled: str) -> str:
    if not scheduled:
        return reading.NEVER_RAN
    if not deleted:
        return reading.NOT_OVER
    ended_s = reading.number(deleted, "deletion_time")
    too_early = ended_s < reading.number(scheduled, "scheduled_time")
    return reading.ENDS_TOO_EARLY if too_early else ""
