"""Microsoft's Philly trace (2017) as one CSV table, in two variants.

One has ``job_id,submit_time_s,num_gpus,duration_s,model,vc``. The other, published with AdaptDL,
has ``timestamp,duration,num_gpus,gpu_time,cluster``, where ``cluster`` is the virtual cluster and
jobs have no ids.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from slurm_tiresias.simulator.traces import layouts, reading
from slurm_tiresias.simulator.traces.table import Layout
from slurm_tiresias.simulator.workload import Workload

NAME = "philly"

LAYOUT = replace(
    layouts.GENERIC, format=NAME, columns={**layouts.GENERIC.columns, "group": ("vc",)}
)
WITH_IDS = {"job_id", "submit_time_s", "num_gpus", "duration_s", "vc"}

DATED_LAYOUT = Layout(
    format=NAME,
    columns={
        "submitted_s": ("timestamp",),
        "gpus": ("num_gpus",),
        "duration_s": ("duration",),
        "group": ("cluster",),
    },
    clock=reading.date_s,
    passed_over=frozenset({"gpu_time"}),
)
DATED = "timestamp,duration,num_gpus,gpu_time,cluster"


def fits(first_line: str) -> bool:
    return first_line == DATED or set(first_line.split(",")) >= WITH_IDS


def load(path: Path) -> Workload:
    _, first = reading.first_line(path)
    if not fits(first):
        raise reading.refusal(
            path,
            1,
            f"the header names neither {','.join(sorted(WITH_IDS))} nor {DATED}",
            "name one of these two forms of the trace, or --format csv for a table of your own",
        )
    return (DATED_LAYOUT if first == DATED else LAYOUT).load(path)
