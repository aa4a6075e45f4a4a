"""From squeue's rows, and what scontrol knows beyond them, to observed jobs."""

from __future__ import annotations

import re
import time

from slurm_tiresias.model import Allocation, Amount, JobState, Request
from slurm_tiresias.slurm import text
from slurm_tiresias.slurm.job_details import JobDetails
from slurm_tiresias.slurm.job_rows import JobRow
from slurm_tiresias.slurm.protocol import ObservedJob
from slurm_tiresias.slurm.request import Asked

PENDING, RUNNING, COMPLETING = JobState.PENDING, JobState.RUNNING, JobState.COMPLETING

STATES: dict[str, JobState | None] = {
    "PENDING": PENDING,
    "REQUEUE_HOLD": PENDING,
    "SPECIAL_EXIT": PENDING,
    "RESV_DEL_HOLD": PENDING,
    "EXPEDITING": PENDING,
    "RUNNING": RUNNING,
    "CONFIGURING": RUNNING,
    "POWER_UP_NODE": RUNNING,
    "SUSPENDED": RUNNING,
    "STOPPED": RUNNING,
    "RESIZING": RUNNING,
    "SIGNALING": RUNNING,
    "COMPLETING": COMPLETING,
    "REQUEUED": COMPLETING,
    "STAGE_OUT": COMPLETING,
    "COMPLETED": None,
    "CANCELLED": None,
    "FAILED": None,
    "TIMEOUT": None,
    "NODE_FAIL": None,
    "PREEMPTED": None,
    "BOOT_FAIL": None,
    "DEADLINE": None,
    "OUT_OF_MEMORY": None,
    "LAUNCH_FAILED": None,
    "RECONFIG_FAIL": None,
    "REVOKED": None,
    "REQUEUE_FED": None,
}
"""What each of Slurm's words for a job's state means here; None: the job has ended.

Slurm says COMPLETING both of a job that has ended and of one that was requeued and waits for its
epilog: neither holds GPUs in Slurm's books, and their nodes start nothing.
"""


_NO_NUMBER = text.NOTHING | {"*", "4294967294"}
"""The last is how Slurm itself says so (slurm.h, NO_VAL), and prints of jobs cancelled in time."""

LEAST_FORECAST_S = 30.0
"""What ends later than that has not ended: no time limit is shorter than a minute."""

_SHOWN_JOB = re.compile(r"^JobId=\d+ ", re.MULTILINE | re.ASCII)
_SHOWN_STATE = re.compile(r" JobState=(\w+) ", re.ASCII)
_SHOWN_SUBMISSION = re.compile(r" SubmitTime=(\d{1,18}) ", re.ASCII)


def state_of(row: JobRow) -> JobState | None:
    """The state; ``SlurmAnswerError`` for a word that no known release has."""
    if row.state not in STATES:
        raise text.unreadable("a job state", row.state)
    return STATES[row.state]


def is_unknown(complaint: str) -> bool:
    """Whether squeue complains that slurmctld does not know the job that it was asked for."""
    return "Invalid job id specified" in complaint


def shows_a_live_job(answer: str, submitted_before_s: float) -> bool:
    """Whether the answer to ``show job ID`` is of a job that has not ended, submitted before that.

    Users' text may feign another state or time, but only of their own job.
    """
    record = _SHOWN_JOB.search(answer)
    state, submitted = _SHOWN_STATE.search(answer), _SHOWN_SUBMISSION.search(answer)
    if record is None or state is None or submitted is None:
        return False
    return STATES.get(state[1]) is not None and int(submitted[1]) < submitted_before_s


def observed(
    row: JobRow, request: Request, allocation: Allocation, array_limit: int | None
) -> ObservedJob:
    """The job of this row; what needs more than the row is given beside it."""
    state = state_of(row)
    raw_id = text.whole(row.raw_id)
    in_array = "_" in row.key
    return ObservedJob(
        key=row.key,
        raw_id=raw_id,
        array_id=text.whole(row.array_id) if in_array else None,
        array_limit=array_limit,
        unsplit_array=in_array and state is PENDING and row.raw_id == row.array_id,
        name=text.present(row.name),
        user=row.user,
        account=text.present(row.account),
        qos=text.present(row.qos),
        partitions=tuple(text.present(row.partitions).split(",")),
        state=state,
        slurm_state=row.state,
        reason=row.reason,
        priority=text.whole(row.priority),
        restarts=text.whole(row.restarts),
        batch=row.batch == "1",
        requeue=row.requeue == "1",
        het=text.present(row.het_id) != "",
        submit_s=text.known_epoch(row.submit),
        eligible_s=text.epoch(row.eligible),
        start_s=_start_s(row),
        end_s=_end_s(row),
        elapsed_s=text.span(row.time_used) or 0.0,
        time_limit_s=text.span(row.time_limit),
        request=request,
        allocation=allocation,
        required_node_list=text.present(row.required_nodes),
        reservation=text.present(row.reservation),
        comment=text.present(row.comment),
        admin_comment=text.present(row.admin_comment),
    )


