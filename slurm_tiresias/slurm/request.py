"""Convert a job's options to ``model.Request``: equal chunks, none of which spans nodes.

Everything here was verified against Slurm 22.05 on a cluster of four-GPU nodes. If Slurm shows two
requests alike, a comment says which one is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_tiresias.model import ANY_TYPE, Amount, GpuCounts, Request
from slurm_tiresias.slurm.job_fields import JobFields, Options


@dataclass(frozen=True, slots=True)
class RequestFields:
    """What a job requested, where that differs from what Slurm now shows of the ``job``.

    ``tasks`` is None without ``-n``: Slurm then starts one task on each node. ``nodes`` is the
    minimum number of nodes; ``most_nodes`` is None if ``-N`` set no maximum. Memory is in MiB, 0 if
    not requested. ``tres_gpus`` is Slurm's own total of the request, empty if GPUs are not among
    AccountingStorageTRES. With ``overcommits`` tasks share ``cpus_per_node`` CPUs on each node.
    """

    job: JobFields
    nodes: int
    most_nodes: int | None
    tasks: int | None
    memory_per_node_mb: int
    memory_per_cpu_mb: int
    options: Options
    tres_gpus: GpuCounts
    overcommits: bool
    excluded_nodes: frozenset[str]


def request_of(asked: RequestFields) -> Request:
    """Return the request in chunks."""
    if asked.options.gpus_per_task:
        return _one_chunk_a_task(asked)
    if gpus_on_a_node(asked):
        return _one_chunk_a_node(asked)
    if gpus_of_the_job(asked):
        return _one_chunk_a_gpu(asked)
    return _cpus_only(asked)


def gpus_on_a_node(asked: RequestFields) -> GpuCounts:
    """The GPUs that ``--gres`` or ``--gpus-per-node`` fix for each node.

    With ``--gpus-per-socket`` it is Slurm's estimate: what a job gets depends on the sockets that
    its CPUs are on.
    """
    options, sockets = asked.options, asked.job.sockets_per_node
    if options.gpus_per_node:
        return options.gpus_per_node
    return {kind: count * sockets for kind, count in options.gpus_per_socket.items()}


def gpus_of_the_job(asked: RequestFields) -> GpuCounts:
    """The GPUs of ``--gpus``, or of ``--ntasks-per-gpu``, which shows only in the TRES."""
    return asked.options.gpus_per_job or asked.tres_gpus


def _one_chunk_a_task(asked: RequestFields) -> Request:
    options, gpus = asked.options, asked.options.gpus_per_task
    tasks = asked.tasks or asked.nodes
    cpus = max(_cpus_of_tasks(asked, 1), options.cpus_per_gpu * sum(gpus.values()))
    cpus_on_a_node = asked.job.cpus_per_node if asked.overcommits else 0
    return _request(
        asked,
        chunk=_amount(asked, gpus, cpus),
        chunks=tasks,
        per_node=Amount(cpus=cpus_on_a_node, memory_mb=asked.memory_per_node_mb),
        max_chunks_per_node=asked.job.tasks_per_node or None,
        most_nodes=min(asked.most_nodes or tasks, tasks),
    )


def _one_chunk_a_node(asked: RequestFields) -> Request:
    """``-N2-4`` counts as two nodes: Slurm may start it on two, and more cannot be foreseen."""
    options, gpus = asked.options, gpus_on_a_node(asked)
    nodes = max(asked.nodes, _nodes_of_tasks(asked))
    tasks_on_a_node = asked.job.tasks_per_node or _divide_up(asked.tasks or 1, nodes)
    cpus = max(
        _cpus_of_tasks(asked, tasks_on_a_node),
        options.cpus_per_gpu * sum(gpus.values()),
        asked.job.cpus_per_node,
    )
    amount = _amount(asked, gpus, cpus)
    whole_node = Amount(amount.gpus, amount.cpus, amount.memory_mb + asked.memory_per_node_mb)
    return _request(
        asked,
        chunk=whole_node,
        chunks=nodes,
        max_chunks_per_node=1,
        least_nodes=nodes,
        most_nodes=nodes,
        cpus_vary=_divides_tasks(asked),
    )


def _one_chunk_a_gpu(asked: RequestFields) -> Request:
    """``--gpus=N``. Slurm spans nodes freely, but uses at most as many nodes as there are tasks.

    A job without ``-n`` gets ``-c`` CPUs on every node. Slurm shows ``-n 1`` and no ``-n`` alike.
    """
    options, by_type = asked.options, gpus_of_the_job(asked)
    count = sum(by_type.values())
    kind = next(iter(by_type)) if len(by_type) == 1 else ANY_TYPE
    if options.cpus_per_gpu:
        cpus, cpus_on_a_node = options.cpus_per_gpu, 0
    elif asked.tasks is None:
        cpus, cpus_on_a_node = 0, options.cpus_per_task
    elif asked.overcommits:
        cpus, cpus_on_a_node = 0, asked.job.cpus_per_node
    else:
        cpus, cpus_on_a_node = divmod(asked.tasks * options.cpus_per_task, count)
    memory_by_cpu_mb = cpus_on_a_node * asked.memory_per_cpu_mb
    most_nodes = [bound for bound in (asked.most_nodes, asked.tasks) if bound is not None]
    return _request(
        asked,
        chunk=_amount(asked, {kind: 1}, cpus),
        chunks=count,
        per_node=Amount(
            cpus=cpus_on_a_node,
            memory_mb=asked.memory_per_node_mb
            + (0 if options.memory_per_gpu_mb else memory_by_cpu_mb),
        ),
        least_nodes=_nodes_of_tasks(asked),
        most_nodes=min(most_nodes, default=None),
        cpus_vary=_divides_tasks(asked),
        may_be_one_task=asked.tasks is None and asked.nodes == 1 and not asked.most_nodes,
    )


def _cpus_only(asked: RequestFields) -> Request:
    tasks = max(asked.tasks or 1, asked.nodes)
    return _request(
        asked,
        chunk=_amount(asked, {}, asked.options.cpus_per_task),
        chunks=tasks,
        per_node=Amount(memory_mb=asked.memory_per_node_mb),
        max_chunks_per_node=asked.job.tasks_per_node or None,
        most_nodes=min(asked.most_nodes or tasks, tasks),
    )


def _cpus_of_tasks(asked: RequestFields, tasks: int) -> int:
    return 0 if asked.overcommits else tasks * asked.options.cpus_per_task


def _nodes_of_tasks(asked: RequestFields) -> int:
    """The fewest nodes for the tasks: ``-n8 --ntasks-per-node=4`` needs two, even if one has enough
    GPUs."""
    if asked.tasks is None or not asked.job.tasks_per_node:
        return 1
    return _divide_up(asked.tasks, asked.job.tasks_per_node)


def _divides_tasks(asked: RequestFields) -> bool:
    """Whether Slurm may put more tasks on one node than on another."""
    fixed = asked.job.tasks_per_node or asked.most_nodes == 1 or asked.overcommits
    return asked.tasks is not None and not fixed


def _amount(asked: RequestFields, gpus: GpuCounts, cpus: int) -> Amount:
    """Return a chunk with its memory, which excludes memory requested per node."""
    per_gpu_mb = asked.options.memory_per_gpu_mb
    if per_gpu_mb:
        return Amount(gpus, cpus, per_gpu_mb * sum(gpus.values()))
    return Amount(gpus, cpus, asked.memory_per_cpu_mb * cpus)


def _request(
    asked: RequestFields,
    *,
    chunk: Amount,
    chunks: int,
    per_node: Amount = Amount(),  # noqa: B008 - frozen
    max_chunks_per_node: int | None = None,
    least_nodes: int = 1,
    most_nodes: int | None = None,
    may_be_one_task: bool = False,
    cpus_vary: bool = False,
) -> Request:
    not_modelled = asked.options.not_modelled
    gpus_vary = bool(asked.options.gpus_per_socket)
    if gpus_vary:
        not_modelled = (*not_modelled, "--gpus-per-socket")
    if "[" in asked.job.features or "*" in asked.job.features:
        # Neither can be checked node by node: ``a*2`` counts nodes, ``[a|b]`` wants equal ones.
        not_modelled = (*not_modelled, "--constraint with counts or brackets")
    return Request(
        chunk=chunk,
        chunks=chunks,
        per_node=per_node,
        max_chunks_per_node=max_chunks_per_node,
        min_nodes=min(max(asked.nodes, least_nodes), chunks),
        max_nodes=most_nodes,
        may_be_one_task=may_be_one_task,
        exclusive=asked.job.exclusive or asked.options.whole_blocks,
        features=asked.job.features,
        required_nodes=frozenset(asked.job.required_nodes),
        excluded_nodes=asked.excluded_nodes,
        partitions=asked.job.partitions,
        segment=asked.options.segment,
        most_switches=asked.options.most_switches,
        whole_blocks=asked.options.whole_blocks,
        opaque=", ".join(not_modelled),
        gpus_vary=gpus_vary,
        cpus_vary=cpus_vary,
    )


def _divide_up(amount: int, parts: int) -> int:
    return -(-amount // max(parts, 1))
