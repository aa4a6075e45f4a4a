"""Typical sbatch options, and the ``Request`` for each.

The cluster is that of ``tests/conftest.py``: four GPUs, 16 CPUs and 8000 MiB per node, 500 MiB per
CPU if a job requests no memory, and features ``fast`` and ``ib`` on all nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurm_tiresias.model import ANY_TYPE, Amount, Request

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "two GPUs on a node": ("--gres=gpu:2",),
    "six GPUs for three tasks": ("-n3", "--gpus=6"),
    "eight GPUs anywhere": ("--gpus=8",),
    "eight GPUs with four CPUs on each node": ("--gpus=8", "-c4"),
    "eight GPUs for eight tasks": ("-n8", "--gpus=8"),
    "eight GPUs on two nodes": ("-N2", "--gpus=8"),
    "eight GPUs on two to four nodes": ("-N2-4", "--gpus=8"),
    "four GPUs for one node": ("-N1", "--gpus=4"),
    "two GPUs on each of two nodes": ("-N2", "--gpus-per-node=2"),
    "one GPU for each of three tasks": ("-n3", "--gpus-per-task=1"),
    "two GPUs and four CPUs a task": ("-n3", "--gpus-per-task=2", "--cpus-per-gpu=2"),
    "GPUs by socket": ("-N2", "--gpus-per-socket=1", "--sockets-per-node=2"),
    "one task a GPU": ("--gpus=4", "--ntasks-per-gpu=1"),
    "typed GPUs on a node": ("--gres=gpu:a100:2",),
    "typed GPUs anywhere": ("--gpus=a100:4",),
    "a node for itself": ("--gres=gpu:1", "--exclusive"),
    "memory by node": ("--gpus=2", "--mem=300"),
    "memory by CPU": ("-n2", "-c3", "--mem-per-cpu=50"),
    "memory by GPU": ("--gpus=2", "--mem-per-gpu=200"),
    "CPUs by GPU": ("--gpus=2", "--cpus-per-gpu=3"),
    "CPUs by GPU on two nodes": ("-N2", "--gres=gpu:2", "--cpus-per-gpu=3"),
    "CPUs only": ("-n2", "-c4"),
    "two tasks a node with GPUs": ("-N2", "--ntasks-per-node=2", "--gres=gpu:2"),
    "two tasks a node with a GPU each": ("-n4", "--ntasks-per-node=2", "--gpus-per-task=1"),
    "four tasks a node, eight GPUs": ("-n8", "--ntasks-per-node=4", "--gpus=8"),
    "two to four nodes": ("-N2-4",),
    "named nodes": ("--gres=gpu:1", "-w", "n1,n2"),
    "excluded nodes": ("--gres=gpu:1", "-x", "n1,n3"),
    "features": ("--gres=gpu:1", "-C", "fast&ib"),
    "two partitions": ("--gres=gpu:1", "-p", "gpu,other"),
    "adjacent nodes": ("--gres=gpu:1", "-N2", "--contiguous"),
    "local disk": ("--gres=gpu:1", "--tmp=10"),
    "one switch": ("--gres=gpu:1", "-N2", "--switches=1"),
    "one thread a core": ("--gres=gpu:1", "--hint=nomultithread"),
    "one task a core": ("--gres=gpu:1", "--ntasks-per-core=1"),
    "one task a socket": ("--gres=gpu:1", "--ntasks-per-socket=1"),
    "one core a socket": ("--gres=gpu:1", "--cores-per-socket=1"),
    "all memory of the node": ("--gres=gpu:1", "--mem=0"),
    "nodes shared with one user only": ("--gres=gpu:1", "--exclusive=user"),
    "a network": ("--gres=gpu:1", "--network=fast"),
    "a burst buffer": ("--gres=gpu:1", "--bb=capacity=1"),
    "a license": ("--gres=gpu:1", "--licenses=solver:1"),
    "a deadline": ("--gres=gpu:1", "--deadline=2035-01-01T00:00:00", "--time=10"),
    "nodes alike": ("--gres=gpu:1", "-N2", "-C", "[fast|ib]"),
    "nodes counted by feature": ("--gres=gpu:1", "-N2", "-C", "[fast*1&ib*1]"),
}
"""sbatch's options, by the job's name."""


def _gpus(count: int, kind: str = ANY_TYPE) -> dict[str, int]:
    return {kind: count}


ONE_NODE = Request(
    Amount(_gpus(1), 1, 500), max_chunks_per_node=1, max_nodes=1, partitions=("gpu",)
)
"""``--gres=gpu:1``"""

TWO_NODES = replace(ONE_NODE, chunks=2, min_nodes=2, max_nodes=2)
"""``--gres=gpu:1 -N2``"""

BOUNDED = Request(Amount(_gpus(1)), 8, per_node=Amount(cpus=1, memory_mb=500), partitions=("gpu",))
"""``--gpus=8`` with a number of tasks or nodes"""

SPANNING = replace(BOUNDED, may_be_one_task=True)
"""``--gpus=8``"""

TASKS = Request(Amount(_gpus(1), 1, 500), 3, max_nodes=3, partitions=("gpu",))
"""``-n3 --gpus-per-task=1``"""

REQUESTS: Mapping[str, Request] = {
    "two GPUs on a node": replace(ONE_NODE, chunk=Amount(_gpus(2), 1, 500)),
    "six GPUs for three tasks": replace(
        BOUNDED,
        chunks=6,
        per_node=Amount(cpus=3, memory_mb=1500),
        max_nodes=3,
        cpus_vary=True,
    ),
    "eight GPUs anywhere": SPANNING,
    "eight GPUs with four CPUs on each node": replace(
        SPANNING, per_node=Amount(cpus=4, memory_mb=2000)
    ),
    "eight GPUs for eight tasks": replace(TASKS, chunks=8, max_nodes=8, cpus_vary=True),
    "eight GPUs on two nodes": replace(BOUNDED, min_nodes=2, max_nodes=2),
    "eight GPUs on two to four nodes": replace(BOUNDED, min_nodes=2, max_nodes=4),
    "four GPUs for one node": replace(BOUNDED, chunks=4, max_nodes=1),
    "two GPUs on each of two nodes": replace(
        ONE_NODE, chunk=Amount(_gpus(2), 1, 500), chunks=2, min_nodes=2, max_nodes=2
    ),
    "one GPU for each of three tasks": TASKS,
    "two GPUs and four CPUs a task": replace(TASKS, chunk=Amount(_gpus(2), 4, 2000)),
    "GPUs by socket": replace(
        TWO_NODES,
        chunk=Amount(_gpus(2), 2, 1000),
        opaque="--gpus-per-socket",
        gpus_vary=True,
        cpus_vary=True,
    ),
    "one task a GPU": replace(TASKS, chunks=4, max_nodes=4, cpus_vary=True),
    "typed GPUs on a node": replace(ONE_NODE, chunk=Amount(_gpus(2, "a100"), 1, 500)),
    "typed GPUs anywhere": replace(SPANNING, chunk=Amount(_gpus(1, "a100")), chunks=4),
    "a node for itself": replace(ONE_NODE, exclusive=True),
    "memory by node": replace(SPANNING, chunks=2, per_node=Amount(cpus=1, memory_mb=300)),
    "memory by CPU": Request(Amount({}, 3, 150), 2, max_nodes=2, partitions=("gpu",)),
    "memory by GPU": replace(
        SPANNING, chunk=Amount(_gpus(1), 0, 200), chunks=2, per_node=Amount(cpus=1)
    ),
    "CPUs by GPU": replace(SPANNING, chunk=Amount(_gpus(1), 3, 1500), chunks=2, per_node=Amount()),
    "CPUs by GPU on two nodes": replace(
        ONE_NODE, chunk=Amount(_gpus(2), 6, 3000), chunks=2, min_nodes=2, max_nodes=2
    ),
    "CPUs only": Request(Amount({}, 4, 2000), 2, max_nodes=2, partitions=("gpu",)),
    "two tasks a node with GPUs": replace(
        ONE_NODE, chunk=Amount(_gpus(2), 2, 1000), chunks=2, min_nodes=2, max_nodes=2
    ),
    "two tasks a node with a GPU each": replace(
        TASKS, chunks=4, max_chunks_per_node=2, max_nodes=4
    ),
    "four tasks a node, eight GPUs": replace(TASKS, chunks=8, min_nodes=2, max_nodes=8),
    "two to four nodes": Request(
        Amount({}, 1, 500), 2, min_nodes=2, max_nodes=2, partitions=("gpu",)
    ),
    "named nodes": replace(
        ONE_NODE, chunks=2, min_nodes=2, max_nodes=2, required_nodes=frozenset({"n1", "n2"})
    ),
    "excluded nodes": replace(ONE_NODE, excluded_nodes=frozenset({"n1", "n3"})),
    "features": replace(ONE_NODE, features="fast&ib"),
    "two partitions": replace(ONE_NODE, partitions=("gpu", "other")),
    "adjacent nodes": replace(TWO_NODES, opaque="--contiguous"),
    "local disk": replace(ONE_NODE, opaque="--tmp"),
    "one switch": replace(TWO_NODES, most_switches=1),
    "one thread a core": replace(ONE_NODE, opaque="--threads-per-core or --hint"),
    "one task a core": replace(ONE_NODE, opaque="--ntasks-per-core"),
    "one task a socket": replace(ONE_NODE, opaque="--ntasks-per-socket"),
    "one core a socket": replace(ONE_NODE, opaque="--cores-per-socket"),
    "all memory of the node": replace(ONE_NODE, chunk=Amount(_gpus(1), 1, 8000), opaque="--mem=0"),
    "nodes shared with one user only": replace(ONE_NODE, opaque="--exclusive=user"),
    "a network": replace(ONE_NODE, opaque="--network"),
    "a burst buffer": replace(ONE_NODE, opaque="--bb"),
    "a license": ONE_NODE,
    "a deadline": ONE_NODE,
    "nodes alike": replace(
        TWO_NODES, features="[fast|ib]", opaque="--constraint with counts or brackets"
    ),
    "nodes counted by feature": replace(
        TWO_NODES, features="[fast*1&ib*1]", opaque="--constraint with counts or brackets"
    ),
}
"""The request for each of these options, on 22.05."""

_TWO_AND_TWO = "two tasks a node with a GPU each"
_FOUR_AND_FOUR = "four tasks a node, eight GPUs"

SINCE: Mapping[tuple[int, int], Mapping[str, Request]] = {
    (24, 11): {_TWO_AND_TWO: replace(REQUESTS[_TWO_AND_TWO], min_nodes=2)},
    (26, 5): {
        _TWO_AND_TWO: replace(REQUESTS[_TWO_AND_TWO], min_nodes=2, max_nodes=2),
        _FOUR_AND_FOUR: replace(REQUESTS[_FOUR_AND_FOUR], max_nodes=2),
    },
}
"""Requests that later releases show more exactly: how many nodes the tasks need."""


def request_on(series: tuple[int, int], shape: str) -> Request:
    """Return the request for this shape of job on a release."""
    told = [shapes[shape] for since, shapes in SINCE.items() if since <= series and shape in shapes]
    return told[-1] if told else REQUESTS[shape]