def asked(row: JobRow, details: JobDetails | None, while_pending: Asked | None) -> Asked:
    """What the job asked for.

    Once a job runs, Slurm shows how many nodes and tasks it got in the place of how many it asked
    for: those are taken from ``while_pending``, where the job was seen before it started.
    """
    least_nodes, most_nodes, tasks = _counts(row, details)
    tres_gpus = row.tres if state_of(row) is PENDING else ""
    if while_pending is not None and state_of(row) is not PENDING:
        least_nodes, most_nodes = while_pending.nodes, while_pending.most_nodes
        tasks, tres_gpus = while_pending.tasks, while_pending.tres_gpus
    memory_mb = text.mebibytes(row.memory)
    memory_per_cpu = _memory_is_per_cpu(row, details)
    memory_per_gpu_mb = _memory_per_gpu_mb(row.memory_per_tres)
    return Asked(
        nodes=least_nodes,
        most_nodes=most_nodes,
        tasks=tasks,
        cpus_per_task=_number_or(row.cpus_per_task, 1),
        tasks_per_node=_number_or(row.tasks_per_node, 0),
        cpus_per_node=_number_or(row.cpus_per_node, 0),
        sockets_per_node=_number_or(row.sockets, 1),
        memory_per_node_mb=0 if memory_per_cpu or memory_per_gpu_mb else memory_mb,
        memory_per_cpu_mb=memory_mb if memory_per_cpu and not memory_per_gpu_mb else 0,
        memory_per_gpu_mb=memory_per_gpu_mb,
        gpus_per_job=row.tres_per_job,
        gpus_per_node=row.tres_per_node,
        gpus_per_socket=row.tres_per_socket,
        gpus_per_task=row.tres_per_task,
        cpus_per_gpu=sum(text.gpus(row.cpus_per_tres).values()),
        tres_gpus=tres_gpus,
        exclusive=row.over_subscribe == "NO",
        features=text.present(row.features),
        required_nodes=frozenset(text.node_names(row.required_nodes)),
        excluded_nodes=details.excluded_nodes if details else frozenset(),
        partitions=tuple(text.present(row.partitions).split(",")),
    )


def _start_s(row: JobRow) -> float | None:
    """When this incarnation started.

    Slurm also prints a forecast for a pending job, and the present second for a requeued one that
    still completes; neither is a start.
    """
    requeued = state_of(row) is COMPLETING and _end_s(row) is None
    return None if state_of(row) is PENDING or requeued else text.epoch(row.start)


def _end_s(row: JobRow) -> float | None:
    """When the job ended.

    Of one that runs Slurm prints when its time limit will end it; and the same, as if it began this
    second, of one that was requeued and still completes.
    """
    if state_of(row) in (PENDING, RUNNING):
        return None
    end_s = text.epoch(row.end)
    return None if end_s is not None and end_s > time.time() + LEAST_FORECAST_S else end_s


def even_split(row: JobRow) -> Allocation:
    """What the job holds if it holds the same on each node: the guess where details are missing."""
    nodes = text.node_names(row.node_list)
    if not nodes:
        return {}
    gpus = text.gpus(row.tres) or _gpus_asked(row, len(nodes))
    cpus = text.whole(row.cpus)
    memory_mb = text.tres_value(row.tres, "mem", text.mebibytes) or 0
    return {
        name: Amount(
            gpus={
                kind: share
                for kind, count in gpus.items()
                if (share := _share(count, len(nodes), place))
            },
            cpus=_share(cpus, len(nodes), place),
            memory_mb=-(-memory_mb // len(nodes)),
        )
        for place, name in enumerate(nodes)
    }


def _gpus_asked(row: JobRow, nodes: int) -> dict[str, int]:
    """The GPUs of a running job where Slurm does not track them."""
    multiplied = (
        (row.tres_per_job, 1),
        (row.tres_per_node, nodes),
        (row.tres_per_task, _number_or(row.tasks, 1)),
        (row.tres_per_socket, nodes * _number_or(row.sockets, 1)),
    )
    for spelled, times in multiplied:
        if counts := text.gpus(spelled):
            return {kind: count * times for kind, count in counts.items()}
    return {}


def _counts(row: JobRow, details: JobDetails | None) -> tuple[int, int | None, int | None]:
    """Least nodes, most nodes and tasks, as far as they were asked for.

    NumNodes of a pending job without ``-N`` is Slurm's estimate, on 26.05 the lower of its two
    numbers; the sum of its TRES has what was asked. NumTasks of a job without ``-n`` is that number
    of nodes again.
    """
    shown = _number_or(row.nodes, 1)
    tasks = _number_or(row.tasks, 1)
    pending = state_of(row) is PENDING
    tres_nodes = text.tres_value(row.tres, "node", text.whole)
    summed = tres_nodes or 1
    least_nodes, most_nodes = (summed, None) if pending else (1, None)
    if details is not None and details.least_nodes is not None:
        least_nodes, most_nodes = details.least_nodes, details.most_nodes
        if pending and tres_nodes:
            least_nodes = min(least_nodes, tres_nodes)
    elif _fixed_per_node(row) or not (pending or _spans_freely(row)):
        least_nodes = shown
    named_tasks = tasks if tasks > (summed if pending else shown) else None
    return least_nodes, most_nodes, named_tasks


def _fixed_per_node(row: JobRow) -> bool:
    return bool(text.gpus(row.tres_per_node) or text.gpus(row.tres_per_socket))


def _spans_freely(row: JobRow) -> bool:
    return bool(text.gpus(row.tres_per_job) or text.gpus(row.tres_per_task))


def _memory_is_per_cpu(row: JobRow, details: JobDetails | None) -> bool:
    if details is not None:
        return details.memory_per_cpu
    total_mb = text.tres_value(row.tres, "mem", text.mebibytes) or 0
    return total_mb == text.mebibytes(row.memory) * _number_or(row.cpus, 1)


def _memory_per_gpu_mb(memory_per_tres: str) -> int:
    """``gres:gpu:200``, or with a unit; in MiB where there is none."""
    amount = text.present(memory_per_tres).rpartition("gpu")[2].lstrip(":=")
    return text.mebibytes(amount) if amount else 0


def _number_or(printed: str, otherwise: int) -> int:
    """A number, or the other where Slurm prints ``*`` or a word for none."""
    return otherwise if printed in _NO_NUMBER else text.whole(printed)


def _share(count: int, parts: int, place: int) -> int:
    return count // parts + (place < count % parts)
