"""Build observed jobs from the fields that a driver has read, and from other known facts."""

from __future__ import annotations

from dataclasses import fields as fields_of
from operator import attrgetter

from slurm_tiresias.model import Allocation, Amount, JobSpec, JobStatus, Request
from slurm_tiresias.slurm.job_details import JobDetails
from slurm_tiresias.slurm.job_fields import COMPLETING, PENDING, RUNNING, JobFields, Options
from slurm_tiresias.slurm.request import RequestFields

_SHARED = [field.name for field in fields_of(JobSpec) if field.name in JobFields._fields]
"""The fields that a spec takes over unchanged."""

_AS_READ = attrgetter(*_SHARED)

LEAST_FORECAST_S = 30.0
"""An end time further ahead than this is a forecast: no time limit is shorter than a minute."""


def spec(
    fields: JobFields, request: Request, array_limit: int | None, before: JobSpec | None = None
) -> JobSpec:
    """Return the spec of the job with these fields; ``before``, its last one, if unchanged."""
    # Compared by identity, because ``JobMemory`` keeps one object for equal requests.
    options = fields.options
    alike = (
        before
        and before.request is request
        and before.array_limit == array_limit
        and before.licenses == options.licenses
        and before.deadline_s == options.deadline_s
    )
    as_read = _AS_READ(fields)
    if before and alike and _AS_READ(before) == as_read:
        return before
    return JobSpec(
        array_limit=array_limit,
        request=request,
        licenses=options.licenses,
        deadline_s=options.deadline_s,
        **dict(zip(_SHARED, as_read, strict=True)),
    )


def status(
    fields: JobFields, spec: JobSpec, allocation: Allocation, now_s: float, unreadable: str = ""
) -> JobStatus:
    """Return the status of the job with these fields; ``now_s`` is slurmctld's clock."""
    state = fields.state
    return JobStatus(
        spec=spec,
        raw_id=fields.raw_id,
        unsplit_array=state is PENDING and fields.array_id == fields.raw_id,
        state=state,
        slurm_state=fields.slurm_state,
        reason=fields.reason,
        priority=fields.priority,
        restarts=fields.restarts,
        eligible_s=fields.eligible_s,
        start_s=_start_s(fields, now_s),
        end_s=_end_s(fields, now_s),
        elapsed_s=fields.elapsed_s,
        allocation=allocation,
        unreadable=unreadable,
        ended_on=tuple(fields.allocated_nodes) if state is None else (),
    )


def unreadable(fields: JobFields, now_s: float, why: str) -> JobStatus:
    """Return the status of a job that cannot be read in full, and must therefore be left alone.

    Its allocation comes from Slurm's own totals only, not from the options its user wrote.
    """
    fields = fields._replace(options=Options(), time_limit_s=None)
    holds = fields.state in (RUNNING, COMPLETING)
    asked = spec(fields, Request(Amount()), None)
    return status(fields, asked, even_split(fields) if holds else {}, now_s, why)


def why_unreadable(fields: JobFields, details: JobDetails | None) -> str:
    """Return why the job cannot be read from these fields and details, in a few words, or ""."""
    holds = fields.state in (RUNNING, COMPLETING)
    needs_the_sum = details is None or (holds and not details.allocation)
    return fields.unreadable or (fields.unreadable_sum if needs_the_sum else "")


def request_fields(
    fields: JobFields,
    details: JobDetails | None,
    while_pending: RequestFields | None,
    *,
    counts_memory: bool = True,
) -> RequestFields:
    """Return what the job requested. ``counts_memory``: whether Slurm allocates memory to jobs.

    Once a job runs, and also after a requeue, Slurm shows the nodes and tasks that it got instead
    of those it requested. These come from ``while_pending`` if the job was seen before it started.
    Otherwise a requeued job gets at most the nodes that it had, because Slurm holds a job for good
    if its node list is longer than its request; its TRES again show its minimum number of nodes.
    """
    least_nodes, most_nodes, tasks = _counts(fields, details)
    pending = fields.state is PENDING
    sums_show = pending and fields.tres_nodes is not None
    tres_gpus = (fields.tres_gpus or {}) if pending else {}
    # --overcommit shows only in the number of CPUs: that of nodes, not that of tasks.
    overcommits = tasks is not None and fields.cpus < tasks
    # The job has run before, and no update has set its number of nodes since.
    bounds_are_gone = fields.restarts > 0 and (details is None or details.least_nodes is None)
    shows_what_it_got = not pending or bounds_are_gone
    if while_pending is not None and shows_what_it_got:
        least_nodes, most_nodes = while_pending.nodes, while_pending.most_nodes
        tasks = while_pending.tasks
        overcommits = while_pending.overcommits
        tres_gpus = tres_gpus if sums_show else while_pending.tres_gpus
    elif pending and shows_what_it_got:
        least_nodes = fields.tres_nodes or least_nodes
        most_nodes = max(least_nodes, fields.nodes)
    options, memory_mb = fields.options, fields.memory_mb
    if details is not None:
        memory_per_cpu = details.memory_per_cpu
    else:
        memory_per_cpu = (fields.tres_memory_mb or 0) == memory_mb * fields.cpus
    if details is not None and details.not_modelled:
        options = options._replace(not_modelled=(*options.not_modelled, *details.not_modelled))
    per_gpu = options.memory_per_gpu_mb != 0
    if counts_memory and not memory_mb and not per_gpu and fields.tres_memory_mb:
        # --mem=0 requests all memory of each node; the total counts one node's memory for each.
        memory_mb = fields.tres_memory_mb // max(fields.tres_nodes or 1, 1)
        memory_per_cpu = False
        options = options._replace(not_modelled=(*options.not_modelled, "--mem=0"))
    return RequestFields(
        job=fields,
        nodes=least_nodes,
        most_nodes=most_nodes,
        tasks=tasks,
        memory_per_node_mb=0 if memory_per_cpu or per_gpu else memory_mb,
        memory_per_cpu_mb=memory_mb if memory_per_cpu and not per_gpu else 0,
        options=options,
        tres_gpus=tres_gpus,
        overcommits=overcommits,
        excluded_nodes=details.excluded_nodes if details else frozenset(),
    )


