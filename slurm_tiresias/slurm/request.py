"""From what a job asked of Slurm to ``model.Request``: equal chunks that no node boundary splits.

Everything here was compared with what Slurm 22.05 does on a cluster of four-GPU nodes; where
Slurm's display does not tell two requests apart, the comment says which one is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_tiresias.model import ANY_TYPE, Amount, GpuCounts, Request


@dataclass(frozen=True, slots=True)
class RequestFields:
    """What a job asked for, option by option, as numbers; GPUs by type.

    ``tasks`` is None where the job named no number of tasks: Slurm then starts one on each node.
    ``nodes`` is the least number of nodes, ``most_nodes`` None where ``-N`` set no bound. The
    memory is in MiB; all three are 0 where not asked. ``tres_gpus`` is what Slurm's own sum of the
    request says, empty where GPUs are not among AccountingStorageTRES.
    """

    nodes: int = 1
    most_nodes: int | None = None
    tasks: int | None = None
    cpus_per_task: int = 1
    tasks_per_node: int = 0
    cpus_per_node: int = 0
    sockets_per_node: int = 1
    memory_per_node_mb: int = 0
    memory_per_cpu_mb: int = 0
    memory_per_gpu_mb: int = 0
    gpus_per_job: GpuCounts = field(default_factory=dict)
    gpus_per_node: GpuCounts = field(default_factory=dict)
    gpus_per_socket: GpuCounts = field(default_factory=dict)
    gpus_per_task: GpuCounts = field(default_factory=dict)
    cpus_per_gpu: int = 0
    tres_gpus: GpuCounts = field(default_factory=dict)
    exclusive: bool = False
    features: str = ""
    required_nodes: frozenset[str] = frozenset()
    excluded_nodes: frozenset[str] = frozenset()
    partitions: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = ()


def request_of(asked: RequestFields) -> Request:
    """The request in chunks."""
    if asked.gpus_per_task:
        return _one_chunk_a_task(asked)
    if gpus_on_a_node(asked):
        return _one_chunk_a_node(asked)
    if gpus_of_the_job(asked):
        return _one_chunk_a_gpu(asked)
    return _cpus_only(asked)


def gpus_on_a_node(asked: RequestFields) -> GpuCounts:
    """The GPUs that ``--gres``, ``--gpus-per-node`` or ``--gpus-per-socket`` fix for each node."""
    if asked.gpus_per_node:
        return asked.gpus_per_node
    per_socket = asked.gpus_per_socket
    return {kind: count * asked.sockets_per_node for kind, count in per_socket.items()}


def gpus_of_the_job(asked: RequestFields) -> GpuCounts:
    """The GPUs that ``--gpus`` counts for the job; ``--ntasks-per-gpu`` only shows as TRES."""
    return asked.gpus_per_job or asked.tres_gpus


def _one_chunk_a_task(asked: RequestFields) -> Request:
    gpus = asked.gpus_per_task
    tasks = asked.tasks or asked.nodes
    cpus = max(asked.cpus_per_task, asked.cpus_per_gpu * sum(gpus.values()))
    return _request(
        asked,
        chunk=_amount(asked, gpus, cpus),
        chunks=tasks,
        per_node=Amount(memory_mb=asked.memory_per_node_mb),
        max_chunks_per_node=asked.tasks_per_node or None,
        most_nodes=min(asked.most_nodes or tasks, tasks),
    )


def _one_chunk_a_node(asked: RequestFields) -> Request:
    """``-N2-4`` is taken as two nodes: Slurm starts it on as few, and more cannot be foreseen."""
    gpus = gpus_on_a_node(asked)
    tasks_on_a_node = asked.tasks_per_node or _divide_up(asked.tasks or 1, asked.nodes)
    cpus = max(
        tasks_on_a_node * asked.cpus_per_task,
        asked.cpus_per_gpu * sum(gpus.values()),
        asked.cpus_per_node,
    )
    amount = _amount(asked, gpus, cpus)
    whole_node = Amount(amount.gpus, amount.cpus, amount.memory_mb + asked.memory_per_node_mb)
    return _request(
        asked,
        chunk=whole_node,
        chunks=asked.nodes,
        max_chunks_per_node=1,
        most_nodes=asked.nodes,
    )


def _one_chunk_a_gpu(asked: RequestFields) -> Request:
    """``--gpus=N``. Slurm spans nodes freely, but starts no more nodes than there are tasks.

    A job without ``-n`` gets ``-c`` CPUs on every node. Slurm shows ``-n 1`` and no ``-n`` alike.
    """
    by_type = gpus_of_the_job(asked)
    count = sum(by_type.values())
    kind = next(iter(by_type)) if len(by_type) == 1 else ANY_TYPE
    if asked.tasks is None:
        cpus, cpus_on_a_node = asked.cpus_per_gpu, 0 if asked.cpus_per_gpu else asked.cpus_per_task
    elif asked.cpus_per_gpu:
        cpus, cpus_on_a_node = asked.cpus_per_gpu, 0
    else:
        cpus, cpus_on_a_node = divmod(asked.tasks * asked.cpus_per_task, count)
    memory_by_cpu_mb = cpus_on_a_node * asked.memory_per_cpu_mb
    most_nodes = [bound for bound in (asked.most_nodes, asked.tasks) if bound is not None]
    return _request(
        asked,
        chunk=_amount(asked, {kind: 1}, cpus),
        chunks=count,
        per_node=Amount(
            cpus=cpus_on_a_node,
            memory_mb=asked.memory_per_node_mb
            + (0 if asked.memory_per_gpu_mb else memory_by_cpu_mb),
        ),
        least_nodes=_nodes_for_tasks(asked),
        most_nodes=min(most_nodes, default=None),
        may_be_one_task=asked.tasks is None and asked.nodes == 1 and not asked.most_nodes,
    )


def _cpus_only(asked: RequestFields) -> Request:
    tasks = max(asked.tasks or 1, asked.nodes)
    return _request(
        asked,
        chunk=_amount(asked, {}, asked.cpus_per_task),
        chunks=tasks,
        per_node=Amount(memory_mb=asked.memory_per_node_mb),
        max_chunks_per_node=asked.tasks_per_node or None,
        most_nodes=min(asked.most_nodes or tasks, tasks),
    )


def _nodes_for_tasks(asked: RequestFields) -> int:
    """``-n8 --ntasks-per-node=4`` needs two nodes even where one has GPUs enough."""
    if asked.tasks is None or not asked.tasks_per_node:
        return 1
    return _divide_up(asked.tasks, asked.tasks_per_node)


def _amount(asked: RequestFields, gpus: GpuCounts, cpus: int) -> Amount:
    """A chunk with its share of memory; what is asked per node is no chunk's share."""
    if asked.memory_per_gpu_mb:
        return Amount(gpus, cpus, asked.memory_per_gpu_mb * sum(gpus.values()))
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
) -> Request:
    return Request(
        chunk=chunk,
        chunks=chunks,
        per_node=per_node,
        max_chunks_per_node=max_chunks_per_node,
        min_nodes=min(max(asked.nodes, least_nodes), chunks),
        max_nodes=most_nodes,
        may_be_one_task=may_be_one_task,
        exclusive=asked.exclusive,
        features=asked.features,
        required_nodes=asked.required_nodes,
        excluded_nodes=asked.excluded_nodes,
        partitions=asked.partitions,
        opaque=", ".join(_not_modelled(asked)),
    )


def _not_modelled(asked: RequestFields) -> Sequence[str]:
    """What of the request decides where it fits, and cannot be judged node by node: ``a*2`` counts
    nodes, ``[a|b]`` wants them alike."""
    if "[" in asked.features or "*" in asked.features:
        return (*asked.not_modelled, "--constraint with counts or brackets")
    return asked.not_modelled


def _divide_up(amount: int, parts: int) -> int:
    return -(-amount // max(parts, 1))