def even_split(fields: JobFields) -> Allocation:
    """Guess the allocation when details are missing: the same amount on each node."""
    nodes = fields.allocated_nodes
    if not nodes:
        return {}
    gpus = fields.tres_gpus or _gpus_asked(fields, len(nodes))
    memory_mb = fields.tres_memory_mb or 0
    return {
        name: Amount(
            gpus={
                kind: share
                for kind, count in gpus.items()
                if (share := _share(count, len(nodes), place))
            },
            cpus=_share(fields.cpus, len(nodes), place),
            memory_mb=-(-memory_mb // len(nodes)),
        )
        for place, name in enumerate(nodes)
    }


def _start_s(fields: JobFields, now_s: float) -> float | None:
    """Return when this run started.

    Slurm also shows a start for pending jobs (a forecast), for requeued jobs that still complete
    (the current second), and for jobs cancelled while pending (the time of that); these are None.
    """
    state = fields.state
    requeued = state is COMPLETING and _end_s(fields, now_s) is None
    never_ran = state is None and not fields.allocated_nodes
    return None if state is PENDING or requeued or never_ran else fields.start_s


def _end_s(fields: JobFields, now_s: float) -> float | None:
    """Return when the job ended.

    For a running job Slurm shows when its time limit will end it, and for a requeued job that still
    completes the same as if it started now; these are None.
    """
    if fields.state in (PENDING, RUNNING):
        return None
    end_s = fields.end_s
    return None if end_s is not None and end_s > now_s + LEAST_FORECAST_S else end_s


def _gpus_asked(fields: JobFields, nodes: int) -> dict[str, int]:
    """Compute a running job's GPUs from its request, for clusters whose TRES have no GPUs."""
    options = fields.options
    multiplied = (
        (options.gpus_per_job, 1),
        (options.gpus_per_node, nodes),
        (options.gpus_per_task, fields.tasks),
        (options.gpus_per_socket, nodes * fields.sockets_per_node),
    )
    for counts, times in multiplied:
        if counts:
            return {kind: count * times for kind, count in counts.items()}
    return {}


def _counts(fields: JobFields, details: JobDetails | None) -> tuple[int, int | None, int | None]:
    """Return the minimum and maximum nodes and the tasks, as far as they were requested.

    For a pending job without ``-N``, NumNodes is Slurm's estimate, on 26.05 the lower of its two
    numbers; the TRES total has the requested number. NumTasks of a job without ``-n`` equals the
    number of nodes.
    """
    pending = fields.state is PENDING
    options = fields.options
    summed = fields.tres_nodes or 1
    fixed_per_node = bool(options.gpus_per_node or options.gpus_per_socket)
    spans_freely = bool(options.gpus_per_job or options.gpus_per_task)
    least_nodes, most_nodes = (summed, None) if pending else (1, None)
    if details is not None and details.least_nodes is not None:
        least_nodes, most_nodes = details.least_nodes, details.most_nodes
        if pending and fields.tres_nodes:
            least_nodes = min(least_nodes, fields.tres_nodes)
    elif fixed_per_node or not (pending or spans_freely):
        least_nodes = fields.nodes
    named_tasks = fields.tasks if fields.tasks > (summed if pending else fields.nodes) else None
    return least_nodes, most_nodes, named_tasks


def _share(count: int, parts: int, place: int) -> int:
    return count // parts + (place < count % parts)
